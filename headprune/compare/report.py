"""The report of a comparison: its records, tests and correlations as a document."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from headprune.budget import SPEED, percent_text
from headprune.compare.against_random import LEVEL, CellTest
from headprune.compare.correlations import Correlation, correlation, matrix
from headprune.compare.figures import draw_correlations, draw_curves
from headprune.compare.findings import findings, tested
from headprune.compare.pairs import PairTest, against_best
from headprune.compare.records import Outcomes
from headprune.compare.rows import CONTROL
from headprune.compare.run import Comparison
from headprune.compare.speed_figure import draw_speed
from headprune.compare.turns import Quartiles
from headprune.recovery.kinds import BEFORE, Recovery, words_for
from headprune.report.document import Block, Column, Document, Figure, Notes, Signatures, Table
from headprune.report.render import markdown, save
from headprune.report.shown import Decimals, Marked, millions, signed
from headprune.report.table import Cell
from headprune.results.marks import CONSTANT_MARK
from headprune.results.metrics import direction
from headprune.results.signature import common_part
from headprune.results.stats import Spread
from headprune.wording import counted

_QUARTILES = "{0[0]:.2f} ({0[1]:.2f} to {0[2]:.2f})"
_SHEET = ("score", "percent", "pruned", "seed", "before", "after", "parameters", "flops")


@dataclass(frozen=True, kw_only=True)
class Report:
    """A comparison and the statistics derived from it.

    Attributes:
        correlations: the correlation of each score with the drop that ablation measures; empty
            without ablation.
        among: the names of the scores and the correlations between them.
        findings: sentences on the outcome.
    """

    comparison: Comparison
    correlations: Mapping[str, Correlation]
    among: tuple[list[str], list[list[float]]]
    findings: list[str]

    @classmethod
    def of(cls, comparison: Comparison) -> Report:
        """Compute correlations and tests, and write the sentences on them."""
        components = comparison.components
        scores = {
            name: each if components is None else each.of_components(components)
            for name, each in comparison.scores.items()
        }
        ablation = scores.get("ablation")
        correlations = {
            name: correlation(each, ablation)
            for name, each in scores.items()
            if ablation is not None and name != "ablation"
        }
        return cls(
            comparison=comparison,
            correlations=correlations,
            among=(list(scores), matrix(scores)),
            findings=findings(
                Outcomes.of(comparison),
                correlations,
                metric=comparison.metric,
                measure=comparison.measure,
            ),
        )

    def save(self, folder: Path, *, title: str) -> None:
        """Write compare.md, .csv and .json, and the figures as PNG and SVG."""
        save(self.document(title=title), folder, name="compare")

    def markdown(self, *, title: str) -> str:
        """The document as Markdown."""
        return markdown.render(self.document(title=title))

    def document(self, *, title: str) -> Document:
        """Sentences, tables, notes and figures."""
        blocks: list[Block] = [Notes(self.findings)]
        blocks += [self._values_table(when) for when in (*self._outcomes.recoveries, BEFORE)]
        if self._tests:
            blocks.append(self._tests_table())
        if self.comparison.pairs:
            blocks.append(self._pairs_table(against_best(self.comparison.pairs)))
        blocks.append(self._costs_table())
        if self.comparison.costs:
            blocks.append(self._methods_table())
        if self.correlations:
            blocks.append(self._correlations_table())
        blocks.append(Notes(self._notes()))
        blocks.append(
            Signatures(
                [
                    *(score.signature for score in self.comparison.scores.values()),
                    *(
                        common_part([record.signature for record in records])
                        for score in dict.fromkeys(row.score for row in self.comparison.rows)
                        for records in self._outcomes.signed(score)
                    ),
                    *self._metric_signatures(),
                ]
            )
        )
        figures = [
            Figure(
                name="curves",
                draw=lambda: draw_curves(self.comparison, self._outcomes, title=title),
                alt=f"{self.comparison.metric} against the {self._amount}, one line a "
                f"score: {', '.join(self._outcomes.scores)}. The tables have the values.",
            )
        ]
        if self.comparison.has_timed_methods:
            figures.append(
                Figure(
                    name="speed",
                    draw=lambda: draw_speed(self.comparison, self._outcomes),
                    alt=f"{self.comparison.metric} against the speed, one line a score: "
                    f"{', '.join(self._outcomes.scores)}. The tables have the values.",
                )
            )
        if self.correlations:
            figures.append(
                Figure(
                    name="correlations",
                    draw=lambda: draw_correlations(self.correlations, *self.among, title=title),
                    alt="Rank correlations of the scores with the drop by ablation, with "
                    "intervals, and with each other.",
                )
            )
        return Document(
            title=title,
            blocks=blocks,
            sheet=Table(
                columns=[Column(name) for name in _SHEET],
                rows=[[getattr(row, name) for name in _SHEET] for row in self.comparison.rows],
            ),
            values=self._values(title),
            figures=figures,
        )

    def _metric_signatures(self) -> list[str]:
        """sacreBLEU's signature, where the metric has one."""
        signature = self.comparison.metric_signature
        return [] if signature is None else [f"{self.comparison.metric}|{signature}"]

    @cached_property
    def _outcomes(self) -> Outcomes:
        return Outcomes.of(self.comparison)

    @cached_property
    def _tests(self) -> list[tuple[str, float, CellTest]]:
        """The tests against random choice, by moment and percentage."""
        return [
            (when, percent, test)
            for when, percent, cells in self._outcomes.cells()
            if (test := tested(cells)) is not None
        ]

    def _values_table(self, when: str) -> Table:
        percents = self._outcomes.percents
        amount_text = self.comparison.amount_text
        rows: list[list[object]] = [["not pruned", *[self._unpruned(when)] * len(percents)]]
        for name in self._outcomes.scores:
            cells = [self._outcomes.cell(name, percent, when) for percent in percents]
            if any(cells):
                rows.append([name, *map(_marked, cells)])
        return Table(
            caption=f"{self._metric} {words_for(when)}{direction(self._metric)}:",
            columns=[Column("score"), *(Column(amount_text(percent)) for percent in percents)],
            rows=rows,
        )

    @property
    def _metric(self) -> str:
        return self.comparison.metric

    @property
    def _amount(self) -> str:
        """The quantity of a request, in words."""
        heading = self.comparison.heading
        return heading if self.comparison.measure == SPEED else f"share of {heading}"

    def _unpruned(self, when: str) -> Marked | None:
        if when in (BEFORE, Recovery.REFIT):
            base = Spread(self.comparison.base, None, 1)
            return Marked(base, bool(self.comparison.constant))
        return _marked(self._outcomes.cell(CONTROL, 0.0, when))

    def _tests_table(self) -> Table:
        return Table(
            caption=f"Difference to the mean of random plans{direction(self._metric)}:",
            columns=[
                *(Column("when"), self._amount_column, Column("score")),
                *(Column("difference", signed), Column("p", Decimals(3))),
                *(Column("p (Holm)", Decimals(3)), Column("random plans")),
            ],
            rows=[
                [
                    *(words_for(when), percent, name),
                    *(each.difference, each.p_value, each.adjusted, test.random.n),
                ]
                for when, percent, test in self._tests
                for name, each in test.scores.items()
            ],
        )

    def _pairs_table(self, tests: Sequence[PairTest]) -> Table:
        return Table(
            caption="The best method against the others:",
            columns=[
                *(Column("when"), self._amount_column, Column("better"), Column("than")),
                *(Column("difference", signed), Column("p", Decimals(4))),
                *(Column("p (Holm)", Decimals(4)), Column("models of each")),
            ],
            rows=[
                [
                    *(words_for(test.when), test.percent, test.better, test.worse),
                    *(test.difference, test.p_value, test.adjusted, test.models),
                ]
                for test in tests
            ],
        )

    @property
    def _amount_column(self) -> Column:
        return Column(self.comparison.heading, self.comparison.amount_text)

    def _costs_table(self) -> Table:
        """Size and speed, of random plans alone where the other methods were not timed."""
        speedups = self.comparison.speedups
        names = self._outcomes.scores if self.comparison.has_timed_methods else ["random"]
        is_single = len(names) == 1
        rows: list[list[object]] = []
        for percent in self._outcomes.percents:
            for name in names:
                first = next(
                    row
                    for row in self.comparison.rows
                    if row.percent == percent and row.score == name
                )
                speed = speedups.get(name, {}).get(percent)
                method = [] if is_single else [name]
                predicted = [] if first.predicted_speedup is None else [first.predicted_speedup]
                rows.append([percent, *method, first.parameters, first.flops, *predicted, speed])
        of_speed = self.comparison.measure == SPEED
        return Table(
            caption="What pruning saves:",
            columns=[
                *(self._amount_column, *([] if is_single else [Column("score")])),
                Column("parameters", millions),
                Column("FLOPs", lambda value: f"{value / 1e6:.1f}M"),
                *([Column("predicted speed", Decimals(2))] if of_speed else []),
                Column(
                    "speed, x unpruned (quartiles)", "{0[0]:.2f} ({0[1]:.2f} to {0[2]:.2f})".format
                ),
            ],
            rows=rows,
        )

    def _methods_table(self) -> Table:
        """The cost of the methods themselves."""
        return Table(
            caption="Seconds to choose the units, scores included:",
            columns=[Column("score"), Column("seconds", Decimals(1))],
            rows=[[name, seconds] for name, seconds in self.comparison.costs.items()],
        )

    def _correlations_table(self) -> Table:
        known = {name: each.value == each.value for name, each in self.correlations.items()}
        return Table(
            caption="Rank correlation with the drop that ablation measures:",
            columns=[
                *(Column("score"), Column("Spearman", signed)),
                Column("95% interval", "{0[0]:+.2f} to {0[1]:+.2f}".format),
                Column(self.comparison.unit_names),
            ],
            rows=[
                # A score that is the same for all heads correlates with nothing.
                [name, each.value, (each.low, each.high), each.heads]
                if known[name]
                else [name, None, None, each.heads]
                for name, each in self.correlations.items()
            ],
        )

    def _notes(self) -> list[str]:
        rows = self.comparison.rows
        draws = len({row.seed for row in rows if row.score == "random"})
        seeds = len({row.seed for row in rows if row.score != "random"}) or draws
        units = self.comparison.unit_names
        notes = []
        others = "heads" if units == "heads" else "units"
        components = self.comparison.components
        pruned = units if components is None else f"{units} of {', '.join(components)}"
        if self.comparison.measure == SPEED:
            notes.append(
                f"Speeds: {self.comparison.timed_job or 'a job that is not known'}. Each method "
                f"prunes {pruned} until the speed that is predicted from times of sub-layers is "
                "reached; the measured speed is of the whole job. Methods that drop whole layers "
                "can be faster than asked for. Correlations are over these units."
            )
        elif self.comparison.measure != "units":
            notes.append(
                f"Percentages are of the {self.comparison.quantity} that pruning all {pruned} "
                f"would save; correlations are over these {units}; all other {others} stay."
            )
        elif components is not None:
            notes.append(
                f"Percentages are of the {pruned}, and so are correlations; all other {others} "
                "stay."
            )
        if self.comparison.constant or any(row.constant or row.constant_before for row in rows):
            notes.append(
                f"{CONSTANT_MARK}: the model of one seed or more gives the same output for every "
                f"example: its figure does not say how well the {units} were chosen."
            )
        fair = ""
        tuned = {Recovery.FINETUNE, Recovery.DISTILL}.intersection(self._outcomes.recoveries)
        if tuned:
            moments = " and ".join(each.moment for each in Recovery if each in tuned)
            fair = f"; {moments}, the same model, trained in the same way for as long"
        positions = self.comparison.positions
        inputs = f"one input of {positions} positions" if positions else "30 tokens"
        timed = "plans" if self.comparison.has_timed_methods else f"random {units}"
        return [
            *notes,
            _seeds_note(seeds, draws, units=units),
            *self._training_note(),
            f"not pruned: the model as it was given{fair}.",
            *self._recovery_note(),
            _tests_note(draws),
            *self._pairs_note(),
            *self._ablation_note(),
            f"FLOPs: of a forward pass over {inputs}, {timed} of the first seed; speed: "
            "medians of rounds in which the models take turns.",
            *self._seconds_note(),
        ]

    def _pairs_note(self) -> list[str]:
        pairs = self.comparison.pairs
        if not pairs:
            return []
        return [
            f"Methods against each other: paired approximate randomisation of the outputs for "
            f"{pairs[0].examples} examples, in which the models of all seeds swap their outputs of "
            "an example together; two-sided, with 10,000 trials. Holm's correction is for all "
            "pairs of methods of one amount at one moment. The tests are about other examples, "
            "not about other plans or fine-tunings."
        ]

    def _seconds_note(self) -> list[str]:
        if not self.comparison.costs:
            return []
        return [
            "Seconds: the mean of a method's plans, on the machine of the comparison. Scores that "
            "are computed in one pass over the data have the time of this pass."
        ]

    def _training_note(self) -> list[str]:
        names = sorted(self._outcomes.trained)
        if not names:
            return []
        return [
            f"{', '.join(names)}: the method trains the model for as long as a fine-tuning, with "
            "each seed anew, while it chooses. Its figures right after pruning come after one "
            "training, so the tests compare them with those of random plans after fine-tuning; its "
            "figures after fine-tuning come after two."
        ]

    def _recovery_note(self) -> list[str]:
        notes = {
            Recovery.DISTILL: "after distillation: fine-tuned towards the outputs of the model as "
            "it was given too; so is the model that is not pruned.",
            Recovery.REFIT: "after re-fitting: the output projections of pruned sub-layers are "
            "solved by least squares on calibration examples, which are training examples; nothing "
            "is trained.",
            Recovery.SCRATCH: "trained from scratch: from random weights in the pruned shape, for "
            "as long as a fine-tuning; the row of what is not pruned has the unpruned shape, "
            "trained in the same way.",
        }
        return [notes[each] for each in self._outcomes.recoveries if each in notes]

    def _task_values(self) -> dict[str, Any]:
        """The task, the model and the names in signatures; None where they are not known."""
        comparison = self.comparison
        plan = None if comparison.plan is None else json.loads(comparison.plan.to_json())
        return {
            "task": comparison.task,
            "data_name": comparison.data_name,
            "finetune_name": comparison.finetune_name,
            "metric_signature": comparison.metric_signature,
            "score_signatures": [score.signature for score in comparison.scores.values()],
            "model": comparison.model,
            "fingerprint": comparison.fingerprint,
            "plan": plan,
            "at_least": comparison.at_least,
        }

    def _pruned_values(self) -> dict[str, Any]:
        """The components, measure and recoveries; ``component`` is the only one, or null."""
        components = self.comparison.components or ()
        values: dict[str, Any] = {"component": components[0] if len(components) == 1 else None}
        if len(components) > 1:
            values["components"] = list(components)
        if self.comparison.measure != "units":
            values["measure"] = self.comparison.measure
        if self.comparison.timed_job is not None:
            values["timed_job"] = self.comparison.timed_job
        if self.comparison.positions is not None:
            values["positions"] = self.comparison.positions
        if self.comparison.recoveries != (Recovery.FINETUNE,):
            values["recoveries"] = [str(each) for each in self.comparison.recoveries]
        return values

    def _method_values(self) -> dict[str, Any]:
        """The speed-ups and costs of all methods; older versions have neither."""
        speedups, costs = self.comparison.speedups, self.comparison.costs
        values: dict[str, Any] = {}
        if self.comparison.has_timed_methods:
            values["speedups_by_method"] = {
                method: _speedups(by_percent) for method, by_percent in speedups.items()
            }
        if costs:
            values["costs"] = {name: round(cost, 2) for name, cost in costs.items()}
        return values

    def _pair_values(self) -> dict[str, Any]:
        """All tests of methods against each other; older versions have none."""
        pairs = self.comparison.pairs
        return {"pairs": [asdict(test) for test in pairs]} if pairs else {}

    def _ablation_note(self) -> list[str]:
        ablation = self.comparison.scores.get("ablation")
        if ablation is None:
            return []
        return [
            f"ablation: drop of the {ablation.settings.get('metric')}, measured on other examples "
            "than the other scores are computed on (part:ablation, part:scoring). Low numbers of "
            "entropy and alone are the good ones; their signs are turned round in correlations. "
            f"Intervals by bootstrap over {self.comparison.unit_names}."
        ]

    def _values(self, title: str) -> dict[str, Any]:
        names, values = self.among
        return {
            "title": title,
            "metric": self.comparison.metric,
            **self._task_values(),
            **self._pruned_values(),
            "base": self.comparison.base,
            "constant": self.comparison.constant,
            "settings": self.comparison.settings,
            "claims": self.findings,
            "tests": [_test_values(when, percent, test) for when, percent, test in self._tests],
            "rows": [row.as_json() for row in self.comparison.rows],
            "speedups": _speedups(self.comparison.speedups.get("random", {})),
            **self._method_values(),
            **self._pair_values(),
            "correlations": {
                name: {
                    "spearman": _number(each.value),
                    "interval": [_number(each.low), _number(each.high)],
                    "heads": each.heads,
                }
                for name, each in self.correlations.items()
            },
            "among": {
                name: dict(zip(names, map(_number, row), strict=True))
                for name, row in zip(names, values, strict=True)
            },
        }


def _speedups(by_percent: Mapping[float, Quartiles]) -> dict[str, list[float]]:
    """Speed-ups as JSON values."""
    return {percent_text(percent): list(each) for percent, each in by_percent.items()}


def _seeds_note(seeds: int, draws: int, *, units: str) -> str:
    """The number of values of each figure, and their spread.

    Args:
        seeds, draws: the number of seeds of the other scores, and of random.
    """
    chances = f"draws the random {units} and the fine-tuning's chances"
    if seeds == 1:
        spread = (
            f"Random: mean ± sample standard deviation over {draws} seeds. Other scores: one seed"
        )
        return f"One seed, which {chances}." if draws == 1 else f"{spread}. A seed {chances}."
    return (
        f"Mean ± sample standard deviation over {seeds} seeds"
        f"{f' ({draws} of random)' if draws != seeds else ''}. A seed {chances}; the {units} of "
        "the other scores are the same for every seed, so right after pruning they have one value."
    )


def _tests_note(draws: int) -> str:
    if draws == 1:
        return "Differences to random choice are not tested: that takes two random draws or more."
    return (
        "Tests against random choice: a score chooses one plan, so its value (the mean where "
        "it was fine-tuned) is tested as one more draw from the distribution of random's "
        f"{draws} values: t with {counted(draws - 1, 'degree')} of freedom, scale sd x "
        "sqrt(1 + 1/n), two-sided. Holm's correction is for the scores of one percentage at one "
        "moment. If no score differed from random, any would be called different in at most "
        f"{LEVEL:.0%} of such cells."
    )


def _marked(cell: Cell | None) -> Marked | None:
    return None if cell is None else Marked(cell.value, cell.constant > 0)


def _test_values(when: str, percent: float, test: CellTest) -> dict[str, Any]:
    return {
        "when": BEFORE if when == BEFORE else "after",
        **({} if when == BEFORE else {"recovery": when}),
        "percent": percent,
        "random": asdict(test.random),
        "level": LEVEL,
        "smallest_difference": test.smallest,
        "scores": {
            name: {"difference": each.difference, "p_value": each.p_value, "holm": each.adjusted}
            for name, each in test.scores.items()
        },
    }


def _number(value: float) -> float | None:
    """Replace NaN, which JSON does not have."""
    return None if value != value else value
