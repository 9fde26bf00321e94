"""The metric against the measured speed, for comparisons that took the time of their models."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headprune.compare.records import Outcomes
from headprune.compare.rows import CONTROL
from headprune.report.document import Block, Figure, Section
from headprune.report.drawing import DARK, MARKERS
from headprune.report.page.material import ComparisonResult

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing


def against_speed(comparison: ComparisonResult) -> list[Block]:
    """A section with the figure; empty where no time was taken."""
    measured = comparison.report.comparison
    if not measured.speedups:
        return []
    outcomes = Outcomes.of(measured)
    moments = ["after", "before"] if outcomes.has_recovered else ["before"]
    speeds = ", ".join(
        f"{percent:g}% pruned {times[0]:.2f} times" for percent, times in measured.speedups.items()
    )
    figure = Figure(
        name="speed",
        draw=lambda: _draw(comparison, outcomes, moments),
        alt=f"{measured.metric} of each score against the speed: {speeds} as fast as the unpruned "
        "model.",
        caption=f"{measured.metric} against the measured speed, as a multiple of the unpruned "
        "model's: medians, bars from the lower to the upper quartile. The speed is that of as many "
        f"random {measured.unit_names}, on the machine of the comparison.",
    )
    return [Section(title="Methods against speed", blocks=[figure])]


def _draw(comparison: ComparisonResult, outcomes: Outcomes, moments: Sequence[str]) -> Drawing:
    from matplotlib import pyplot

    figure, places = pyplot.subplots(
        len(moments), 1, figsize=(6.5, 1.5 + 4 * len(moments)), squeeze=False, layout="constrained"
    )
    for axes, when in zip(places.flat, moments, strict=True):
        _panel(axes, comparison, outcomes, when)
        axes.set_title(comparison.report.comparison.recovery.words(when))
        axes.set_ylabel(comparison.report.comparison.metric)
    places.flat[-1].set_xlabel("speed, times the unpruned model's")
    handles, labels = places.flat[-1].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=3, fontsize=11)
    return figure


def _panel(axes: Axes, comparison: ComparisonResult, outcomes: Outcomes, when: str) -> None:
    from matplotlib import pyplot

    speedups = comparison.report.comparison.speedups
    colours = pyplot.colormaps["tab10"]
    names = [name for name in outcomes.scores if name != "random"]
    for name in [*names, *(["random"] if "random" in outcomes.scores else [])]:
        cells = [
            (speedups[percent], cell.value.mean)
            for percent in outcomes.percents
            if percent in speedups and (cell := outcomes.cell(name, percent, when))
        ]
        number = len(names) if name == "random" else names.index(name)
        axes.errorbar(
            [times[0] for times, _ in cells],
            [value for _, value in cells],
            xerr=[
                [times[0] - times[1] for times, _ in cells],
                [times[2] - times[0] for times, _ in cells],
            ],
            color=DARK if name == "random" else colours(number % 10),
            marker=MARKERS[number % len(MARKERS)],
            linewidth=2.5 if name == "random" else 1.2,
            elinewidth=0.8,
            capsize=2,
            label=name,
        )
    control = outcomes.cell(CONTROL, 0.0, when)
    unpruned = comparison.report.comparison.base if when == "before" else None
    if control is not None and when == "after":
        unpruned = control.value.mean
    if unpruned is not None:
        axes.plot(1.0, unpruned, "*", color=DARK, markersize=12, label="not pruned")
