"""The command `headprune show`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headprune.backends import find_backend, no_model, open_model, refuse_other_options
from headprune.budget import USUAL_LENGTH
from headprune.cli.options import kinds_of_models
from headprune.components import NEURONS, side_of
from headprune.cost import Sizes
from headprune.errors import UsageError
from headprune.files import require_standard_output
from headprune.plan import PruningPlan

app = typer.Typer(add_completion=False)


@app.command()
def show(
    path: Annotated[Path, typer.Argument(help=f"A plan file, {kinds_of_models()}.")],
    model: Annotated[
        Path | None,
        typer.Option(
            help="For a plan: the model that it is for, whose sizes count. Default: the sizes "
            "below."
        ),
    ] = None,
    width: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Width of the model, for plan files only.",
            show_default="64 for each head",
        ),
    ] = None,
    feed_forward: Annotated[
        int | None,
        typer.Option(
            min=0, help="Feed-forward width, for plan files only.", show_default="4 x width"
        ),
    ] = None,
    vocabulary: Annotated[
        int | None,
        typer.Option(
            min=0,
            help="Vocabulary size, for plan files only.",
            show_default="32000, of an encoder alone 0",
        ),
    ] = None,
    length: Annotated[
        int, typer.Option(min=1, help="Number of tokens of a sentence, for the FLOPs.")
    ] = USUAL_LENGTH,
) -> None:
    """Show which heads, neurons and layers are kept, and what that saves.

    For a model, parameters and FLOPs are its own; for a plan, those of --model. Without it they are
    those of a Transformer of the given width, in which a head is width / heads wide.
    """
    from headprune.report.plan_view import show_plan

    require_standard_output()
    sizes_given = {"width": width, "feed_forward": feed_forward, "vocabulary": vocabulary}
    given: dict[str, object] = {n: size for n, size in sizes_given.items() if size is not None}
    backend = find_backend(path)
    if backend is None and path.is_dir():
        raise no_model(path)
    if backend is None:
        plan = PruningPlan.load(path)
        if model is not None:
            refuse_other_options(given, model=model, kind="a model")
            opened = open_model(model)
            plan.require_shape(opened.shape, of=str(model))
            pruned = opened.plan.replaced_by(plan)
            parameters = opened.unpruned_parameters, opened.parameters_with(pruned)
            show_plan(pruned, opened.sizes, length=length, parameters=parameters)
            return
        sizes = _sizes(plan, width=width, feed_forward=feed_forward, vocabulary=vocabulary)
        show_plan(plan, sizes, length=length)
        words = f" with {sizes.vocabulary:,} words" if "decoder" in map(side_of, plan.units) else ""
        print(f"sizes       of a model of width {sizes.decoder_width}{words}; --model takes yours")
        return
    refuse_other_options(
        given | ({} if model is None else {"model": model}), model=path, kind="a model"
    )
    from headprune.model import computed_plan_of  # it imports torch

    opened = backend.open(path)
    learned = getattr(opened, "gates", None)
    if learned is not None:
        print(
            f"learned gates of {', '.join(learned.plan.units)}, not closed yet: `headprune gates "
            f"{path} -o plan.json --model OUT` closes them; below, all units count as kept"
        )
    show_plan(
        opened.plan,
        opened.sizes,
        length=length,
        parameters=(opened.unpruned_parameters, opened.parameters),
        form=opened.form,
        computed=computed_plan_of(opened),
    )


def _sizes(
    plan: PruningPlan, *, width: int | None, feed_forward: int | None, vocabulary: int | None
) -> Sizes:
    """The widths of a model for a plan; by default those of common models."""
    heads = {name: layers[0] for name, layers in plan.heads.items()}
    neurons = {name: max(plan.units[name]) for name in NEURONS if name in plan.units}
    if width is None and neurons and not heads:
        width = max(neurons.values()) // 4
    if width is None:  # as Transformer-Base and -Big, BERT-base and -large have it
        width = 64 * max(heads.values(), default=8)
    if feed_forward is None:
        feed_forward = 4 * width
    for name, number in heads.items():
        if width % number:
            raise UsageError(f"{name}: width {width} does not divide into {number} heads")
    has_decoder = any(side_of(name) == "decoder" for name in plan.units)
    return Sizes(
        encoder_width=width,
        decoder_width=width,
        encoder_feed_forward=neurons.get("EF", feed_forward),
        decoder_feed_forward=neurons.get("DF", feed_forward),
        encoder_head_dim=width // heads.get("ES", 1),
        decoder_head_dim=width // heads.get("DS", heads.get("ED", 1)),
        vocabulary=32000 if vocabulary is None else vocabulary,
        encoder_output_weights=0 if has_decoder else width * (vocabulary or 0),
    )
