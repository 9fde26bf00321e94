"""Grids of heads inside web pages: the rows that are seen at once, and the data of the others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headprune.components import COMPONENT_NAMES
from headprune.report.document import HeadGrid, Heads, KeptHeads

_DIGITS = 4
"""Significant digits of scores and p-values in a page."""


@dataclass(frozen=True)
class Panel:
    """One component as the page shows it before its script has run.

    Attributes:
        name, title: the component, and its name in words.
        layers: for each layer, from the top, its number and for each head whether it is kept.
        heads: the largest number of heads of a layer.
    """

    name: str
    title: str
    layers: Sequence[tuple[int, Sequence[bool]]]
    heads: int


def shown_first(grid: HeadGrid) -> KeptHeads:
    """The first model with fewer heads than the unpruned one; the first model without such."""
    for model in grid.models:
        if any(
            len(kept) < heads
            for name, layers in model.kept.items()
            for kept, heads in zip(layers, grid.heads[name], strict=True)
        ):
            return model
    return grid.models[0]


def panels(grid: HeadGrid) -> list[Panel]:
    """The components, with the heads of the model that is shown first."""
    model = shown_first(grid)
    return [
        Panel(
            name,
            COMPONENT_NAMES[name],
            [
                (layer, [head in model.kept[name][layer] for head in range(heads[layer])])
                for layer in reversed(range(len(heads)))
            ],
            max(heads),
        )
        for name, heads in grid.heads.items()
    ]


def grid_data(grid: HeadGrid) -> Mapping[str, Any]:
    """All models and scores, as JSON values for the page's script."""
    return {
        "first": grid.models.index(shown_first(grid)),
        "models": [
            {
                "row": model.row,
                "seed": model.seed,
                "value": model.value,
                "kept": {name: list(map(list, layers)) for name, layers in model.kept.items()},
            }
            for model in grid.models
        ],
        "scores": [
            {
                "name": score.name,
                "values": _rounded(score.values),
                "p": _rounded(score.p_values),
                "holm": _rounded(score.adjusted),
                "signature": score.signature,
            }
            for score in grid.scores
        ],
    }


def _rounded(values: Heads) -> dict[str, list[list[float | None]]]:
    return {
        name: [
            [None if value is None else float(f"{value:.{_DIGITS}g}") for value in layer]
            for layer in layers
        ]
        for name, layers in values.items()
    }
