"""The tables of a comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headprune.budget import SPEED
from headprune.compare.comparison import Comparison
from headprune.compare.correlations import Correlation
from headprune.compare.findings import all_tests
from headprune.compare.pairs import against_best
from headprune.compare.records import Outcomes
from headprune.compare.rows import CONTROL
from headprune.recovery.kinds import BEFORE, is_untrained, words_for
from headprune.report.document import Column, Table
from headprune.report.shown import Decimals, Marked, PValue, millions, signed
from headprune.report.table import Cell
from headprune.results.metrics import direction
from headprune.results.stats import Spread

_INTERVAL = "{0[0]:+z.2f} to {0[1]:+z.2f}".format

_QUARTILES = "{0[0]:.2f} ({0[1]:.2f} to {0[2]:.2f})".format
"""The text of a median and its quartiles."""


@dataclass(frozen=True, kw_only=True)
class Tables:
    """The tables of a comparison.

    Attributes:
        correlations: see ``Report``.
    """

    comparison: Comparison
    outcomes: Outcomes
    correlations: Mapping[str, Correlation]

    def all(self) -> list[Table]:
        """The tables that have rows, in the order in which a reader sees them."""
        tables = [self.values(moment) for moment in (*self.outcomes.recoveries, BEFORE)]
        tables += [self.tests(), self.pairs(), self.costs(), self.methods(), self.recoveries()]
        tables.append(self.correlated())
        return [table for table in tables if table.rows]

    def values(self, moment: str) -> Table:
        """The metric at one moment, by method and amount."""
        percents = self.outcomes.percents
        amount_text = self.comparison.amount_text
        rows: list[list[object]] = [["not pruned", *[self._unpruned(moment)] * len(percents)]]
        for name in self.outcomes.scores:
            cells = [self.outcomes.cell(name, percent, moment) for percent in percents]
            if any(cells):
                rows.append([name, *map(_marked, cells)])
        return Table(
            caption=f"{self._metric} {words_for(moment)}{direction(self._metric)}:",
            columns=[Column("score"), *(Column(amount_text(percent)) for percent in percents)],
            rows=rows,
        )

    def tests(self) -> Table:
        """The tests against random choice."""
        return Table(
            caption=f"Difference to the mean of random plans{direction(self._metric)}:",
            columns=[
                *(Column("when"), self._amount_column, Column("score")),
                *(Column("difference", signed), Column("p", PValue(3))),
                *(Column("p (Holm)", PValue(3)), Column("random plans")),
            ],
            rows=[
                [
                    *(words_for(moment), percent, name),
                    *(each.difference, each.p_value, each.adjusted, test.random.n),
                ]
                for moment, percent, test in all_tests(self.outcomes)
                for name, each in test.scores.items()
            ],
        )

    def pairs(self) -> Table:
        """The tests of the best method against the others."""
        return Table(
            caption="The best method against the others:",
            columns=[
                *(Column("when"), self._amount_column, Column("best"), Column("other")),
                *(Column("difference", signed), Column("p", PValue(4))),
                *(Column("p (Holm)", PValue(4)), Column("models of each")),
            ],
            rows=[
                [
                    *(words_for(test.moment), test.percent, test.better, test.worse),
                    *(test.difference, test.p_value, test.adjusted, test.models),
                ]
                for test in against_best(self.comparison.pairs)
            ],
        )

    def costs(self) -> Table:
        """Size and speed, of random plans alone where the other methods were not timed."""
        speedups = self.comparison.speedups
        of_speed = self.comparison.measure == SPEED
        is_whole = of_speed or self.comparison.has_timed_methods
        names = self.outcomes.scores if is_whole else ["random"]
        is_single = len(names) == 1
        rows: list[list[object]] = []
        for percent in self.outcomes.percents:
            for name in names:
                # One row a seed: a seed has the same plan after each recovery.
                of_seeds = {
                    row.seed: row
                    for row in self.comparison.rows
                    if row.percent == percent and row.score == name
                }.values()
                figures = [
                    _mean([row.parameters for row in of_seeds]),
                    _mean([row.flops for row in of_seeds]),
                    _mean([row.predicted_speedup for row in of_seeds]),
                ]
                if figures[-1] is None:
                    figures.pop()
                method = [] if is_single else [name]
                speed = [speedups.get(name, {}).get(percent)] if speedups else []
                rows.append([percent, *method, *figures, *speed])
        return Table(
            caption="What pruning saves:",
            columns=[
                *(self._amount_column, *([] if is_single else [Column("score")])),
                Column("parameters", millions),
                Column("FLOPs", lambda value: f"{value / 1e6:.1f}M"),
                *([Column("predicted speed", Decimals(2))] if of_speed else []),
                *([Column("speed, x unpruned (quartiles)", _QUARTILES)] if speedups else []),
            ],
            rows=rows,
        )

    def methods(self) -> Table:
        """The cost of the methods themselves."""
        return Table(
            caption="Seconds to choose the units, scores included:",
            columns=[Column("score"), Column("seconds", Decimals(1))],
            rows=[[name, seconds] for name, seconds in self.comparison.costs.items()],
        )

    def recoveries(self) -> Table:
        """The cost of the recoveries."""
        return Table(
            caption="Seconds for a model, the measurement included:",
            columns=[Column("when"), Column("seconds", Decimals(1))],
            rows=[
                [words_for(moment), seconds]
                for moment, seconds in self.comparison.recovery_seconds.items()
            ],
        )

    def correlated(self) -> Table:
        """The correlations of scores with ablation."""
        known = {name: each.value == each.value for name, each in self.correlations.items()}
        return Table(
            caption="Rank correlation with the drop that ablation measures:",
            columns=[
                *(Column("score"), Column("Spearman", signed)),
                Column("95% interval", _INTERVAL),
                Column(self.comparison.unit_names),
            ],
            rows=[
                # A score that is the same for all heads correlates with nothing.
                [name, each.value, _interval(each), each.heads]
                if known[name]
                else [name, None, None, each.heads]
                for name, each in self.correlations.items()
            ],
        )

    def _unpruned(self, moment: str) -> Marked | None:
        if is_untrained(moment):
            base = Spread(self.comparison.base, None, 1)
            return Marked(base, bool(self.comparison.constant))
        return _marked(self.outcomes.cell(CONTROL, 0.0, moment))

    @property
    def _metric(self) -> str:
        return self.comparison.metric

    @property
    def _amount_column(self) -> Column:
        return Column(self.comparison.heading, self.comparison.amount_text)


def _marked(cell: Cell | None) -> Marked | None:
    return None if cell is None else Marked(cell.value, cell.constant > 0)


def _mean(values: Sequence[float | None]) -> float | None:
    """The mean over the plans of a method; None where a value is not known."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if len(known) == len(values) else None


def _interval(correlation: Correlation) -> tuple[float, float] | None:
    """The interval; None where there is none."""
    return None if math.isnan(correlation.low) else (correlation.low, correlation.high)
