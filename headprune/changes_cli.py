"""The command `headprune changes`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="What fine-tuning changes in the heads.")


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
        typer.Option("--output-dir", "-o", help="Folder for changes.json, .csv, .md, .png, .svg."),
    ] = Path("."),
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="What to call a fine-tuned model; give one for each, in their order. "
            "Default: what their paths differ in."
        ),
    ] = None,
    title: Annotated[str, typer.Option(help="Title of table and figure.")] = (
        "Change of the heads' weights in fine-tuning"
    ),
) -> None:
    """Measure how much fine-tuning changes each head (figure 2 of Budhraja et al. 2020).

    The change of a head is the mean of |after - before| over its weights in W_q, W_k and W_v.
    Prints each layer's mean and whether any two layers differ by less than 10%, as the paper
    says of BERT; the figure has a heat map for each model. Heads are matched by their numbers in
    the unpruned model; the model before may be pruned too, if less.
    """
    from headprune.errors import UsageError, needing
    from headprune.files import write_text_atomically
    from headprune.report.changes import Changes, to_csv, to_json, to_markdown
    from headprune.report.heat_map import save_heat_maps

    labels = label or distinct_names(after)
    if len(labels) != len(after) or len(set(labels)) != len(labels):
        raise UsageError(
            f"--label: give {len(after)} different ones, one for each fine-tuned model"
        )
    with needing("reading Hugging Face models needs transformers"):
        from hf_plugin.changes import head_changes, load

    start = load(before)
    found = []
    for name, path in zip(labels, after, strict=True):
        try:
            found.append(Changes(label=name, components=head_changes(start, load(path))))
        except UsageError as problem:
            raise UsageError(f"{path} against {before}: {problem}") from None
    components = list(found[0].components)
    save_heat_maps(
        [
            (f"{model.label} {name}" if len(components) > 1 else model.label, values)
            for model in found
            for name, values in model.components.items()
        ],
        title=title,
        label="mean |after - before| of W_q, W_k, W_v",
        png=output_dir / "changes.png",
        svg=output_dir / "changes.svg",
    )
    write_text_atomically(output_dir / "changes.csv", to_csv(found))
    write_text_atomically(output_dir / "changes.json", to_json(found))
    write_text_atomically(output_dir / "changes.md", to_markdown(found, title=title))
    print(to_markdown(found, title=title))


def distinct_names(paths: list[str]) -> list[str]:
    """What is left of paths without the folders that all begin with and all end with.

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
