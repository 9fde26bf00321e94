"""The figure of a study: BLEU against the share of heads pruned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from headprune.report.drawing import BLUE, GREEN, ORANGE, draw_level, over_seeds
from headprune.results.labels import UNTRAINED

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from headprune.report.translation import Line, TranslationStudy

TUNED, UNTUNED, PAPER = BLUE, ORANGE, GREEN
_PAPER_LABEL = (
    "change in BLEU that the paper reports\n(WMT'14), from the unpruned model's BLEU here"
)


def draw(study: TranslationStudy) -> Figure:
    """Plot BLEU against the percentage, or by row if several rows share a percentage."""
    percents = [round(line.row.percent) for line in study.lines]
    refitted = any(line.row.kind == "refitted" for line in study.lines)
    if len(set(percents)) == len(percents) and not refitted:
        return _by_percent(study)
    return _by_row(study)


def _by_percent(study: TranslationStudy) -> Figure:
    from matplotlib import pyplot

    untuned = [line for line in study.lines if line.right_after]
    tuned = _tuned_lines(study)
    if untuned:
        # A scale of its own: right after pruning BLEU falls to nothing, and on one scale with
        # that the differences after fine-tuning could not be seen.
        figure, (above, below) = pyplot.subplots(
            2, sharex=True, figsize=(8, 9), height_ratios=(3, 2), layout="constrained"
        )
        _curve(below, untuned, UNTUNED, "right after pruning", marker="s", before=True)
        if tuned:
            _curve(below, tuned, TUNED, None, marker="o", points=False)
        below.set_ylabel("BLEU")
        below.set_ylim(bottom=0)
        lowest = below
    else:
        figure, above = pyplot.subplots(figsize=(8, 6), layout="constrained")
        lowest = above
    _levels(above, study)
    if tuned:
        _curve(above, tuned, TUNED, _tuned(study), marker="o")
    known = [line for line in study.lines if line.cell.paper_delta is not None]
    if known and study.compared_with:
        start = study.compared_with.bleu.mean
        above.plot(
            [0.0, *(line.row.percent for line in known)],
            [start, *(start + (line.cell.paper_delta or 0.0) for line in known)],
            color=PAPER,
            linestyle="--",
            alpha=0.7,
            label=_PAPER_LABEL,
        )
    above.set_ylabel("BLEU")
    figure.suptitle(study.title)
    # Below the axes, where it covers no point whatever the outcome is.
    figure.legend(frameon=False, loc="outside lower center", fontsize=11)
    lowest.set_xlabel(study.table.share_label)
    lowest.set_xlim(-3, 103)
    return figure


def _by_row(study: TranslationStudy) -> Figure:
    from matplotlib import pyplot

    height = 2.6 + 0.36 * len(study.lines)
    figure, axes = pyplot.subplots(figsize=(10, height), layout="constrained")
    _levels(axes, study, upright=True)
    labelled = False
    tuned = _tuned_lines(study)
    for place, line in enumerate(study.lines):
        is_tuned = line in tuned
        colour = TUNED if is_tuned else UNTUNED
        axes.plot(line.cell.values, [place] * len(line.cell.values), "o", color=colour, alpha=0.35)
        axes.errorbar(
            line.bleu.mean,
            place,
            xerr=line.bleu.sd,
            fmt="o",
            color=colour,
            capsize=4,
            # The names of the other rows say that they were not fine-tuned.
            label=_tuned(study) if is_tuned and line is tuned[0] else None,
        )
        if line.cell.paper_delta is not None and study.compared_with:
            axes.plot(
                study.compared_with.bleu.mean + line.cell.paper_delta,
                place,
                "D",
                color=PAPER,
                fillstyle="none",
                label=None if labelled else _PAPER_LABEL,
            )
            labelled = True
    labels = [
        line.name if "%" in line.row.label else f"{line.name}  ({line.row.percent:.0f}%)"
        for line in study.lines
    ]
    axes.set_yticks(range(len(labels)), labels)
    axes.set_ylim(len(labels) - 0.5, -0.5)
    axes.set_xlabel("BLEU")
    figure.suptitle(study.title)
    figure.legend(frameon=False, loc="outside lower center", fontsize=11)
    return figure


def _levels(axes: Axes, study: TranslationStudy, *, upright: bool = False) -> None:
    """The unpruned models, which the pruned ones are compared with."""
    if study.baseline:
        draw_level(
            axes,
            study.baseline.bleu,
            label="baseline, not pruned",
            linestyle=":",
            upright=upright,
        )
    if study.control:
        draw_level(
            axes,
            study.control.bleu,
            label="control: not pruned, fine-tuned as long",
            upright=upright,
        )


def _curve(
    axes: Axes,
    lines: Sequence[Line],
    colour: str,
    label: str | None,
    *,
    marker: str,
    before: bool = False,
    points: bool = True,
) -> None:
    cells = [line.right_after if before and line.right_after else line.cell for line in lines]
    spreads = [cell.value for cell in cells]
    axes.errorbar(
        [line.row.percent for line in lines],
        [value.mean for value in spreads],
        yerr=[value.sd or 0.0 for value in spreads] if points else None,
        color=colour,
        marker=marker,
        capsize=4 if points else 0,
        label=label,
    )
    if points:
        for line, cell in zip(lines, cells, strict=True):
            values = cell.values
            axes.plot([line.row.percent] * len(values), values, marker, color=colour, alpha=0.35)


def _tuned_lines(study: TranslationStudy) -> list[Line]:
    return [line for line in study.lines if line.row.kind not in UNTRAINED]


def _tuned(study: TranslationStudy) -> str:
    return over_seeds("pruned and fine-tuned", [line.bleu for line in _tuned_lines(study)])
