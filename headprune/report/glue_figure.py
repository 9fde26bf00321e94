"""The figure of a GLUE study: each task's metric against the share pruned, and by layers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from headprune.report.drawing import COLOURS, GREY, draw_level, over_seeds
from headprune.results.labels import UNTRAINED
from headprune.results.metrics import direction, is_low_good
from headprune.results.paper import ACCURACY

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headprune.report.glue import GlueStudy
    from headprune.report.table import Row

_Key = TypeVar("_Key", float, str)

_MARKERS = "os^vPX<>*h"
_WAYS = 4
"""The number of ways to prune that have room in the legend of a figure of its panels' height."""
_PAPER_LABEL = "change that the paper reports (BERT-base),\nfrom the control's level here"


def draw(study: GlueStudy) -> Figure:
    """Draw two panels per task: rows with a percentage above, all other rows below."""
    from matplotlib import pyplot

    drawn = [row for row in study.rows if row.requested_percent is not None]
    named = [row for row in study.rows if row.requested_percent is None]
    labels = list(dict.fromkeys(row.label for row in named))
    heights = [*([4.0] if drawn else []), *([0.8 + 0.32 * len(labels)] if named else [])] or [4.0]
    more_ways = max(0, len(_series(study, study.rows)) - _WAYS)
    figure, panels = pyplot.subplots(
        len(heights),
        len(study.table.tasks),
        figsize=(2.2 + 4.0 * len(study.table.tasks), 1.8 + sum(heights) + 0.6 * more_ways),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for place, task in enumerate(study.table.tasks):
        above, below = panels[0][place], panels[-1][place]
        above.set_title(task)
        if drawn or not named:
            _by_percent(above, study, drawn, task=task)
        if named:
            _by_label(below, study, named, labels=labels, task=task)
            if place:
                below.set_yticklabels([])
    figure.suptitle(study.title)
    handles: dict[str, Artist] = {}
    for axes in figure.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            handles.setdefault(label, handle)
    # Below the axes, where it covers no point whatever the outcome is.
    figure.legend(
        handles.values(),
        handles.keys(),
        frameon=False,
        loc="outside lower center",
        fontsize=11,
        ncols=min(len(handles), len(study.table.tasks)),
    )
    return figure


def _by_percent(axes: Axes, study: GlueStudy, rows: Sequence[Row], *, task: str) -> None:
    _control(axes, study, task=task)
    for number, (name, own_rows) in enumerate(_series(study, rows)):
        marker, colour = _style(number)
        points = [(row.percent, row.cells[task]) for row in own_rows if task in row.cells]
        if not points:
            continue
        axes.errorbar(
            [percent for percent, _ in points],
            [cell.value.mean for _, cell in points],
            yerr=[cell.value.sd or 0.0 for _, cell in points],
            color=colour,
            marker=marker,
            capsize=4,
            label=over_seeds(name, (cell.value for _, cell in points)),
        )
        for percent, cell in points:
            axes.plot([percent] * len(cell.values), cell.values, marker, color=colour, alpha=0.35)
    start = _control_mean(study, task=task)
    deltas = _paper_deltas(rows, lambda row: row.percent, task=task)
    if deltas and start is not None:
        axes.plot(
            [0.0, *deltas],
            [start, *(start + delta for delta in deltas.values())],
            color=GREY,
            linestyle="--",
            marker="D",
            fillstyle="none",
            label=_PAPER_LABEL,
        )
    axes.set_xlabel(study.table.share_label)
    axes.set_ylabel(_metric(study, task))
    axes.set_xlim(-3, 103)


def _by_label(
    axes: Axes, study: GlueStudy, rows: Sequence[Row], *, labels: Sequence[str], task: str
) -> None:
    percents = {row.label: row.percent for row in rows}
    axes.set_yticks(range(len(labels)), [f"{label}  ({percents[label]:.0f}%)" for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    if not any(task in row.cells for row in rows):
        axes.set_xticks([])
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes)
        return
    axes.set_xlabel(_metric(study, task))
    _control(axes, study, task=task, upright=True)
    series = _series(study, rows)
    for number, (name, own_rows) in enumerate(series):
        marker, colour = _style(number)
        # Side by side, so that none hides another.
        shift = 0.4 * ((number + 0.5) / len(series) - 0.5)
        points = [
            (labels.index(row.label) + shift, row.cells[task])
            for row in own_rows
            if task in row.cells
        ]
        if not points:
            continue
        for place, cell in points:
            axes.plot(cell.values, [place] * len(cell.values), marker, color=colour, alpha=0.35)
        axes.errorbar(
            [cell.value.mean for _, cell in points],
            [place for place, _ in points],
            xerr=[cell.value.sd or 0.0 for _, cell in points],
            color=colour,
            fmt=marker,
            capsize=4,
            label=over_seeds(name, (cell.value for _, cell in points)),
        )
    start = _control_mean(study, task=task)
    deltas = _paper_deltas(rows, lambda row: row.label, task=task)
    if deltas and start is not None:
        axes.plot(
            [start + delta for delta in deltas.values()],
            [labels.index(label) for label in deltas],
            "D",
            color=GREY,
            fillstyle="none",
            label=_PAPER_LABEL,
        )


def _paper_deltas(
    rows: Sequence[Row], key: Callable[[Row], _Key], *, task: str
) -> dict[_Key, float]:
    """The paper's differences from its control, by percentage or by label."""
    return {
        key(row): delta
        for row in rows
        if task in row.cells and (delta := row.cells[task].paper_delta) is not None
    }


def _series(study: GlueStudy, rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """Group rows by the way of pruning; each way has one colour in the whole study."""
    ways = dict.fromkeys((row.kind, row.form) for row in study.rows)
    return [
        (
            form + UNTRAINED.get(kind, ""),
            [row for row in rows if (row.kind, row.form) == (kind, form)],
        )
        for kind, form in ways
    ]


def _style(number: int) -> tuple[str, str]:
    """The marker and colour of a way to prune."""
    return _MARKERS[number % len(_MARKERS)], COLOURS[number % len(COLOURS)]


def _metric(study: GlueStudy, task: str) -> str:
    metric = study.table.tasks[task].metric
    if is_low_good(metric):
        return f"{metric}{direction(metric)}"
    return f"{metric.replace('_', ' ')} ({'%' if metric == ACCURACY else 'x 100'})"


def _control(axes: Axes, study: GlueStudy, *, task: str, upright: bool = False) -> None:
    if study.control and task in study.control.cells:
        value = study.control.cells[task].value
        draw_level(axes, value, label="control: not pruned", linestyle="--", upright=upright)


def _control_mean(study: GlueStudy, *, task: str) -> float | None:
    if study.control is None or task not in study.control.cells:
        return None
    return study.control.cells[task].value.mean
