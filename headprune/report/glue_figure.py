"""The figure of a GLUE study: each task's metric against the share pruned, and by layers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from headprune.report.drawing import (
    AMBER,
    BLUE,
    GREEN,
    GREY,
    ORANGE,
    PURPLE,
    SKY,
    draw_level,
    over_seeds,
    save_drawing,
)
from headprune.report.glue_table import ACCURACY, GlueTable, Row

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MARKERS = "os^vPX<>*h"
_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER)
_WAYS = 4
"""So many ways to prune have room in the legend of a figure that is as high as its panels."""
_PAPER_LABEL = "change that the paper reports (BERT-base),\nfrom the control's level here"


def save_figures(table: GlueTable, *, png: Path, svg: Path) -> None:
    """Draw the table and write it as PNG (150 dots an inch) and SVG."""
    save_drawing(lambda: draw(table), png=png, svg=svg)


def draw(table: GlueTable) -> Figure:
    """A column of panels for each task: above the percentages, below the other ways to prune."""
    from matplotlib import pyplot

    drawn = [row for row in table.rows if row.requested_percent is not None]
    named = [row for row in table.rows if row.requested_percent is None]
    labels = list(dict.fromkeys(row.label for row in named))
    heights = [*([4.0] if drawn else []), *([0.8 + 0.32 * len(labels)] if named else [])] or [4.0]
    more_ways = max(0, len(_series(table, table.rows)) - _WAYS)
    figure, panels = pyplot.subplots(
        len(heights),
        len(table.tasks),
        figsize=(2.2 + 4.0 * len(table.tasks), 1.8 + sum(heights) + 0.6 * more_ways),
        height_ratios=heights,
        squeeze=False,
        layout="constrained",
    )
    for place, task in enumerate(table.tasks):
        above, below = panels[0][place], panels[-1][place]
        above.set_title(task)
        if drawn or not named:
            _by_percent(above, table, drawn, task=task)
        if named:
            _by_label(below, table, named, labels=labels, task=task)
            if place:
                below.set_yticklabels([])
    figure.suptitle(table.title)
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
        ncols=min(len(handles), len(table.tasks)),
    )
    return figure


def _by_percent(axes: Axes, table: GlueTable, rows: Sequence[Row], *, task: str) -> None:
    _control(axes, table, task=task)
    for number, (name, mine) in enumerate(_series(table, rows)):
        marker, colour = _style(number)
        there = [(row.percent, row.cells[task]) for row in mine if task in row.cells]
        if not there:
            continue
        axes.errorbar(
            [percent for percent, _ in there],
            [cell.value.mean for _, cell in there],
            yerr=[cell.value.sd or 0.0 for _, cell in there],
            color=colour,
            marker=marker,
            capsize=4,
            label=over_seeds(name, (cell.value for _, cell in there)),
        )
        for percent, cell in there:
            axes.plot([percent] * len(cell.values), cell.values, marker, color=colour, alpha=0.35)
    start = _control_mean(table, task=task)
    known = {
        row.percent: row.cells[task].paper_delta or 0.0
        for row in rows
        if task in row.cells and row.cells[task].paper_delta is not None
    }
    if known and start is not None:
        axes.plot(
            [0.0, *known],
            [start, *(start + delta for delta in known.values())],
            color=GREY,
            linestyle="--",
            marker="D",
            fillstyle="none",
            label=_PAPER_LABEL,
        )
    axes.set_xlabel("attention heads pruned (%)")
    axes.set_ylabel(_metric(table, task))
    axes.set_xlim(-3, 103)


def _by_label(
    axes: Axes, table: GlueTable, rows: Sequence[Row], *, labels: Sequence[str], task: str
) -> None:
    percents = {row.label: row.percent for row in rows}
    axes.set_yticks(range(len(labels)), [f"{label}  ({percents[label]:.0f}%)" for label in labels])
    axes.set_ylim(len(labels) - 0.5, -0.5)
    if not any(task in row.cells for row in rows):
        axes.set_xticks([])
        axes.text(0.5, 0.5, "not measured", ha="center", va="center", transform=axes.transAxes)
        return
    axes.set_xlabel(_metric(table, task))
    _control(axes, table, task=task, upright=True)
    series = _series(table, rows)
    for number, (name, mine) in enumerate(series):
        marker, colour = _style(number)
        # Side by side, so that none hides another.
        shift = 0.4 * ((number + 0.5) / len(series) - 0.5)
        there = [
            (labels.index(row.label) + shift, row.cells[task]) for row in mine if task in row.cells
        ]
        if not there:
            continue
        for place, cell in there:
            axes.plot(cell.values, [place] * len(cell.values), marker, color=colour, alpha=0.35)
        axes.errorbar(
            [cell.value.mean for _, cell in there],
            [place for place, _ in there],
            xerr=[cell.value.sd or 0.0 for _, cell in there],
            color=colour,
            fmt=marker,
            capsize=4,
            label=over_seeds(name, (cell.value for _, cell in there)),
        )
    start = _control_mean(table, task=task)
    known = {
        row.label: row.cells[task].paper_delta or 0.0
        for row in rows
        if task in row.cells and row.cells[task].paper_delta is not None
    }
    if known and start is not None:
        axes.plot(
            [start + delta for delta in known.values()],
            [labels.index(label) for label in known],
            "D",
            color=GREY,
            fillstyle="none",
            label=_PAPER_LABEL,
        )


def _series(table: GlueTable, rows: Sequence[Row]) -> list[tuple[str, list[Row]]]:
    """The rows by how they are pruned; over the whole table a way keeps its place and colour."""
    ways = dict.fromkeys((row.kind, row.form) for row in table.rows)
    return [
        (
            f"{form}, not fine-tuned" if kind == "before-finetune" else form,
            [row for row in rows if (row.kind, row.form) == (kind, form)],
        )
        for kind, form in ways
    ]


def _style(number: int) -> tuple[str, str]:
    """The marker and colour of a way to prune."""
    return _MARKERS[number % len(_MARKERS)], _COLOURS[number % len(_COLOURS)]


def _metric(table: GlueTable, task: str) -> str:
    metric = table.tasks[task].metric
    return f"{metric.replace('_', ' ')} ({'%' if metric == ACCURACY else 'x 100'})"


def _control(axes: Axes, table: GlueTable, *, task: str, upright: bool = False) -> None:
    if table.control and task in table.control.cells:
        value = table.control.cells[task].value
        draw_level(axes, value, label="control: not pruned", linestyle="--", upright=upright)


def _control_mean(table: GlueTable, *, task: str) -> float | None:
    if table.control is None or task not in table.control.cells:
        return None
    return table.control.cells[task].value.mean
