"""The metric against the measured speed, one line a method."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headprune.compare.records import Outcomes
from headprune.compare.rows import CONTROL
from headprune.recovery.kinds import BEFORE, is_untrained, words_for
from headprune.report.drawing import DARK, line_style, scale_logarithmically
from headprune.results.metrics import RATIOS, direction

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headprune.compare.comparison import Comparison


def draw_speed(comparison: Comparison, outcomes: Outcomes) -> Figure:
    """Plot the metric against the speed, a panel for each recovery and one without."""
    from matplotlib import pyplot

    moments = [*outcomes.recoveries, BEFORE]
    figure, places = pyplot.subplots(
        len(moments), 1, figsize=(6.5, 1.5 + 4 * len(moments)), squeeze=False, layout="constrained"
    )
    for axes, moment in zip(places.flat, moments, strict=True):
        _panel(axes, comparison, outcomes, moment)
        axes.set_title(words_for(moment))
        axes.set_ylabel(f"{comparison.metric}{direction(comparison.metric)}")
        if comparison.metric in RATIOS:
            scale_logarithmically(axes)
    places.flat[-1].set_xlabel("speed, times the unpruned model's")
    handles, labels = places.flat[-1].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=3, fontsize=11)
    return figure


def _panel(axes: Axes, comparison: Comparison, outcomes: Outcomes, moment: str) -> None:
    speedups = comparison.speedups
    names = [name for name in outcomes.scores if name != "random"]
    for name in [*names, *(["random"] if "random" in outcomes.scores else [])]:
        timed = speedups.get(name, speedups["random"])
        cells = [
            (timed[percent], cell.value)
            for percent in outcomes.percents
            if percent in timed and (cell := outcomes.cell(name, percent, moment))
        ]
        style = line_style(len(names) if name == "random" else names.index(name))
        if name == "random":
            style |= {"color": DARK, "linestyle": "-"}
        axes.errorbar(
            [times[0] for times, _ in cells],
            [value.mean for _, value in cells],
            yerr=[value.sd or 0.0 for _, value in cells],
            xerr=[
                [times[0] - times[1] for times, _ in cells],
                [times[2] - times[0] for times, _ in cells],
            ],
            **style,
            linewidth=2.5 if name == "random" else 1.2,
            elinewidth=0.8,
            capsize=2,
            label=name,
        )
    unpruned = _unpruned(comparison, outcomes, moment)
    if unpruned is not None:
        axes.plot(1.0, unpruned, "*", color=DARK, markersize=12, label="not pruned")


def _unpruned(comparison: Comparison, outcomes: Outcomes, moment: str) -> float | None:
    """The metric of the model with all units: after the same training, if there was one."""
    if is_untrained(moment):
        return comparison.base
    control = outcomes.cell(CONTROL, 0.0, moment)
    return None if control is None else control.value.mean
