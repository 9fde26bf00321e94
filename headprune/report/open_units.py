"""The figure of learned gates that close over time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headprune.components import COMPONENT_NAMES, unit_name
from headprune.gates.history import OpenUnits
from headprune.report.drawing import AMBER, BLUE, GREEN, GREY, ORANGE, PURPLE, SKY

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COLOURS = dict(ES=BLUE, ED=ORANGE, DS=GREEN, EF=SKY, DF=PURPLE, EL=AMBER, DL=GREY)


def draw_open_units(history: Sequence[OpenUnits], *, before: Mapping[str, int]) -> Figure:
    """Draw the expected share of open units of each component over the updates.

    Args:
        history: the lines of the log.
        before: the number of units with gates of each component.
    """
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(7, 4.5), layout="constrained")
    for component, units in before.items():
        points = [
            (each.update, 100 * each.expected[component] / units)
            for each in history
            if component in each.expected
        ]
        axes.plot(
            [update for update, _ in points],
            [percent for _, percent in points],
            color=_COLOURS[component],
            label=f"{component}: {COMPONENT_NAMES[component]}, {units} {unit_name(component)}s",
        )
    axes.set_xlabel("updates")
    axes.set_ylabel("expected open units (%)")
    axes.set_ylim(-2, 102)
    figure.legend(frameon=False, loc="outside lower center", fontsize=11)
    return figure
