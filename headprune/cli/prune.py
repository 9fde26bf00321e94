"""The command `headprune prune`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headprune.backends import all_backends, open_model
from headprune.cli.options import kinds_of_models
from headprune.components import unit_names
from headprune.form import Form
from headprune.plan import PruningPlan

app = typer.Typer(add_completion=False)


def prune(
    model: Annotated[Path, typer.Argument(help=f"The trained model: {kinds_of_models()}.")],
    plan: Annotated[Path, typer.Option(help="The plan, from `headprune plan`.")],
    output: Annotated[
        Path, typer.Option("--output", "-o", help="Checkpoint, or folder, to write.")
    ],
    form: Annotated[
        Form,
        typer.Option(
            help="remove: the weights of pruned units are removed. mask: they stay, and the units' "
            "outputs are multiplied by 0 (fairseq). uniform: the heads' attention scores are "
            "multiplied by 0 (Hugging Face), as in the first version (October 2020) of the paper's "
            "BERT code."
        ),
    ] = Form.remove,
) -> None:
    """Prune heads, neurons and layers of a trained model, without training."""
    opened = open_model(model)
    pruned = opened.prune(PruningPlan.load(plan), form=form.value)
    pruned.save(output)
    kept = pruned.plan
    print(
        f"{output}: {kept} ({kept.percent_pruned:.1f}% of {unit_names(kept.units)} pruned, "
        f"{opened.parameters:,} -> {pruned.parameters:,} parameters)"
    )


app.command(help="\n\n".join([str(prune.__doc__), *(b.pruned_help for b in all_backends())]))(prune)
