"""Tables and heat maps of the changes of heads in fine-tuning."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from headprune.report.distances import by_distance, distance_blocks, distance_note
from headprune.report.document import Column, Document, Figure, Notes, Table
from headprune.report.heat_map import draw
from headprune.results.changes import CLAIM, FORMAT, Changes, evenness, layer_means
from headprune.results.paper import SOURCE

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing


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
