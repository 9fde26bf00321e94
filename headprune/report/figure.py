"""The figure of a study: BLEU against the share of heads pruned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from headprune.report.drawing import BLUE, GREEN, ORANGE, draw_level, over_seeds, save_drawing
from headprune.report.table import Row, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

TUNED, UNTUNED, PAPER = BLUE, ORANGE, GREEN
_PAPER_LABEL = (
    "change in BLEU that the paper reports\n(WMT'14), from the unpruned model's BLEU here"
)


def save_figures(table: Table, *, png: Path, svg: Path) -> None:
    """Draw the table and write it as PNG (150 dots an inch) and SVG."""
    save_drawing(lambda: draw(table), png=png, svg=svg)


def draw(table: Table) -> Figure:
    """BLEU against percent; where several rows share a percentage, one line a row instead."""
    percents = [round(row.percent) for row in table.rows]
    if len(set(percents)) == len(percents):
        return _by_percent(table)
    return _by_row(table)


def _by_percent(table: Table) -> Figure:
    from matplotlib import pyplot

    untuned = [row for row in table.rows if row.before]
    if untuned:
        # A scale of its own: right after pruning BLEU falls to nothing, and on one scale with
        # that the differences after fine-tuning could not be seen.
        figure, (above, below) = pyplot.subplots(
            2, sharex=True, figsize=(8, 9), height_ratios=(3, 2), layout="constrained"
        )
        _curve(below, untuned, UNTUNED, "right after pruning", marker="s", before=True)
        _curve(below, table.rows, TUNED, None, marker="o", points=False)
        below.set_ylabel("BLEU")
        below.set_ylim(bottom=0)
        lowest = below
    else:
        figure, above = pyplot.subplots(figsize=(8, 6), layout="constrained")
        lowest = above
    _levels(above, table)
    if table.rows:
        _curve(above, table.rows, TUNED, _tuned(table), marker="o")
    known = [row for row in table.rows if row.paper_delta is not None]
    if known and table.compared_with:
        start = table.compared_with.bleu.mean
        above.plot(
            [0.0, *(row.percent for row in known)],
            [start, *(start + (row.paper_delta or 0.0) for row in known)],
            color=PAPER,
            linestyle="--",
            alpha=0.7,
            label=_PAPER_LABEL,
        )
    above.set_ylabel("BLEU")
    figure.suptitle(table.title)
    # Below the axes, where it covers no point whatever the outcome is.
    figure.legend(frameon=False, loc="outside lower center", fontsize=11)
    lowest.set_xlabel("attention heads pruned (%)")
    lowest.set_xlim(-3, 103)
    return figure


def _by_row(table: Table) -> Figure:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(10, 2.6 + 0.36 * len(table.rows)), layout="constrained")
    _levels(axes, table, upright=True)
    labelled = False
    for place, row in enumerate(table.rows):
        axes.plot(row.values, [place] * len(row.values), "o", color=TUNED, alpha=0.35)
        axes.errorbar(
            row.bleu.mean,
            place,
            xerr=row.bleu.sd,
            fmt="o",
            color=TUNED,
            capsize=4,
            label=_tuned(table) if place == 0 else None,
        )
        if row.paper_delta is not None and table.compared_with:
            axes.plot(
                table.compared_with.bleu.mean + row.paper_delta,
                place,
                "D",
                color=PAPER,
                fillstyle="none",
                label=None if labelled else _PAPER_LABEL,
            )
            labelled = True
    labels = [
        row.label if "%" in row.label else f"{row.label}  ({row.percent:.0f}%)"
        for row in table.rows
    ]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("BLEU")
    figure.suptitle(table.title)
    figure.legend(frameon=False, loc="outside lower center", fontsize=11)
    return figure


def _levels(axes: Axes, table: Table, *, upright: bool = False) -> None:
    """The unpruned models, which the pruned ones are compared with."""
    if table.baseline:
        draw_level(
            axes,
            table.baseline.bleu,
            label="baseline, not pruned",
            linestyle=":",
            upright=upright,
        )
    if table.control:
        draw_level(
            axes,
            table.control.bleu,
            label="control: not pruned, fine-tuned as long",
            upright=upright,
        )


def _curve(
    axes: Axes,
    rows: tuple[Row, ...] | list[Row],
    colour: str,
    label: str | None,
    *,
    marker: str,
    before: bool = False,
    points: bool = True,
) -> None:
    spreads = [row.before if before and row.before else row.bleu for row in rows]
    axes.errorbar(
        [row.percent for row in rows],
        [value.mean for value in spreads],
        yerr=[value.sd or 0.0 for value in spreads] if points else None,
        color=colour,
        marker=marker,
        capsize=4 if points else 0,
        label=label,
    )
    if points:
        for row in rows:
            values = row.before_values if before else row.values
            axes.plot([row.percent] * len(values), values, marker, color=colour, alpha=0.35)


def _tuned(table: Table) -> str:
    return over_seeds("pruned and fine-tuned", [row.bleu for row in table.rows])
