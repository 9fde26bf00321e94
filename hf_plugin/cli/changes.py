"""The command `headprune changes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, add_completion=False)


@app.command()
def changes(
    before: Annotated[
        str, typer.Argument(help="The model before fine-tuning: a Hugging Face folder or name.")
    ],
    after: Annotated[
        list[str], typer.Argument(help="Fine-tuned models, pruned or not: one or more.")
    ],
    output_dir: Annotated[
        Path,
        typer.Option(
            "--output-dir",
            "-o",
            help="Folder for changes.* and distances.svg.",
        ),
    ] = Path("."),
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="Label of a fine-tuned model; give one for each, in their order. Default: the "
            "parts in which their paths differ."
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="Title of the table and the figure.")] = (
        "Change of the heads' weights in fine-tuning"
    ),
) -> None:
    """Measure how much fine-tuning changes each head (figure 2 of Budhraja et al. 2020).

    The change of a head is the mean of |after - before| over its weights in W_q, W_k and W_v.
    Prints the mean of each layer, whether any two layers differ by less than 10%, as the paper
    says of BERT, and the mean by the distance from the pruned heads. changes.png has a heat map for
    each model, distances.svg the change against the distance. Heads are matched by their numbers in
    the unpruned model. The model before fine-tuning may be pruned, but it needs every head that
    the fine-tuned models have.
    """
    from headprune.errors import UsageError, needing
    from headprune.report.changes import document
    from headprune.report.render import markdown, save
    from headprune.results.changes import Changes

    labels = label or distinct_names(after)
    if len(labels) != len(after) or len(set(labels)) != len(labels):
        raise UsageError(
            f"--label: give {len(after)} different ones, one for each fine-tuned model"
        )
    with needing("reading Hugging Face models needs transformers"):
        from hf_plugin.changes import head_changes, load

    start = load(before)
    changes_by_model = []
    for name, path in zip(labels, after, strict=True):
        try:
            changes_by_model.append(Changes(label=name, components=head_changes(start, load(path))))
        except UsageError as problem:
            raise UsageError(f"{path} against {before}: {problem}") from None
    report = document(changes_by_model, title=title)
    save(report, output_dir, name="changes")
    print(markdown.render(report))


def distinct_names(paths: list[str]) -> list[str]:
    """The parts of paths in which they differ, without common first and last folders.

    >>> distinct_names(["runs/10pct/seed1/model", "runs/50pct/seed1/model"])
    ['10pct', '50pct']
    """
    parts = [Path(path).parts for path in paths]
    if len(set(parts)) == 1:
        return [Path(path).name for path in paths]
    for end, rest in ((0, slice(1, None)), (-1, slice(None, -1))):
        while all(len(part) > 1 for part in parts) and len({part[end] for part in parts}) == 1:
            parts = [part[rest] for part in parts]
    return ["/".join(part) for part in parts]
