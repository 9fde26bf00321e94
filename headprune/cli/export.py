"""The command `headprune export`."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headprune.backends import Given, all_backends, find_backend
from headprune.cli.options import kinds_of_models
from headprune.errors import UsageError
from headprune.files import require_separate
from headprune.wording import listed

app = typer.Typer(add_completion=False)

_TARGETS = {name: target for each in all_backends() for name, target in each.export_targets.items()}

if TYPE_CHECKING:
    Target = StrEnum
else:  # its members are known when the installed backends are
    Target = StrEnum("Target", {name: name for name in _TARGETS})


def export(
    model: Annotated[Path, typer.Argument(help=f"The model, pruned or not: {kinds_of_models()}.")],
    to: Annotated[
        Target,
        typer.Option(
            help="; ".join(f"{name}: {target.summary}" for name, target in _TARGETS.items()) + "."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="File, or folder, to write.")],
    quantization: Annotated[
        str | None,
        typer.Option(
            help="Type of the weights, for --to ctranslate2: int8, int8_float32, int8_float16, "
            "int8_bfloat16, int16, float16, bfloat16 or float32 (default)."
        ),
    ] = None,
    data: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the binarised data, or of the dictionaries, for --to ctranslate2. "
            "Default: the data that the model was trained on."
        ),
    ] = None,
    shortlist: Annotated[
        Path | None,
        typer.Option(
            help="File from `headprune shortlist` to write as vmap.txt, for --to ctranslate2."
        ),
    ] = None,
) -> None:
    """Write a model so that other tools load it."""
    options = {"quantization": quantization, "data": data, "shortlist": shortlist}
    given = {name: value for name, value in options.items() if value is not None}
    _refuse_options_of_others(to.value, given)
    require_separate({"--output": output}, inputs=(model, data, shortlist))
    backend = find_backend(model)
    if backend is None or to.value not in backend.export_targets:
        takers = [each.models for each in all_backends() if to.value in each.export_targets]
        raise UsageError(f"{model}: --to {to.value} takes {' or '.join(takers)}")
    written = backend.export(model, target=to.value, output=output, given=given)
    print(f"{output}: {written}")


def _refuse_options_of_others(target: str, given: Given) -> None:
    """Raise a UsageError for an option that belongs to other targets only."""
    for option in given:
        if option in _TARGETS[target].options:
            continue
        for name, other in _TARGETS.items():
            if option in other.options:
                options = listed([f"--{each}" for each in other.options])
                raise UsageError(f"{options} go with --to {name}")


_PARAGRAPHS = [str(export.__doc__), *(target.description for target in _TARGETS.values())]
app.command(help="\n\n".join(_PARAGRAPHS))(export)
