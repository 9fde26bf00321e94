"""Training curves of the models of a study."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headprune.report.document import Block, Figure, Section
from headprune.report.drawing import DARK, MARKERS
from headprune.report.page.material import StudyResult
from headprune.results.curves import Curve, curve_of
from headprune.results.labels import UNTRAINED
from headprune.results.record import Record
from headprune.results.tasks import TRANSLATION

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Drawing

_MOST_NAMED = 10
"""The number of rows up to which each has an entry in the legend; with more, colour is a scale."""


@dataclass(frozen=True)
class _Trained:
    """A record with its curve."""

    record: Record
    curve: Curve


def training_curves(study: StudyResult) -> list[Block]:
    """A section with the curves; empty where neither records nor logs have any."""
    trained = [
        _Trained(record, curve)
        for path, record in study.results
        if record.kind not in UNTRAINED and (curve := curve_of(path, record))
    ]
    groups: dict[str, list[_Trained]] = {}
    for each in trained:
        if each.record.kind == "baseline":
            name = "baseline"
        elif each.record.task == TRANSLATION:
            name = "fine-tuning"
        else:
            name = f"fine-tuning, {each.record.task}"
        groups.setdefault(name, []).append(each)
    # A training that was logged once is no curve.
    groups = {
        name: group
        for name, group in groups.items()
        if any(len({*each.curve.train, *each.curve.valid}) > 2 for each in group)
    }
    if not groups:
        return []
    ends = "; ".join(
        f"{each.record.row} seed {each.record.seed} {points[-1][1]:.3f}"
        for group in groups.values()
        for each in group
        if (points := each.curve.valid or each.curve.train)
    )
    figure = Figure(
        name="training",
        draw=lambda: _draw(groups),
        alt=f"Loss against the number of updates. At the end: {ends}.",
        caption="Loss against the number of updates, one line a model. Lines: training data, mean "
        "since the point before; markers: validation set. Losses are those that the training "
        "minimises (in fairseq, label-smoothed and with logarithms to base 2).",
    )
    return [Section(title="Training curves", blocks=[figure])]


def _draw(groups: dict[str, list[_Trained]]) -> Drawing:
    from matplotlib import pyplot

    figure, places = pyplot.subplots(
        len(groups), 1, figsize=(6.5, 1 + 4 * len(groups)), squeeze=False, layout="constrained"
    )
    for axes, (name, trained) in zip(places.flat, groups.items(), strict=True):
        _panel(axes, trained)
        axes.set_title(name)
        axes.set_ylabel("loss")
    places.flat[-1].set_xlabel("updates")
    labels: dict[str, Artist] = {}
    for axes in places.flat:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            labels.setdefault(label, handle)
    figure.legend(
        list(labels.values()),
        list(labels),
        frameon=False,
        loc="outside lower center",
        ncols=4,
        fontsize=11,
    )
    return figure


def _panel(axes: Axes, trained: Sequence[_Trained]) -> None:
    from matplotlib import pyplot

    rows = list(dict.fromkeys(each.record.row for each in trained))
    scale = pyplot.colormaps["viridis"]
    labelled: set[str] = set()
    for each in trained:
        record, place = each.record, rows.index(each.record.row)
        pruned = not record.plan.is_full
        # Dark is little pruned; the brightest colours are too bright on white.
        colour = scale(0.85 * record.percent / 100) if pruned else DARK
        marker = MARKERS[place % len(MARKERS)]
        label = record.row
        if len(rows) > _MOST_NAMED and pruned:
            quarter = min(int(record.percent // 25), 3)
            label, marker = f"{25 * quarter} to {25 * quarter + 25}% pruned", "o"
        axes.plot(*_axes_of(each.curve.train), color=colour, linewidth=1, alpha=0.7)
        axes.plot(
            *_axes_of(each.curve.valid or each.curve.train[-1:]),
            color=colour,
            linestyle="--",
            linewidth=1,
            marker=marker,
            markersize=5,
            label=None if label in labelled else label,
        )
        labelled.add(label)


def _axes_of(points: Sequence[tuple[int, float]]) -> tuple[list[int], list[float]]:
    return [updates for updates, _ in points], [loss for _, loss in points]
