"""The paper's figure 1: the change against the share of heads pruned, of all settings at once."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from headprune.components import HEADS
from headprune.report.document import Block, Figure, Section
from headprune.report.drawing import AMBER, BLUE, DARK, GREEN, GREY, MARKERS, ORANGE, PURPLE, SKY
from headprune.report.page.material import StudyResult
from headprune.report.paper import SOURCE, figure_1
from headprune.report.table import Cell, Row
from headprune.results.signature import fields_of
from headprune.results.tasks import TRANSLATION
from headprune.wording import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Drawing

_COLOURS = (BLUE, ORANGE, GREEN, PURPLE, SKY, AMBER, DARK)
_PAPER_MARKERS = "osD^v<"


@dataclass
class _Curve:
    """One setting: for each percentage, the change and its deviation, None with one seed."""

    label: str
    points: list[tuple[float, float, float | None]] = field(default_factory=list)


def drops(studies: Sequence[StudyResult]) -> list[Block]:
    """A section with figure 1; empty where no heads were drawn by percentage."""
    lengths: dict[str, set[str]] = {}
    for study in studies:
        for row in filter(_is_drawn, study.table.rows):
            for task, cell in row.cells.items():
                lengths.setdefault(task, set()).add(_length(cell))
    by_length = {task for task, names in lengths.items() if len(names) > 1}
    curves = [
        curve
        for study in studies
        for curve in _curves(study, several=len(studies) > 1, by_length=by_length)
    ]
    if not curves:
        return []
    translation = any(TRANSLATION in study.table.tasks for study in studies)
    glue = any(task != TRANSLATION for study in studies for task in study.table.tasks)
    papers = {
        label: points
        for label, points in figure_1().items()
        if (translation and label.startswith("EN-")) or (glue and not label.startswith("EN-"))
    }
    words = "; ".join(
        f"{curve.label}: "
        + ", ".join(f"{percent:g}% {change:+z.2f}" for percent, change, _ in curve.points)
        for curve in curves
    )
    one_seed = any(sd is None for curve in curves for _, _, sd in curve.points)
    bars = "bars: standard deviation over seeds" + (", none where there is one" if one_seed else "")
    figure = Figure(
        name="drops",
        draw=lambda: _draw(curves, papers),
        alt=f"Change against the share of heads pruned at random. {words}.",
        caption="Heads drawn at random. Change: mean less that of the control, in points of BLEU, "
        f"accuracy or the task's metric; {bars}. Where heads of some "
        "components alone are pruned, the share is that of their heads. Grey and dashed: "
        f"{SOURCE}, tables 1 and 4.",
    )
    return [Section(title="Change against the share pruned (figure 1)", blocks=[figure])]


def _curves(study: StudyResult, *, several: bool, by_length: Collection[str]) -> list[_Curve]:
    """The curves of a study.

    Args:
        several: name the study, since the figure has several.
        by_length: tasks of which models were fine-tuned for different lengths, which are named.
    """
    curves: dict[tuple[str, ...], _Curve] = {}
    forms = {row.form for row in study.table.rows if _is_drawn(row)}
    for row in study.table.rows:
        if not _is_drawn(row):
            continue
        for task, cell in row.cells.items():
            records = study.records_of(row, task)
            if cell.delta is None or not all(each.plan.prunes_heads_alone for each in records):
                continue
            components, percent = _share(study, row, task)
            parts = [
                *([study.title] if several else []),
                *([] if task == TRANSLATION and several else [_name(task)]),
                *([row.form] if len(forms) > 1 else []),
                *([components] if components else []),
                *([f"fine-tuned for {_length(cell)}"] if task in by_length else []),
            ]
            key = (task, row.form, components, _length(cell))
            curve = curves.setdefault(key, _Curve(", ".join(parts)))
            curve.points.append((percent, cell.delta, cell.value.sd))
    for curve in curves.values():
        curve.points.sort(key=lambda point: point[:2])
    return list(curves.values())


def _is_drawn(row: Row) -> bool:
    """Tell if the heads were drawn at random to a percentage, and the models fine-tuned."""
    fields = fields_of(row.signature)
    # The paper's 87% is one head in every layer, and is named so in tables.
    has_percent = row.requested_percent is not None or re.fullmatch(r"[\d.]+%", row.label)
    return row.kind == "pruned" and bool(has_percent) and fields.get("select") == "random"


def _length(cell: Cell) -> str:
    """The length of the fine-tuning in words; as in the signature where it is no whole number."""
    name = fields_of(cell.signature).get("finetune", "")
    match = re.fullmatch(r"(\d+)(ep|up)", name)
    return name if match is None else counted(int(match[1]), _NOUNS[match[2]])


_NOUNS = {"ep": "epoch", "up": "update"}


def _share(study: StudyResult, row: Row, task: str) -> tuple[str, float]:
    """The components whose heads are pruned (empty for all), and the share of their heads."""
    records = study.records_of(row, task)
    if not records:
        return "", row.percent
    plan = records[0].plan
    # A plan may leave out components that it does not decide on.
    names = [name for name in HEADS if any(name in each.plan.heads for _, each in study.results)]
    pruned = [
        name
        for name in names
        if name in plan.heads and sum(map(len, plan.kept[name])) < sum(plan.heads[name])
    ]
    if not pruned or pruned == names:
        return "", row.percent
    total = sum(sum(plan.heads[name]) for name in pruned)
    kept = sum(len(heads) for name in pruned for heads in plan.kept[name])
    return f"{' and '.join(pruned)} alone", 100 * (total - kept) / total


def _name(task: str) -> str:
    return "BLEU" if task == TRANSLATION else task


def _draw(curves: Sequence[_Curve], papers: Mapping[str, Sequence[tuple[float, float]]]) -> Drawing:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(6.5, 6.5), layout="constrained")
    axes.axhline(0, color=DARK, linewidth=1)
    for number, (label, points) in enumerate(papers.items()):
        axes.plot(
            [percent for percent, _ in points],
            [change for _, change in points],
            color=GREY,
            linestyle="--",
            linewidth=1,
            marker=_PAPER_MARKERS[number % len(_PAPER_MARKERS)],
            markersize=5,
            fillstyle="none",
            label=f"paper: {label}",
        )
    for number, curve in enumerate(curves):
        axes.errorbar(
            [percent for percent, _, _ in curve.points],
            [change for _, change, _ in curve.points],
            yerr=[math.nan if sd is None else sd for _, _, sd in curve.points],
            color=_COLOURS[number % len(_COLOURS)],
            marker=MARKERS[number % len(MARKERS)],
            linestyle="-" if number < len(_COLOURS) else "-.",
            capsize=3,
            label=curve.label,
        )
    axes.set_xlabel("attention heads pruned (%)")
    axes.set_ylabel("change (points)")
    axes.set_xlim(-3, 103)
    figure.legend(frameon=False, loc="outside lower center", ncols=2, fontsize=11)
    return figure
