"""The figure of a study: BLEU against the share of heads pruned."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headprune.files import atomic_path
from headprune.report.table import Row, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which colour-blind readers can tell apart.
TUNED, UNTUNED, CONTROL, PAPER = "#0072B2", "#D55E00", "#333333", "#009E73"
_STYLE: dict[Any, Any] = {
    "font.size": 12,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "svg.hashsalt": "headprune",  # The same study gives the same file.
}


_PAPER_LABEL = (
    "change in BLEU that the paper reports\n(WMT'14), from the unpruned model's BLEU here"
)


def save_figures(table: Table, *, png: Path, svg: Path) -> None:
    """Draw the table and write it as PNG (150 dots an inch) and SVG."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    with pyplot.style.context("default"), matplotlib.rc_context(_STYLE):
        figure = draw(table)
        for path, options in ((png, {"dpi": 150}), (svg, {"metadata": {"Date": None}})):
            with atomic_path(path) as temporary:
                figure.savefig(temporary, format=path.suffix[1:], bbox_inches="tight", **options)
        pyplot.close(figure)


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
    _curve(above, table.rows, TUNED, _over_seeds("pruned and fine-tuned", table), marker="o")
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
            label=_over_seeds("pruned and fine-tuned", table) if place == 0 else None,
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
    """The unpruned models: a line each, and a band for the control's spread."""
    line = axes.axvline if upright else axes.axhline
    band = axes.axvspan if upright else axes.axhspan
    if table.baseline:
        line(table.baseline.bleu.mean, color=CONTROL, linestyle=":", label="baseline, not pruned")
    if table.control:
        mean, sd = table.control.bleu.mean, table.control.bleu.sd
        line(mean, color=CONTROL, label="control: not pruned, fine-tuned as long")
        if sd is not None:
            band(mean - sd, mean + sd, color=CONTROL, alpha=0.12, linewidth=0)


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


def _over_seeds(what: str, table: Table) -> str:
    numbers = {row.bleu.n for row in table.rows}
    seeds = f"{min(numbers)}" if len(numbers) == 1 else f"{min(numbers)} to {max(numbers)}"
    if numbers == {1}:
        return f"{what} (one seed)"
    return f"{what}: mean and standard deviation,\neach of {seeds} seeds"
