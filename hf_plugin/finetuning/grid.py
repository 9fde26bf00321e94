"""Grid search over batch sizes and learning rates, as in the paper."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headprune.results.record import Record
from hf_plugin.finetuning.run import run
from hf_plugin.finetuning.run_folder import require_own
from hf_plugin.finetuning.settings import Labels, Settings
from hf_plugin.finetuning.training import Diverged

NOTE = "chosen on the development set that it is measured on: an optimistic figure"


def search(
    settings: Settings,
    labels: Labels,
    output: Path,
    *,
    batch_sizes: Sequence[int],
    learning_rates: Sequence[float],
    overwrite: bool = False,
) -> Record:
    """Do a run for each pair in ``output``/grid, and copy the files of the best run to ``output``.

    The best run has the highest value of the task's first metric on the development set. This value
    is therefore optimistic, and the result says so. The result lists all cells, also those whose
    fine-tuning diverged. Only the best model is kept. An interrupted search is resumed.

    Args:
        settings, labels, output, overwrite: see ``run``.
        batch_sizes, learning_rates: the sides of the grid.

    Raises:
        UsageError, DataError: see ``run``; or all fine-tunings diverge.
    """
    require_own(settings, output, overwrite=overwrite, ignored=("batch_size", "learning_rate"))
    best, best_cell = None, output
    diverged: Diverged | None = None
    cells: list[dict[str, Any]] = []
    for batch_size in batch_sizes:
        for rate in learning_rates:
            cell = output / "grid" / f"bs{batch_size}-lr{rate:g}"
            print(f"grid: batch size {batch_size}, learning rate {rate:g}")
            try:
                chosen = replace(settings, batch_size=batch_size, learning_rate=rate)
                result = run(chosen, labels, cell, overwrite=overwrite)
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
    # An earlier search may have deleted the model of the best cell, which is then trained again.
    if not (best_cell / "model").is_dir():
        shutil.rmtree(best_cell)
        chosen = replace(
            settings,
            batch_size=best.settings["batch_size"],
            learning_rate=best.settings["learning_rate"],
        )
        best = run(chosen, labels, best_cell)
    # Of an earlier search; until all files are copied, the folder has no result.
    (output / "result.json").unlink(missing_ok=True)
    shutil.rmtree(output / "model", ignore_errors=True)
    shutil.copytree(best_cell / "model", output / "model")
    for model in (output / "grid").glob("*/model"):
        if model.parent != best_cell:
            shutil.rmtree(model)
    for file in best_cell.glob("predictions*.tsv"):
        shutil.copy(file, output)
    result = replace(best, training={**best.training, "grid": cells, "grid_note": NOTE})
    result.save(output / "result.json")
    return result
