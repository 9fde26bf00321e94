"""The paper's figure 1: the change against the share of heads pruned, of all settings at once."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import stdev
from typing import TYPE_CHECKING

from headprune.components import HEADS
from headprune.report.document import Block, Figure, Notes, Section
from headprune.report.drawing import DARK, GREY, line_style
from headprune.report.page.material import StudyResult
from headprune.report.table import Cell, Row
from headprune.results.metrics import direction, is_low_good
from headprune.results.pairs import paired_differences
from headprune.results.paper import ACCURACY, SOURCE, figure_1
from headprune.results.signature import fields_of
from headprune.results.tasks import TRANSLATION
from headprune.wording import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_PAPER_MARKERS = "osD^v<"
_OF_THE_PAPER = ("bleu", ACCURACY)
"""The metrics of the paper's tables 1 and 4."""


@dataclass(frozen=True, kw_only=True)
class _Point:
    """A point of a curve: one row of a table.

    Attributes:
        percent: the share of the heads that is pruned.
        change: the difference that tables show.
        error: half of the 95% interval of the difference to the control of the same seed; None
            where there are no two seeds with a control.
        is_single: one seed.
    """

    percent: float
    change: float
    error: float | None
    is_single: bool


@dataclass
class _Curve:
    """The rows of one setting.

    Attributes:
        metric: the name of the metric.
        versus: the kind of the model that changes are differences to.
    """

    title: str
    label: str
    metric: str
    versus: str
    points: list[_Point] = field(default_factory=list)


def drops(studies: Sequence[StudyResult]) -> list[Block]:
    """A section with figure 1; empty where no heads were drawn by percentage.

    Without scipy, which the intervals need, a note says that it is left out.
    """
    try:
        import scipy.special  # noqa: F401
    except ImportError:
        return [Notes(["Figure 1 is left out: it needs scipy (`pip install scipy`)."])]
    lengths: dict[str, set[str]] = {}
    for study in studies:
        for row in filter(_is_drawn, study.table.rows):
            for task, cell in row.cells.items():
                lengths.setdefault(task, set()).add(_length(cell))
    by_length = {task for task, names in lengths.items() if len(names) > 1}
    curves = [curve for study in studies for curve in _curves(study, by_length=by_length)]
    if not curves:
        return []
    _name_by_study(curves)
    translation = any(TRANSLATION in study.table.tasks for study in studies)
    glue = any(task != TRANSLATION for study in studies for task in study.table.tasks)
    papers = {
        label: points
        for label, points in figure_1().items()
        if (translation and label.startswith("EN-")) or (glue and not label.startswith("EN-"))
    }
    words = "; ".join(
        f"{curve.label}: "
        + ", ".join(f"{point.percent:.3g}% {point.change:+z.2f}" for point in curve.points)
        for curve in curves
    )
    figure = Figure(
        name="drops",
        draw=lambda: _draw(curves, papers),
        alt=f"Change against the share of heads pruned at random. {words}.",
        caption=f"Heads drawn at random. Change: mean less that of the {_versus(curves)}, in "
        f"points of BLEU, accuracy or the task's metric{_marks(curves)}. Where heads of some "
        "components alone are pruned, the share is that of their heads. Grey and dashed: "
        f"{SOURCE}, tables 1 and 4.",
    )
    return [Section(title="Change against the share pruned (figure 1)", blocks=[figure])]


def _versus(curves: Sequence[_Curve]) -> str:
    """The unpruned models that the curves' points are compared with, in words."""
    names = {curve.versus for curve in curves}
    if len(names) > 1:
        return "control, or of the baseline where there is none"
    return names.pop()


def _marks(curves: Sequence[_Curve]) -> str:
    """Explain the bars and the hollow points of the figure."""
    paired = [point for curve in curves if curve.versus == "control" for point in curve.points]
    words = []
    if paired:
        words.append(
            "bars: 95% interval over seeds of the difference to the control of the same seed"
        )
    if any(point.is_single for curve in curves for point in curve.points):
        words.append("hollow: one seed")
    if any(point.error is None and not point.is_single for point in paired):
        words.append("without a bar: no two seeds with a control")
    return "".join(f"; {each}" for each in words)


def _curves(study: StudyResult, *, by_length: Collection[str]) -> list[_Curve]:
    """The curves of a study.

    Args:
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
                *([] if task == TRANSLATION else [task]),
                *([row.form] if len(forms) > 1 else []),
                *([components] if components else []),
                *([f"fine-tuned for {_length(cell)}"] if task in by_length else []),
            ]
            key = (task, row.form, components, _length(cell))
            metric = study.table.tasks[task].metric
            versus = "baseline" if study.table.control is None else "control"
            curve = _Curve(title=study.title, label=", ".join(parts), metric=metric, versus=versus)
            point = _point(percent, cell, _control_of(study, task))
            curves.setdefault(key, curve).points.append(point)
    for curve in curves.values():
        curve.points.sort(key=lambda point: (point.percent, point.change))
    return list(curves.values())


def _control_of(study: StudyResult, task: str) -> Cell | None:
    control = study.table.control
    return None if control is None else control.cells.get(task)


def _point(percent: float, cell: Cell, control: Cell | None) -> _Point:
    """The point of a cell: the t-interval of the differences between models of the same seed."""
    is_single = cell.value.n == 1
    differences = [] if control is None else paired_differences(cell.of_seed, control.of_seed)
    n = len(differences)
    assert cell.delta is not None
    if n < 2:
        return _Point(percent=percent, change=cell.delta, error=None, is_single=is_single)
    from headprune.claims.estimate import MeanDifference

    error = stdev(differences) / math.sqrt(n)
    low, high = MeanDifference(effect=0.0, error=error, freedom=n - 1, n=n).interval()
    return _Point(percent=percent, change=cell.delta, error=(high - low) / 2, is_single=is_single)


def _name_by_study(curves: Sequence[_Curve]) -> None:
    """Add the titles of the studies to the labels, where there are several studies."""
    several = len({curve.title for curve in curves}) > 1
    for curve in curves:
        if several or not curve.label:
            curve.label = ", ".join(filter(None, (curve.title, curve.label)))


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


def _draw(curves: Sequence[_Curve], papers: Mapping[str, Sequence[tuple[float, float]]]) -> Drawing:
    """One panel for each metric, with the paper's curves in that of their metric."""
    from matplotlib import pyplot

    metrics = list(dict.fromkeys(curve.metric for curve in curves))
    figure, panels = pyplot.subplots(
        nrows=len(metrics), figsize=(6.5, 1.5 + 4.5 * len(metrics)), layout="constrained"
    )
    for metric, axes in zip(metrics, [panels] if len(metrics) == 1 else panels, strict=True):
        axes.axhline(0, color=DARK, linewidth=1)
        if metric in _OF_THE_PAPER:
            _draw_papers(axes, papers)
        for number, curve in enumerate(curves):
            if curve.metric == metric:
                _draw_curve(axes, curve, number=number)
        axes.set_ylabel(f"change in {_words(metric)}")
        axes.set_xlim(-3, 103)
    axes.set_xlabel("attention heads pruned (%)")
    figure.legend(frameon=False, loc="outside lower center", ncols=2, fontsize=11)
    return figure


def _words(metric: str) -> str:
    """The name of a metric and its unit."""
    if metric == "bleu":
        return "BLEU"
    if is_low_good(metric):
        return f"{metric}{direction(metric)}"
    return f"{metric.replace('_', ' ')} ({'points' if metric == ACCURACY else 'x 100'})"


def _draw_papers(axes: Axes, papers: Mapping[str, Sequence[tuple[float, float]]]) -> None:
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


def _draw_curve(axes: Axes, curve: _Curve, *, number: int) -> None:
    """Draw a curve through the points of several seeds; those of one seed are hollow."""
    style = line_style(number, with_dark=True)
    several = [point for point in curve.points if not point.is_single]
    if several:
        axes.errorbar(
            [point.percent for point in several],
            [point.change for point in several],
            # Nothing is drawn where there is no number.
            yerr=[math.nan if point.error is None else point.error for point in several],
            **style,
            capsize=3,
            label=curve.label,
        )
    single = [point for point in curve.points if point.is_single]
    if single:
        axes.plot(
            [point.percent for point in single],
            [point.change for point in single],
            **{**style, "linestyle": "none"},
            fillstyle="none",
            label=None if several else curve.label,
        )
