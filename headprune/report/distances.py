"""Changes of heads in fine-tuning by the distance of their layer from the pruned heads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headprune.report.document import Block, Column, Figure, Table
from headprune.report.drawing import line_style
from headprune.results.stats import Spread, spread

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

    from headprune.results.changes import Changes, Values


@dataclass(frozen=True, kw_only=True)
class AtDistance:
    """The changes of the remaining heads at one distance from the pruned heads.

    Attributes:
        distance: the number of layers to the nearest layer with a pruned head; 0 in such a layer.
        layers: the layers at this distance in which heads remain.
        change: the mean change of their heads, its sample standard deviation over the heads, and
            the number of heads.
    """

    distance: int
    layers: tuple[int, ...]
    change: Spread


def by_distance(values: Values) -> list[AtDistance]:
    """The changes of a component's heads by distance; empty if no head is pruned.

    Args:
        values: for each layer, the change of each head; None for a head that is pruned.
    """
    pruned_layers = [layer for layer, heads in enumerate(values) if None in heads]
    layers_by_distance: dict[int, list[int]] = {}
    for layer, heads in enumerate(values):
        if pruned_layers and any(value is not None for value in heads):
            distance = min(abs(layer - pruned) for pruned in pruned_layers)
            layers_by_distance.setdefault(distance, []).append(layer)
    return [
        AtDistance(
            distance=distance,
            layers=tuple(layers),
            change=spread(
                [value for layer in layers for value in values[layer] if value is not None]
            ),
        )
        for distance, layers in sorted(layers_by_distance.items())
    ]


def distance_blocks(changes: Sequence[Changes]) -> list[Block]:
    """A table and a figure of change against distance; empty if no model is pruned."""
    several_components = any(len(model.components) > 1 for model in changes)
    lines = [
        (f"{model.label} {component}" if several_components else model.label, component, rows)
        for model in changes
        for component, values in model.components.items()
        if (rows := by_distance(values))
    ]
    if not lines:
        return []
    table = Table(
        caption="Mean change by the distance from the pruned heads, in layers:",
        columns=[
            *(Column("model"), Column("component"), Column("distance")),
            Column("layers", lambda layers: ", ".join(map(str, layers))),
            *(Column("heads"), Column("mean", "{:.3e}".format), Column("sd", "{:.1e}".format)),
        ],
        rows=[
            [
                *(label, component, row.distance, row.layers),
                *(row.change.n, row.change.mean, row.change.sd),
            ]
            for label, component, rows in lines
            for row in rows
        ],
    )
    names = ", ".join(label for label, _, _ in lines)
    figure = Figure(
        name="distances",
        draw=lambda: _draw([(label, rows) for label, _, rows in lines]),
        alt="Mean change of the remaining heads against the distance of their layer from the "
        f"pruned heads, one line a model: {names}.",
        caption="Change against distance from the pruned heads: mean and standard deviation over "
        "the remaining heads at each distance.",
    )
    return [table, figure]


def distance_note() -> str:
    """The definition of the distance, for the notes below the tables."""
    return (
        "distance: the number of layers between a head and the nearest layer with a pruned head of "
        "the same component; 0 in such a layer. heads: the number of heads that remain at this "
        "distance. sd: the standard deviation over these heads."
    )


def _draw(lines: Sequence[tuple[str, Sequence[AtDistance]]]) -> Drawing:
    from matplotlib import pyplot
    from matplotlib.ticker import MaxNLocator

    figure, axes = pyplot.subplots(figsize=(7, 5.5), layout="constrained")
    # Points at one distance stand beside each other, so that their error bars do not overlap.
    step = 0.5 / len(lines)
    for number, (label, rows) in enumerate(lines):
        offset = step * (number - (len(lines) - 1) / 2)
        axes.errorbar(
            [row.distance + offset for row in rows],
            [row.change.mean for row in rows],
            yerr=[math.nan if row.change.sd is None else row.change.sd for row in rows],
            **line_style(number, with_dark=True),
            capsize=3,
            label=label,
        )
    axes.set_xlabel("distance from the nearest layer with a pruned head (layers)")
    axes.set_ylabel("mean |after - before| of W_q, W_k, W_v")
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.ticklabel_format(axis="y", style="scientific", scilimits=(-3, 4))
    figure.legend(frameon=False, loc="outside lower center", ncols=3, fontsize=11)
    return figure
