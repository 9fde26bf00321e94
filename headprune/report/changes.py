"""Changes of heads in fine-tuning: tables, and a check of the paper's claim of even changes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import TYPE_CHECKING, Any

from headprune.errors import DataError
from headprune.json_files import json_object, known_values
from headprune.report.distances import by_distance, distance_blocks, distance_note
from headprune.report.document import Column, Document, Figure, Notes, Table
from headprune.report.heat_map import draw
from headprune.report.paper import SOURCE

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

FORMAT = "headprune.changes"

Values = Sequence[Sequence[float | None]]
"""For each layer, a value for each head; None for a head that is pruned."""

CLAIM = 0.10
"""The paper's claim on BERT: the mean changes of any two layers differ by less than this."""


@dataclass(frozen=True, kw_only=True)
class Changes:
    """One fine-tuned model.

    Attributes:
        label: its name in tables and figures.
        components: for each component, each head's change.
    """

    label: str
    components: Mapping[str, Values]


@dataclass(frozen=True, kw_only=True)
class Evenness:
    """The largest difference between the layers of one component.

    Attributes:
        lowest, highest: the layers with the smallest and the largest mean.
        difference: how much the largest mean is above the smallest, as a share of the smallest.
    """

    label: str
    component: str
    lowest: int
    highest: int
    difference: float

    @property
    def holds(self) -> bool:
        """True if any two layers differ by less than the paper claims."""
        return self.difference < CLAIM


def read_changes(path: Path) -> list[Changes]:
    """Read the file `changes.json` of `headprune changes`.

    Raises:
        DataError: the file cannot be read or has another content.
    """
    content = json_object(path)
    if content.get("format") != FORMAT:
        raise DataError(f'{path}: not changes of heads (no "format": "{FORMAT}")')
    models = content.get("models")
    if not isinstance(models, list) or not models:
        raise DataError(f"{path}: not changes of heads: no model")
    return [_changes_of(model, source=f"{path}: not changes of heads") for model in models]


@dataclass
class _Model:
    """The fields of a model in a file, for their types."""

    label: str
    heads: dict[str, list[list[float | None]]]


def _changes_of(model: object, *, source: str) -> Changes:
    if not isinstance(model, dict):
        raise DataError(f"{source}: a model is no object")
    fields = _Model(**known_values(_Model, model, source=source))
    if not fields.heads or not all(any(layers) for layers in fields.heads.values()):
        raise DataError(f"{source}: {fields.label!r} has a component without heads")
    return Changes(label=fields.label, components=fields.heads)


def layer_means(values: Values) -> list[float | None]:
    """Each layer's mean over its remaining heads; None for a layer without heads."""
    remaining = [[value for value in layer if value is not None] for layer in values]
    return [fmean(layer) if layer else None for layer in remaining]


def evenness(changes: Sequence[Changes]) -> list[Evenness]:
    """The differences of each model and component that has heads in two layers or more."""
    differences = []
    for model in changes:
        for component, values in model.components.items():
            means = {
                layer: mean for layer, mean in enumerate(layer_means(values)) if mean is not None
            }
            if len(means) < 2:
                continue
            lowest, highest = min(means, key=lambda k: means[k]), max(means, key=lambda k: means[k])
            above = means[highest] - means[lowest]
            differences.append(
                Evenness(
                    label=model.label,
                    component=component,
                    lowest=lowest,
                    highest=highest,
                    # Layers that are frozen do not change at all.
                    difference=above / means[lowest]
                    if means[lowest]
                    else (math.inf if above else 0.0),
                )
            )
    return differences


def document(changes: Sequence[Changes], *, title: str) -> Document:
    """Each layer's mean change, differences between layers, and change by distance."""
    distances = distance_blocks(changes)
    columns = [
        (f"{model.label} {component}", layer_means(values))
        for model in changes
        for component, values in model.components.items()
    ]
    by_layer = Table(
        caption="Mean change of a layer's heads; empty where no head is left:",
        columns=[Column("layer"), *(Column(name, "{:.3e}".format) for name, _ in columns)],
        rows=[
            [layer, *(means[layer] if layer < len(means) else None for _, means in columns)]
            for layer in range(max(len(means) for _, means in columns))
        ],
    )
    claim = Table(
        caption="Largest difference between two layers' means:",
        columns=[
            *(Column("model"), Column("component")),
            *(Column("lowest", "layer {}".format), Column("highest", "layer {}".format)),
            Column("difference", _share),
            Column(f"below {CLAIM:.0%}", lambda holds: "yes" if holds else "no"),
        ],
        rows=[
            [row.label, row.component, row.lowest, row.highest, row.difference, row.holds]
            for row in evenness(changes)
        ],
    )
    notes = Notes(
        [
            "The change of a head: the mean of |after - before| over its weights in W_q, in W_k "
            "and in W_v, and of these three the mean. Pruned heads have none.",
            "difference: by how much the highest mean is above the lowest, as a share of the "
            f"lowest. {SOURCE}: of any two layers below {CLAIM:.0%}, in every configuration of "
            "their tables 5 and 6.",
            *([distance_note()] if distances else []),
        ]
    )
    return Document(
        title=title,
        blocks=[by_layer, claim, *distances, notes],
        sheet=_sheet(changes),
        values=_values(changes),
        figures=[
            Figure(
                name="changes",
                draw=lambda: _heat_maps(changes, title),
                alt="Heat maps of each head's mean change, layers by heads, one map a model: "
                f"{', '.join(model.label for model in changes)}. Pruned heads are grey.",
            )
        ],
    )


def _heat_maps(changes: Sequence[Changes], title: str) -> Drawing:
    """A map for each model and component."""
    several = len(changes[0].components) > 1
    panels = [
        (f"{model.label} {component}" if several else model.label, values)
        for model in changes
        for component, values in model.components.items()
    ]
    return draw(panels, title=title, label="mean |after - before| of W_q, W_k, W_v")


def _share(value: float) -> str:
    return "infinite" if math.isinf(value) else f"{value:.1%}"


def _sheet(changes: Sequence[Changes]) -> Table:
    names = ("model", "component", "layer", "head", "change")
    return Table(
        columns=[Column(name) for name in names],
        rows=[
            (model.label, component, layer, head, value)
            for model in changes
            for component, values in model.components.items()
            for layer, heads in enumerate(values)
            for head, value in enumerate(heads)
        ],
    )


def _values(changes: Sequence[Changes]) -> Mapping[str, Any]:
    return {
        "format": FORMAT,
        "version": 1,
        "models": [
            {
                "label": model.label,
                "heads": dict(model.components),
                "layers": {name: layer_means(values) for name, values in model.components.items()},
                "distances": {
                    name: [
                        {"distance": row.distance, "layers": row.layers, **vars(row.change)}
                        for row in by_distance(values)
                    ]
                    for name, values in model.components.items()
                },
            }
            for model in changes
        ],
        "claim": {
            "source": SOURCE,
            "below": CLAIM,
            "rows": [
                {
                    **vars(row),
                    "difference": None if math.isinf(row.difference) else row.difference,
                    "holds": row.holds,
                }
                for row in evenness(changes)
            ],
        },
    }
