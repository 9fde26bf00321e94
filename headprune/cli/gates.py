"""The command `headprune gates`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, cast

import typer

from headprune.backends import open_model
from headprune.cli.options import kinds_of_models
from headprune.components import unit_names
from headprune.cost import unit_cost
from headprune.errors import UsageError
from headprune.files import require_separate
from headprune.select.steps import percent_of_budget

app = typer.Typer(add_completion=False)

_TOLERANCE = 2.0
"""Percentage points by which the closed gates may miss their target without a remark."""


@app.command()
def gates(
    model: Annotated[
        Path, typer.Argument(help=f"The model with learned gates: {kinds_of_models()}.")
    ],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The plan to write: the units with open gates.")
    ],
    pruned_model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            help="Checkpoint, or folder, of the pruned model to write. Its weights contain the "
            "values of open gates.",
        ),
    ] = None,
    log: Annotated[
        Path | None,
        typer.Option(
            help="Log of the training, for --figure: what fairseq-train printed, or the Trainer's "
            "trainer_state.json. Default: the latter in the model's folder.",
            show_default=False,
        ),
    ] = None,
    figure: Annotated[
        Path | None,
        typer.Option(
            help="Picture of the gates closing over time, written as PNG and SVG: gates.png and "
            "gates.svg for gates.png."
        ),
    ] = None,
) -> None:
    """Close learned gates: write the plan and the pruned model.

    If the gates were trained to a target, the units with the lowest gates are pruned until the
    target is met. Otherwise heads and neurons are pruned whose deterministic gate is 0, and layers
    whose gate is below one half.
    """
    from headprune.gates.closing import GatedModel, closed, line_on_closed
    from headprune.gates.history import read_history
    from headprune.report.drawing import save_drawing
    from headprune.report.open_units import draw_open_units

    pictures = None
    if log is not None and figure is None:
        raise UsageError(
            "--log is read for --figure alone; give --figure FILE too, or leave it out"
        )
    if figure is not None:
        log = model / "trainer_state.json" if log is None and model.is_dir() else log
        if log is None:
            raise UsageError("--figure needs --log, the file that fairseq-train's output is in")
        pictures = figure.with_suffix(".png"), figure.with_suffix(".svg")
    png, svg = pictures or (None, None)
    require_separate(
        {"--output": output, "--model": pruned_model, "--figure": png, "--figure (SVG)": svg},
        inputs=(model, log),
    )
    # An isinstance of the protocol would compute the fingerprint, which reads all weights.
    opened = cast(GatedModel, open_model(model))
    learned = getattr(opened, "gates", None)
    if learned is None:
        raise UsageError(f"{model}: has no learned gates")
    target = opened.gate_target
    plan = closed(learned, target=target, sizes=lambda: opened.sizes).plan
    history = [] if log is None or figure is None else read_history(log)
    if pictures is not None:
        before = {name: sum(map(len, layers)) for name, layers in learned.plan.kept.items()}
        save_drawing(
            lambda: draw_open_units(history, before=before), png=pictures[0], svg=pictures[1]
        )
        print(f"{pictures[0]}: {len(history)} points of {log}")
    plan.save(output)
    if pruned_model is not None:
        pruned = opened.with_gates_closed()
        pruned.save(pruned_model)
        print(f"{pruned_model}: {opened.parameters:,} -> {pruned.parameters:,} parameters")
    names = unit_names(plan.units)
    print(f"{output}: {plan} ({plan.percent_pruned:.1f}% of {names} pruned)")
    if line := line_on_closed(plan, target=target):
        print(f"{output}: {line}")
    if target is not None:
        cost = None
        if target.of != "units":
            cost = unit_cost(target.of, sizes=opened.sizes, shape=plan.units)
        share = percent_of_budget(plan, of=target.of, cost=cost)
        if abs(share - target.percent) > _TOLERANCE:
            print(f"{output}: {share:.1f}% pruned, the target was {target}")
