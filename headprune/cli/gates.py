"""The command `headprune gates`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headprune.backends import open_model
from headprune.budget import Budget
from headprune.cli.options import kinds_of_models
from headprune.components import unit_names
from headprune.cost import unit_cost
from headprune.errors import UsageError
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
) -> None:
    """Close learned gates: write the plan and the pruned model.

    A unit is pruned if its deterministic gate is 0, a layer if it is below one half.
    """
    from headprune.gates.closing import GatedModel, plan_of_gates

    opened = open_model(model)
    learned = opened.gates if isinstance(opened, GatedModel) else None
    if learned is None or not isinstance(opened, GatedModel):
        raise UsageError(f"{model}: has no learned gates")
    plan = plan_of_gates(learned, target=opened.gate_target)
    if pruned_model is not None:
        pruned = opened.with_gates_closed()
        pruned.save(pruned_model)
        print(f"{pruned_model}: {opened.parameters:,} -> {pruned.parameters:,} parameters")
    plan.save(output)
    names = unit_names(plan.units)
    print(f"{output}: {plan} ({plan.percent_pruned:.1f}% of {names} pruned)")
    empty = [name for name, counts in plan.counts.items() if not sum(counts)]
    if empty:
        print(
            f"{output}: every gate of {', '.join(empty)} is closed; a lower penalty keeps some open"
        )
    if opened.gate_target is not None:
        target = Budget.parse(opened.gate_target)
        cost = None
        if target.of != "units":
            cost = unit_cost(target.of, sizes=opened.sizes, shape=plan.units)
        share = percent_of_budget(plan, of=target.of, cost=cost)
        if abs(share - target.percent) > _TOLERANCE:
            print(f"{output}: {share:.1f}% pruned, the target was {target}")
