"""What the numbers of a comparison say, in sentences worked out from them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from headprune.compare.correlations import Correlation
from headprune.compare.rows import CONTROL, Cell, Row, cell
from headprune.stats import Spread

DEVIATIONS = 2.0
"""How many standard deviations of random choice, over its seeds, a score must be better by."""


def claims(
    rows: Sequence[Row], correlations: Mapping[str, Correlation], *, metric: str
) -> list[str]:
    """One sentence for each percentage before and after fine-tuning, and one on correlations."""
    names = [name for name in dict.fromkeys(row.score for row in rows) if name != CONTROL]
    percents = list(dict.fromkeys(row.percent for row in rows if row.score != CONTROL))
    said = []
    for when in ("before", "after"):
        for percent in percents:
            cells = {name: cell(rows, name, percent) for name in names}
            sentence = against_random(cells, when=when, percent=percent, metric=metric)
            if sentence:
                said.append(sentence)
    return [*said, *_on_correlations(correlations)]


def against_random(
    cells: Mapping[str, Cell], *, when: str, percent: float, metric: str
) -> str | None:
    """Which scores beat random choice by more than two of its standard deviations.

    None without fine-tuning, without random's spread, or without another score.
    """
    values = {name: getattr(each, when) for name, each in cells.items()}
    random: Spread | None = values.pop("random", None)
    values = {name: value for name, value in values.items() if value is not None}
    if random is None or random.sd is None or not values:
        return None
    margin = DEVIATIONS * random.sd
    better = [name for name, value in values.items() if value.mean > random.mean + margin]
    worse = [name for name, value in values.items() if value.mean < random.mean - margin]
    moment = "Right after pruning" if when == "before" else "After fine-tuning"
    start = f"{moment}, at {percent:g}%,"
    best = max(values, key=lambda name: values[name].mean)
    verb = "beat" if len(better) > 1 else "beats"
    text = (
        f"{start} {_listed(better) if better else 'no score'} {verb} random by more than two of "
        f"random's own standard deviations (random {random}, {best} {values[best]} {metric}, "
        f"{random.n} seeds; no significance test)"
    )
    if worse:
        verb = "are" if len(worse) > 1 else "is"
        text += f"; {_listed(worse)} {verb} worse than random by as much"
    return text + "."


def _on_correlations(correlations: Mapping[str, Correlation]) -> list[str]:
    known = {name: each for name, each in correlations.items() if not math.isnan(each.value)}
    if not known:
        return []
    clear = [name for name, each in known.items() if each.low > 0]
    against = [name for name, each in known.items() if each.high < 0]
    text = (
        f"The drop that ablation measures correlates positively with {_listed(clear)}"
        if clear
        else "No score correlates positively with the drop that ablation measures"
    )
    if against:
        text += f", and negatively with {_listed(against)}"
    return [f"{text} (95% intervals that leave out 0)."]


def _listed(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
