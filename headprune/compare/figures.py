"""The figures of a comparison: curves against the share of heads pruned, and correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from headprune.budget import SPEED
from headprune.compare.comparison import Comparison
from headprune.compare.correlations import Correlation
from headprune.compare.records import Outcomes
from headprune.compare.rows import CONTROL
from headprune.recovery.kinds import BEFORE, is_untrained, words_for
from headprune.report.drawing import BLUE, DARK, draw_level, line_style, scale_logarithmically
from headprune.results.metrics import RATIOS, direction
from headprune.results.stats import Spread

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_IN_A_ROW = 3
"""The largest number of panels in a row; more would be too small to read on a page."""


def draw_curves(comparison: Comparison, outcomes: Outcomes, *, title: str) -> Figure:
    """Plot the metric against the percentage, one line per score, before and after the recovery.

    Panels of trained models have one scale, so that trainings can be compared.
    """
    from matplotlib import pyplot

    panels = [*outcomes.recoveries, BEFORE]
    columns = len(panels) if len(panels) <= _IN_A_ROW else 2
    rows = -(-len(panels) // columns)
    figure, places = pyplot.subplots(
        *(rows, columns),
        figsize=(1.5 + 5.5 * columns, 6 if rows == 1 else 1 + 4.5 * rows),
        squeeze=False,
        layout="constrained",
    )
    for axes in places.flat[len(panels) :]:
        axes.axis("off")
    first_trained: Axes | None = None
    for axes, moment in zip(places.flat, panels, strict=False):
        if not is_untrained(moment):
            if first_trained is None:
                first_trained = axes
            else:
                axes.sharey(first_trained)
        _panel(axes, comparison, outcomes, moment)
        if comparison.metric in RATIOS:
            scale_logarithmically(axes)
        axes.set_title(words_for(moment))
        axes.set_xlabel(_amount(comparison))
    for axes in places[:, 0]:
        axes.set_ylabel(f"{comparison.metric}{direction(comparison.metric)}")
    handles, labels = places.flat[len(panels) - 1].get_legend_handles_labels()
    figure.legend(handles, labels, frameon=False, loc="outside lower center", ncols=4, fontsize=11)
    figure.suptitle(title)
    return figure


def _amount(comparison: Comparison) -> str:
    """The requested amount, such as ``heads of ED pruned (%)``."""
    if comparison.measure == SPEED:
        return f"{comparison.heading}, times the unpruned model's"
    return f"{_pruned_quantity(comparison)} pruned (%)"


def _pruned_quantity(comparison: Comparison) -> str:
    """The quantity that percentages are shares of, such as ``heads of ED``."""
    units = "attention heads"
    if comparison.components is not None:
        units = f"{comparison.unit_names} of {', '.join(comparison.components)}"
    return units if comparison.measure == "units" else f"{comparison.quantity} of {units}"


def _panel(axes: Axes, comparison: Comparison, outcomes: Outcomes, moment: str) -> None:
    percents = sorted(outcomes.percents)
    axes.set_xticks(percents, [f"{percent:g}" for percent in percents])
    if is_untrained(moment):
        level: Spread | None = Spread(comparison.base, None, 1)
    else:
        control = outcomes.cell(CONTROL, 0.0, moment)
        level = None if control is None else control.value
    if level is not None:
        # Its mean alone: the band is random's.
        mean = Spread(level.mean, None, level.n)
        draw_level(axes, mean, label="not pruned", linestyle="--")
    others = [name for name in outcomes.scores if name != "random"]
    for number, name in enumerate(others):
        values = _values(outcomes, name, percents, moment)
        if not values:  # a score whose models were not fine-tuned
            continue
        # Side by side, so that bars of the same percentage can be told apart.
        shift = (0.008 if comparison.measure == SPEED else 0.8) * (number - (len(others) - 1) / 2)
        axes.errorbar(
            [percent + shift for percent in percents],
            [value.mean for value in values],
            yerr=[value.sd or 0.0 for value in values],
            **line_style(number),
            linewidth=1.2,
            capsize=2,
            label=name,
        )
    if random := _values(outcomes, "random", percents, moment):
        _draw_random(axes, percents, random)


def _values(outcomes: Outcomes, score: str, percents: Sequence[float], moment: str) -> list[Spread]:
    """The values of a score at all percentages; empty if one was not measured."""
    cells = [outcomes.cell(score, percent, moment) for percent in percents]
    values = [cell.value for cell in cells if cell is not None]
    return values if len(values) == len(percents) else []


def _draw_random(axes: Axes, percents: Sequence[float], values: Sequence[Spread]) -> None:
    """Draw mean and standard deviation of random heads: a band, or a bar for one percentage.

    Neither of one seed.
    """
    means = [value.mean for value in values]
    margins = [value.sd or 0.0 for value in values]
    band = "random ± standard deviation"
    if len(percents) == 1:
        axes.errorbar(
            percents,
            means,
            yerr=margins,
            marker="o",
            markersize=9,
            color=DARK,
            linewidth=2.5,
            capsize=6,
            label=band if any(margins) else "random",
        )
        return
    axes.plot(percents, means, color=DARK, linewidth=2.5, label="random")
    if any(margins):
        axes.fill_between(
            percents,
            [mean - margin for mean, margin in zip(means, margins, strict=True)],
            [mean + margin for mean, margin in zip(means, margins, strict=True)],
            color=DARK,
            alpha=0.15,
            linewidth=0,
            label=band,
        )


def draw_correlations(
    with_ablation: Mapping[str, Correlation],
    names: Sequence[str],
    among: Sequence[Sequence[float]],
    *,
    title: str,
) -> Figure:
    """Draw the correlations of scores with ablation, with intervals, and with each other."""
    import numpy as np
    from matplotlib import pyplot

    figure, (left, right) = pyplot.subplots(
        1, 2, figsize=(7.5 + 0.55 * len(names), 3 + 0.45 * len(names)), layout="constrained"
    )
    known = {name: each for name, each in with_ablation.items() if each.value == each.value}
    for place, each in enumerate(known.values()):
        left.plot([each.low, each.high], [place, place], color=BLUE, linewidth=2)
        left.plot(each.value, place, "o", color=BLUE)
    left.axvline(0, color=DARK, linewidth=1)
    left.set_yticks(range(len(known)), list(known))
    left.set_ylim(max(1, len(known)) - 0.5, -0.5)  # the first one on top
    left.set_xlim(-1, 1)
    left.set_xlabel("Spearman, 95% interval")
    left.set_title("with the drop by ablation", fontsize=12)
    grid = np.array(among, dtype=float)
    image = right.imshow(grid, cmap="RdBu_r", vmin=-1, vmax=1)
    right.set_xticks(range(len(names)), names, rotation=90)
    right.set_yticks(range(len(names)), names)
    right.grid(False)
    right.set_title("among each other", fontsize=12)
    figure.colorbar(image, ax=right, shrink=0.8)
    figure.suptitle(title)
    return figure
