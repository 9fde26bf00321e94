"""Sentences on the outcome of a comparison, derived from its numbers."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

from headprune.budget import goal_of
from headprune.compare.against_random import CellTest, compare_with_random
from headprune.compare.correlations import Correlation
from headprune.compare.records import Outcomes
from headprune.recovery.kinds import words_for
from headprune.report.table import Cell
from headprune.results.metrics import gain, range_of
from headprune.results.significance import SIGNIFICANCE_LEVEL
from headprune.results.stats import Spread
from headprune.wording import counted, listed

_FEWEST = 6
"""Fewest units for a sentence on a correlation: of five, the interval leaves out 0 too often."""


def findings(
    outcomes: Outcomes,
    correlations: Mapping[str, Correlation],
    *,
    metric: str,
    measure: str = "units",
) -> list[str]:
    """One sentence for each percentage before and after a recovery, and one on correlations."""
    sentences = (
        against_random(
            cells,
            moment=words_for(moment),
            percent=percent,
            metric=metric,
            measure=measure,
            trained=outcomes.trained,
        )
        for moment, percent, cells in outcomes.cells()
    )
    return [*filter(None, sentences), *_on_correlations(correlations)]


def tested(cells: Mapping[str, Cell]) -> CellTest | None:
    """The test of all scores of one percentage and moment; None if no test is possible.

    Nor is there one where a random plan gave a model with the same output for every example: the
    t-distribution is for normally distributed values, which such a mixture is far from. In
    simulations the test then called a score different three to five times as often as it should.
    """
    random, values = _values(cells)
    if random is None or cells["random"].constant:
        return None
    return compare_with_random(random, values)


def all_tests(outcomes: Outcomes) -> list[tuple[str, float, CellTest]]:
    """The tests against random choice that are possible, by moment and percentage."""
    return [
        (moment, percent, test)
        for moment, percent, cells in outcomes.cells()
        if (test := tested(cells)) is not None
    ]


def against_random(
    cells: Mapping[str, Cell],
    *,
    moment: str,
    percent: float,
    metric: str,
    measure: str = "units",
    trained: Collection[str] = (),
) -> str | None:
    """A sentence that names the scores which differ significantly from random choice.

    None without random's spread, or without another score.

    Args:
        cells: the values by score.
        moment: that of the measurement, in words.
        trained: methods that train the model themselves. Their values are those after that
            training, which the sentence says.
    """
    random, values = _values(cells)
    if random is None or random.sd is None or not values:
        return None
    start = f"{moment.capitalize()}, at {goal_of(percent, measure)},"
    if constant := cells["random"].constant:
        return (
            f"{start} {constant} of {random.n} random plans gave models with the same output for "
            f"every example, so that no score is tested against them. Random: {random} {metric}."
        )
    test = compare_with_random(random, values)
    if test is None:
        return (
            f"{start} all {random.n} random plans have the same {metric}, {random.mean:.2f}, "
            "so that no score can be tested against them."
        )

    def with_difference(name: str) -> str:
        training = " after its own training alone" if name in trained else ""
        return f"{name}{training} {test.scores[name].difference:+z.2f}"

    different = {name: each for name, each in test.scores.items() if each.significant}
    gains = {name: gain(metric, each.difference) for name, each in different.items()}
    parts = [
        f"{listed([with_difference(name) for name in names])} "
        f"{'are' if len(names) > 1 else 'is'} {which} than random choice"
        for which, names in (
            ("better", [name for name, value in gains.items() if value > 0]),
            ("worse", [name for name, value in gains.items() if value < 0]),
        )
        if names
    ]
    others = {name: each for name, each in test.scores.items() if name not in different}
    ordered = sorted(others, key=lambda name: -gain(metric, others[name].difference))
    differences = ", ".join(with_difference(name) for name in ordered)
    if not different:
        parts = [f"no score differs significantly from random choice ({differences})"]
    elif others:
        parts.append(f"the others do not differ significantly ({differences})")
    return (
        f"{start} {'; '.join(parts)}. Random: {random} {metric}, n = {random.n} plans; "
        f"t-test for one more draw, p < {SIGNIFICANCE_LEVEL:g} after Holm's correction for "
        f"{counted(len(values), 'score')}; {_reach(test, metric)}."
    )


def _reach(test: CellTest, metric: str) -> str:
    """The smallest difference that is significant, or that none can be."""
    low, high = range_of(metric)
    if test.smallest > max(test.random.mean - low, high - test.random.mean):
        return "no possible difference would have been significant"
    return f"the smallest significant difference is {test.smallest:.2f}"


def _values(cells: Mapping[str, Cell]) -> tuple[Spread | None, dict[str, float]]:
    """The values of random choice, and the mean value of each other score."""
    spreads = {name: cell.value for name, cell in cells.items()}
    random = spreads.pop("random", None)
    return random, {name: each.mean for name, each in spreads.items()}


def _on_correlations(correlations: Mapping[str, Correlation]) -> list[str]:
    known = {name: each for name, each in correlations.items() if not math.isnan(each.value)}
    if not known:
        return []
    tested = {name: each for name, each in known.items() if each.heads >= _FEWEST}
    clear = [name for name, each in tested.items() if each.low > 0]
    against = [name for name, each in tested.items() if each.high < 0]
    text = (
        f"The drop that ablation measures correlates positively with {listed(clear)}"
        if clear
        else "No score correlates positively with the drop that ablation measures"
    )
    if against:
        text += f", and negatively with {listed(against)}"
    return [f"{text} (95% intervals that leave out 0, not corrected for their number)."]
