"""The paper's search over batch sizes and learning rates: one run for each pair of them."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headprune.report.glue_results import GlueResult
from hf_plugin.glue.run import require_same, run
from hf_plugin.glue.settings import Labels, Settings
from hf_plugin.glue.training import Diverged

NOTE = "chosen on the development set that it is measured on: an optimistic figure"


def search(
    settings: Settings,
    labels: Labels,
    output: Path,
    *,
    batch_sizes: Sequence[int],
    learning_rates: Sequence[float],
) -> GlueResult:
    """Do a run for each pair, below ``output``/grid, and give ``output`` the files of the best.

    The best has the highest value of the task's first metric on the development set, which makes
    that value optimistic; the result says so and lists all cells. A cell whose fine-tuning
    diverges is listed as such. Only the best model is kept. A search that was killed is resumed.

    Raises:
        UsageError, DataError: see ``run``; all fine-tunings diverge.
    """
    path = output / "result.json"
    if path.exists():
        require_same(
            GlueResult.load(path).training.get("settings"),
            settings,
            where=path,
            but=("batch_size", "learning_rate"),
        )
    best, best_cell = None, output
    diverged: Diverged | None = None
    cells: list[dict[str, Any]] = []
    for batch_size in batch_sizes:
        for rate in learning_rates:
            cell = output / "grid" / f"bs{batch_size}-lr{rate:g}"
            print(f"grid: batch size {batch_size}, learning rate {rate:g}")
            try:
                chosen = replace(settings, batch_size=batch_size, learning_rate=rate)
                result = run(chosen, labels, cell)
            except Diverged as problem:
                print(f"grid: {problem}")
                cells.append(
                    {"batch_size": batch_size, "learning_rate": rate, "diverged": str(problem)}
                )
                diverged = problem
                continue
            cells.append({"batch_size": batch_size, "learning_rate": rate, **result.metrics})
            if best is None or result.value > best.value:
                best, best_cell = result, cell
    if best is None:
        assert diverged is not None
        raise diverged
    # Another search may have left the best cell without its model; then it is trained again.
    if not (best_cell / "model").is_dir():
        shutil.rmtree(best_cell)
        chosen = replace(settings, batch_size=best.batch_size, learning_rate=best.learning_rate)
        best = run(chosen, labels, best_cell)
    shutil.rmtree(output / "model", ignore_errors=True)
    shutil.copytree(best_cell / "model", output / "model")
    for model in (output / "grid").glob("*/model"):
        if model.parent != best_cell:
            shutil.rmtree(model)
    for file in best_cell.glob("predictions*.tsv"):
        shutil.copy(file, output)
    result = replace(best, training={**best.training, "grid": cells, "grid_note": NOTE})
    result.save(path)
    return result
