"""Conversion of records to the rows of tables; all tables of records use it.

A row is a way to prune, a cell of it one task, over all its seeds.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Protocol

from headprune.components import unit_names
from headprune.errors import DataError
from headprune.report.shown import Delta, Kept
from headprune.results.comparable import require_comparable
from headprune.results.constant import is_constant_model
from headprune.results.control_tests import TESTS, Located
from headprune.results.labels import UNTRAINED
from headprune.results.lengths import has_more_trainings, length_of, require_one_length
from headprune.results.marks import constant_seeds
from headprune.results.merging import merged
from headprune.results.pairs import mean_paired
from headprune.results.record import Record
from headprune.results.signature import common_part
from headprune.results.stats import Spread, spread


class PaperFigures(Protocol):
    """One of the paper's tables."""

    def delta_of(self, records: Sequence[Record]) -> float | None:
        """The paper's difference to its unpruned model in the corresponding row."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One way to prune on one task, over its seeds.

    Attributes:
        value: the task's first metric, over the seeds; `values` are each seed's.
        metrics: all metrics of the task.
        parameters: mean number of weights of the models.
        delta: mean difference to the control of the same seed, over the seeds that have one; where
            none has one, mean value less that of the control, or of the baseline where there is no
            control. None for models that were fine-tuned more often than the control.
        pairs: number of seeds that ``delta`` is over, where some of the seeds have no control; None
            where it is over all seeds, or the difference of two means.
        p_values: the p-value of each seed's model against that seed's control; empty if not tested.
        paper_delta: the paper's difference to its unpruned model.
        signature: the signature of the figures, with `*` where the seeds differ.
        constant: number of seeds whose model gives the same output for every example.
    """

    value: Spread
    values: tuple[float, ...]
    metrics: Mapping[str, Spread]
    seeds: tuple[int, ...]
    parameters: float | None
    delta: float | None
    p_values: tuple[float, ...]
    paper_delta: float | None
    signature: str
    constant: int = 0
    pairs: int | None = None

    @property
    def shown_delta(self) -> Delta | None:
        """The difference as tables show it."""
        return None if self.delta is None else Delta(self.delta, self.pairs)

    @property
    def of_seed(self) -> dict[int, float]:
        """The value of each seed."""
        return dict(zip(self.seeds, self.values, strict=True))


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to prune, over its tasks.

    Attributes:
        form: the form of the pruned units: `remove`, `mask`, `uniform`; `none` without pruning.
        percent: share of the units that is pruned.
        requested_percent: the percentage that was asked for; None where layers or units were.
        heads_kept, counts: of the plans, whatever their units are; None where they differ between
            seeds.
        kept_between: the smallest and the largest number of units that a plan keeps, where it
            differs between seeds; None in tables of earlier versions.
        units: the number of units that the plans decide on.
        cells: the cells by task.
        signature: the signature of the figures, with `*` where seeds or tasks differ.
    """

    label: str
    kind: str
    form: str
    percent: float
    requested_percent: float | None
    heads_kept: int | None
    counts: str | None
    units: int
    cells: Mapping[str, Cell]
    signature: str
    kept_between: tuple[int, int] | None = None

    @property
    def kept(self) -> Kept:
        """The number of kept units as tables show it."""
        return Kept(self.heads_kept, self.units, self.kept_between)


def name_of(row: Row) -> str:
    """The label of a row; marked if the model was not fine-tuned."""
    return row.label + UNTRAINED.get(row.kind, "")


@dataclass(frozen=True, kw_only=True)
class Task:
    """The facts that all records of a task share.

    Attributes:
        metric: the one that is reported.
        metric_signatures: the signatures of metrics, for those that have one.
        examples: number of examples of each split.
        signature: the signature of the task's figures, with `*` where its models differ.
        test_signature: the signature of the significance test, if there is one.
    """

    metric: str
    metric_signatures: Mapping[str, str]
    examples: Mapping[str, int]
    signature: str
    test_signature: str | None


@dataclass(frozen=True, kw_only=True)
class ResultTable:
    """A study's outcome.

    Attributes:
        model: the pretrained model that all models come from, where it is known.
        baseline: the unpruned model as it was first trained.
        control: the unpruned model, fine-tuned for as long as the pruned ones.
        rows: the pruned models, in the order in which they were given.
        heads: units of the unpruned model that the plans decide on.
        unit_names: ``heads``, ``neurons``, ``layers``; ``units`` where they are of several kinds.
        layers: its number of layers.
    """

    study: str
    model: str | None
    baseline: Row | None
    control: Row | None
    rows: tuple[Row, ...]
    tasks: Mapping[str, Task]
    heads: int
    unit_names: str
    layers: int

    @property
    def share_label(self) -> str:
        """The label of an axis with the share of units pruned."""
        units = "attention heads" if self.unit_names == "heads" else self.unit_names
        return f"{units} pruned (%)"

    @property
    def compared_with(self) -> Row | None:
        """The reference row for differences: the control, or else the baseline."""
        return self.control or self.baseline

    @property
    def lines(self) -> tuple[Row, ...]:
        """The rows of unpruned models, if any, and all other rows."""
        unpruned = (row for row in (self.baseline, self.control) if row is not None)
        return (*unpruned, *self.rows)


def summarise(
    results: Sequence[Located], *, paper: Sequence[PaperFigures] = (), test: bool = True
) -> ResultTable:
    """Gather records into a table.

    Args:
        results: records and their files; copies of a record count once.
        paper: the paper's tables to set beside it; the first that has a row's like is taken.
        test: test each model against the control of the same task and seed.

    Raises:
        DataError: records that cannot be in one table, different ones of one seed of a row, or
            fine-tunings of several lengths.
    """
    if not results:
        raise DataError("no result to report")
    results = merged(results)
    require_comparable(results)
    require_one_length(results)
    groups = _groups(results)
    unpruned = {kind: _only(groups, kind) for kind in ("baseline", "control")}
    references = unpruned["control"] or unpruned["baseline"]
    tests = _Tests()
    if test:
        for task in dict.fromkeys(record.task for _, record in results):
            tests.add(task, groups, controls=unpruned["control"].get(task, []))
    rows = [
        _row(
            by_task,
            references={} if kind in unpruned else _comparable(references, by_task),
            tests=tests,
            paper=paper if kind == "pruned" else (),
        )
        for (kind, _, _), by_task in groups.items()
    ]
    units = max(row.units for row in rows)
    # The plan of an unpruned model may name its heads alone where others prune neurons too.
    rows = [
        replace(row, heads_kept=units, units=units)
        if row.kind in unpruned and row.heads_kept == row.units
        else row
        for row in rows
    ]
    by_kind = {row.kind: row for row in rows}
    first = results[0][1]
    return ResultTable(
        study=first.study,
        model=first.model,
        baseline=by_kind.get("baseline"),
        control=by_kind.get("control"),
        rows=tuple(row for row in rows if row.kind not in unpruned),
        tasks=_tasks([record for _, record in results], tests),
        heads=units,
        unit_names=unit_names(name for _, record in results for name in record.plan.units),
        layers=max(len(layers) for layers in first.plan.units.values()),
    )


def cell_of(
    records: Sequence[Record],
    *,
    references: Sequence[Record] = (),
    p_values: Sequence[float] = (),
    paper: Sequence[PaperFigures] = (),
    constant: int | None = None,
) -> Cell:
    """The cell for records that differ in their seeds only.

    Args:
        references: the records to which the difference is computed.
        p_values: the p-value of each record, if tested.
        paper: the paper's tables.
        constant: the number of models that give one output for every example; None to count those
            whose record says so.
    """
    values = tuple(record.value for record in records)
    value = spread(values)
    sizes = [record.parameters for record in records if record.parameters is not None]
    delta, pairs = _difference(records, references)
    paper_deltas = (table.delta_of(records) for table in paper)
    return Cell(
        value=value,
        values=values,
        metrics={
            name: spread([record.metrics[name] for record in records])
            for name in records[0].metrics
            if all(name in record.metrics for record in records)
        },
        seeds=tuple(record.seed for record in records),
        parameters=spread(sizes).mean if len(sizes) == len(records) else None,
        delta=delta,
        pairs=pairs,
        p_values=tuple(p_values),
        paper_delta=next((delta for delta in paper_deltas if delta is not None), None),
        signature=common_part([record.signature for record in records]),
        constant=constant_seeds(records) if constant is None else constant,
    )


def _difference(
    records: Sequence[Record], references: Sequence[Record]
) -> tuple[float | None, int | None]:
    """The mean difference to the references, and the number of pairs where it is below n."""
    if not references:
        return None, None
    values, of_references = (
        {record.seed: record.value for record in each} for each in (records, references)
    )
    difference = mean_paired(values, of_references)
    if difference.pairs in (0, len(values)):
        return difference.mean, None
    if references[0].kind == "baseline":
        # It draws nothing: all models come from it, those of other seeds too.
        return spread([*values.values()]).mean - spread([*of_references.values()]).mean, None
    return difference.mean, difference.pairs


_ByTask = dict[str, list[Located]]
_Groups = dict[tuple[str, str, str], _ByTask]
"""The records of each kind, row and form, by task and in the order of seeds."""


def _groups(results: Sequence[Located]) -> _Groups:
    groups: _Groups = {}
    for path, record in results:
        key = (record.kind, record.row, record.form)
        groups.setdefault(key, {}).setdefault(record.task, []).append((path, record))
    for by_task in groups.values():
        for same in by_task.values():
            same.sort(key=lambda item: item[1].seed)
    return groups


def _only(groups: _Groups, kind: str) -> _ByTask:
    """The records of the only row of a kind; empty if there is none."""
    rows = [by_task for (other, _, _), by_task in groups.items() if other == kind]
    if len(rows) > 1:
        paths = [next(iter(by_task.values()))[0] for by_task in rows]
        named = " and ".join(f"{record.row!r} ({path})" for path, record in paths)
        raise DataError(
            f"more than one {kind} row to compare the others with: {named}; leave out all but one"
        )
    return rows[0] if rows else {}


class _Tests:
    """The tests against controls: p-values by file, and signatures by task."""

    def __init__(self) -> None:
        self.p_values: dict[Path, float] = {}
        self.signatures: dict[str, str] = {}

    def add(self, task: str, groups: _Groups, *, controls: Sequence[Located]) -> None:
        """Test each model of a task against the control of its seed, if there is one."""
        for control in controls:
            test = TESTS.get(control[1].metric)
            if test is None or not test.applies_to(control[1]):
                continue
            models = [
                located
                for (kind, _, _), by_task in groups.items()
                for located in by_task.get(task, [])
                if kind in test.kinds
                and test.applies_to(located[1])
                and located[1].seed == control[1].seed
                and not has_more_trainings(located[1], control[1])
            ]
            if not models:
                continue
            tested = test.run(control, models)
            self.p_values |= dict(zip((path for path, _ in models), tested.p_values, strict=True))
            if tested.signature is not None:
                self.signatures.setdefault(task, tested.signature)


def _comparable(references: _ByTask, by_task: _ByTask) -> _ByTask:
    """The references of the tasks whose models were not fine-tuned more often than the control.

    The others are named on standard error: more training would be taken for an effect of pruning.
    """
    comparable = {}
    for task, located in by_task.items():
        record = located[0][1]
        of_task = references.get(task, [])
        if of_task and has_more_trainings(record, of_task[0][1]):
            print(
                f"warning: {task}: {record.row!r} was fine-tuned for {length_of(record)}, the "
                f"control for {length_of(of_task[0][1])}: no difference is shown",
                file=sys.stderr,
            )
        else:
            comparable[task] = of_task
    return comparable


def _row(
    by_task: _ByTask, *, references: _ByTask, tests: _Tests, paper: Sequence[PaperFigures]
) -> Row:
    records = [record for located in by_task.values() for _, record in located]
    kept, counts = {r.plan.total_kept for r in records}, {str(r.plan) for r in records}
    first = records[0]
    return Row(
        label=first.row,
        kind=first.kind,
        form=first.form,
        percent=spread([record.percent for record in records]).mean,
        requested_percent=first.requested_percent,
        heads_kept=next(iter(kept)) if len(kept) == 1 else None,
        counts=counts.pop() if len(counts) == 1 else None,
        units=max(record.plan.total for record in records),
        cells={
            task: cell_of(
                [record for _, record in located],
                references=[record for _, record in references.get(task, [])],
                p_values=[tests.p_values[path] for path, _ in located if path in tests.p_values],
                paper=paper,
                constant=sum(map(is_constant_model, located)),
            )
            for task, located in by_task.items()
        },
        signature=common_part([record.signature for record in records]),
        kept_between=None if len(kept) == 1 else (min(kept), max(kept)),
    )


def _tasks(records: Sequence[Record], tests: _Tests) -> dict[str, Task]:
    tasks = {}
    for name in dict.fromkeys(record.task for record in records):
        same_task = [record for record in records if record.task == name]
        tasks[name] = Task(
            metric=same_task[0].metric,
            metric_signatures=same_task[0].metric_signatures,
            examples=max((record.examples for record in same_task), key=len),
            signature=common_part([record.signature for record in same_task]),
            test_signature=tests.signatures.get(name),
        )
    return tasks
