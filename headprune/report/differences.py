"""Differences between rows of trained models, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from headprune.claims.estimate import MeanDifference, mean_difference
from headprune.errors import DataError
from headprune.report.document import Column, Document, Notes, Table
from headprune.report.shown import PValue, rejections, signed
from headprune.results.comparable import require_one_measure
from headprune.results.control_tests import TESTS, Located
from headprune.results.labels import is_draw, method_of
from headprune.results.lengths import NONE
from headprune.results.record import Record
from headprune.results.record_files import files_of_records
from headprune.results.signature import fields_of
from headprune.results.significance import holm


@dataclass(frozen=True, kw_only=True)
class ModelRow:
    """The models of one row: one way to prune, with several seeds.

    Attributes:
        folder: the folder that their records were read from.
        records: the records by seed, with their files.
    """

    folder: Path
    records: Mapping[int, Located]

    @classmethod
    def load(cls, folder: Path) -> ModelRow:
        """Read the records in a folder; a file of a record is a row of one model.

        Raises:
            UsageError: there are none.
            DataError: they are of several rows, or of one seed twice.
        """
        records: dict[int, Located] = {}
        first: Record | None = None
        for path in files_of_records([folder]):
            record = Record.load(path)
            first = first or record
            if _row_of(record) != _row_of(first):
                raise DataError(
                    f"{folder}: has records of several rows, {_name(first)} and {_name(record)}; "
                    "give the folder of one of them"
                )
            if record.seed in records:
                raise DataError(f"{path}: seed {record.seed} is also in {records[record.seed][0]}")
            records[record.seed] = (path, record)
        return cls(folder=folder, records=records)

    @property
    def any_record(self) -> Record:
        """One of the records."""
        return next(iter(self.records.values()))[1]

    @property
    def name(self) -> str:
        """The row's label with its study, or model, its task, and how it was trained."""
        record = self.any_record
        of = record.study or record.model or str(self.folder)
        length = "not trained" if record.finetune == NONE else record.finetune
        recovery = fields_of(record.signature).get("recovery")
        training = length if recovery is None else f"{length}, {recovery}"
        return f"{_name(record)} of {of} ({record.task}, {training})"

    def of(self, seed: int) -> Located:
        """The model of a seed; see ``is_for_all_seeds``."""
        if self.is_for_all_seeds:
            return next(iter(self.records.values()))
        return self.records[seed]

    @property
    def is_for_all_seeds(self) -> bool:
        """True for the one model that was not trained, and whose units were not drawn."""
        record = self.any_record
        is_untrained = record.finetune == NONE
        drawn = is_draw(method_of(record.plan, default="random"))
        return len(self.records) == 1 and is_untrained and not drawn


Pair = tuple[ModelRow, ModelRow]


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A mean difference of one metric over seeds.

    Attributes:
        metric: the name of the metric.
        by_seed: the difference of each seed.
        estimate: the mean with its interval and t-tests; None where it cannot be computed: with
            one seed, or equal differences.
        p_values: of tests of the pairs of models on their test set; empty without tests.
    """

    metric: str
    by_seed: Mapping[int, float]
    estimate: MeanDifference | None
    p_values: Sequence[float] = ()

    @property
    def mean(self) -> float:
        """The mean over the seeds."""
        return fmean(self.by_seed.values())

    @property
    def p_value(self) -> float | None:
        """The p-value of the two-sided t-test against no difference."""
        if self.estimate is None:
            return None
        return min(1.0, 2 * min(self.estimate.p_above(0), self.estimate.p_below(0)))


def differences(
    pairs: Sequence[Pair], *, less: Sequence[Pair] = (), test: bool = True
) -> list[Difference]:
    """The values of first rows less those of second rows, for each metric that all records have.

    Args:
        pairs: first and second row of each pair. Seed by seed, the mean over the pairs is taken.
        less: pairs whose mean difference is subtracted, for a change from one setting to another.
        test: test each pair of models on the examples of the test set too, where the records have
            their outputs; not with ``less``.

    Raises:
        DataError: rows of several tasks, without a seed in common, or that were not measured on the
            same data in the same way; or outputs that cannot be read.
    """
    rows = [row for pair in (*pairs, *less) for row in pair]
    for row in rows:
        if row.any_record.task != rows[0].any_record.task:
            raise DataError(
                f"{row.folder}: of the task {row.any_record.task}, but {rows[0].folder} of "
                f"{rows[0].any_record.task}"
            )
    require_one_measure([located for row in rows for located in row.records.values()])
    seeds = common_seeds(rows)
    results = []
    for metric in rows[0].any_record.metrics:
        if not all(metric in record.metrics for row in rows for _, record in row.records.values()):
            continue
        by_seed = {
            seed: _mean(pairs, metric, seed) - (_mean(less, metric, seed) if less else 0.0)
            for seed in seeds
        }
        p_values = [] if less or not test else _tests(pairs, metric, seeds)
        results.append(
            Difference(
                metric=metric,
                by_seed=by_seed,
                estimate=mean_difference([by_seed]),
                p_values=p_values,
            )
        )
    return results


def common_seeds(rows: Sequence[ModelRow]) -> list[int]:
    """The seeds that all rows have.

    Raises:
        DataError: there is none.
    """
    several = [row for row in rows if not row.is_for_all_seeds] or [*rows]
    seeds = set.intersection(*(set(row.records) for row in several))
    if not seeds:
        raise DataError(
            "no seed in common: "
            + "; ".join(f"{row.folder} has {_numbers(row.records)}" for row in several)
        )
    return sorted(seeds)


def document_of(
    found: Sequence[Difference], pairs: Sequence[Pair], *, less: Sequence[Pair] = ()
) -> Document:
    """The differences as a table, with notes on what was compared and tested."""
    notes = [f"difference: {one.name} - {other.name}" for one, other in pairs]
    notes += [f"less: {one.name} - {other.name}" for one, other in less]
    if len(pairs) > 1 or less:
        notes.append("the mean over the pairs is taken first, seed by seed")
    if any(each.estimate for each in found):
        notes.append(
            "95% interval and p: of a t-test over the seeds, against no difference; not corrected "
            "for the number of differences that you look at"
        )
    if any(each.p_values for each in found):
        notes.append(
            "models that differ: pairs of models of one seed with p < 0.05 on the examples of the "
            "test set, after Holm's correction; in brackets the p-values before it"
        )
    left_out = {
        seed
        for row in (row for pair in (*pairs, *less) for row in pair)
        if not row.is_for_all_seeds
        for seed in row.records
    } - {*found[0].by_seed}
    if left_out:
        notes.append(f"left out, as some rows lack them: seeds {_numbers(sorted(left_out))}")
    table = Table(
        columns=[
            *(Column("metric"), Column("difference", signed), Column("95% interval")),
            *(Column("n"), Column("by seed"), Column("p", PValue(4)), Column("models that differ")),
        ],
        rows=[
            [
                each.metric,
                each.mean,
                None if each.estimate is None else _interval(each.estimate),
                len(each.by_seed),
                ", ".join(signed(value) for value in each.by_seed.values()),
                each.p_value,
                _tested(each.p_values) if each.p_values else None,
            ]
            for each in found
        ],
    ).without_empty_columns()
    return Document(title="Difference", blocks=[table, Notes(notes)])


def _mean(pairs: Sequence[Pair], metric: str, seed: int) -> float:
    return fmean(
        first.of(seed)[1].metrics[metric] - second.of(seed)[1].metrics[metric]
        for first, second in pairs
    )


def _tests(pairs: Sequence[Pair], metric: str, seeds: Sequence[int]) -> list[float]:
    test = TESTS.get(metric)
    models = [(second.of(seed), first.of(seed)) for first, second in pairs for seed in seeds]
    if test is None or not all(test.applies_to(record) for pair in models for _, record in pair):
        return []
    return [test.run(second, [first]).p_values[0] for second, first in models]


def _tested(p_values: Sequence[float]) -> str:
    return f"{rejections(holm(p_values))} ({', '.join(map(PValue(3), p_values))})"


def _interval(estimate: MeanDifference) -> str:
    low, high = estimate.interval()
    return f"{signed(low)} to {signed(high)}"


def _row_of(record: Record) -> tuple[str, ...]:
    """The values that identify a row: its records share them."""
    return record.study, record.task, record.kind, record.row, record.form, record.finetune


def _name(record: Record) -> str:
    label = record.row or record.kind
    is_plain = record.kind in ("baseline", "control", "pruned", "scratch")
    return label if is_plain else f"{label} ({record.kind})"


def _numbers(seeds: Sequence[int] | Mapping[int, object]) -> str:
    return ", ".join(map(str, seeds))
