"""The measurements of a comparison as records, and their means over seeds."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from headprune.budget import Speedup, file_label, goal_of, percent_text
from headprune.compare.rows import CONTROL, Row
from headprune.plan import PruningPlan
from headprune.recovery.kinds import BEFORE, Recovery
from headprune.report.table import Cell, cell_of
from headprune.results.environment import Environment, Environments
from headprune.results.marks import CONSTANT, RESUMED
from headprune.results.record import Record
from headprune.results.signature import signature

if TYPE_CHECKING:
    from headprune.compare.comparison import Comparison

RECORDS = "records"
"""The folder of the records, in that of a comparison."""

KIND_AFTER = {
    Recovery.FINETUNE: "pruned",
    Recovery.REFIT: "refitted",
    Recovery.REFIT_RESIDUAL: "refitted",
    Recovery.DISTILL: "pruned",
    Recovery.DISTILL_SEQUENCES: "pruned",
    Recovery.SCRATCH: "scratch",
}
"""The kind of the record of a pruned model after a recovery."""

_FIRST_OF_KIND = {
    "pruned": Recovery.FINETUNE,
    "control": Recovery.FINETUNE,
    "refitted": Recovery.REFIT,
}
"""For kinds of records of several recoveries, the one whose folder is named after the kind."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One measurement.

    Attributes:
        score: the score that ranked the units, ``random`` or ``control``.
        percent: the requested percentage or speed; see ``Row``.
        moment: ``BEFORE``, or the name of the recovery that had ended.
        measure: the quantity that it is a percentage of; see ``Comparison``.
    """

    score: str
    percent: float
    moment: str
    record: Record
    measure: str = "units"

    @property
    def file(self) -> Path:
        """The record's file, relative to the folder of records."""
        kind = self.record.kind
        # Recoveries of one kind of record have folders of their own.
        is_further = self.moment not in (BEFORE, _FIRST_OF_KIND.get(kind, self.moment))
        folder = Path(f"{kind}-{self.moment}" if is_further else kind)
        if self.score != CONTROL:
            folder = folder / self.score / self._amount
        return folder / f"seed{self.record.seed}.json"

    @property
    def _amount(self) -> str:
        """The name of a folder."""
        goal = goal_of(self.percent, self.measure)
        if isinstance(goal, Speedup):
            return file_label(goal)
        measure = "" if goal.of == "units" else f"-{goal.of}"
        return f"{percent_text(goal.percent)}pct{measure}"


@dataclass(frozen=True)
class Outcomes:
    """All measurements of a comparison, one for each row and moment.

    Attributes:
        trained: the methods that trained the model while they chose its units.
    """

    all: Sequence[Outcome]
    trained: frozenset[str] = frozenset()

    @classmethod
    def of(cls, comparison: Comparison) -> Outcomes:
        """The measurements as records."""
        base = _baseline(comparison)
        return cls(
            [
                *([] if base is None else [base]),
                *(
                    Outcome(
                        score=row.score,
                        percent=row.percent,
                        moment=moment,
                        record=record,
                        measure=comparison.measure,
                    )
                    for row in comparison.rows
                    for moment in (BEFORE, *([] if row.recovery is None else [row.recovery]))
                    if (record := _record(comparison, row, moment)) is not None
                ),
            ],
            frozenset(row.score for row in comparison.rows if row.trained),
        )

    @property
    def scores(self) -> list[str]:
        """The scores compared, in the order of the comparison."""
        return list(dict.fromkeys(each.score for each in self.all if each.score != CONTROL))

    @property
    def percents(self) -> list[float]:
        """The shares to prune, in the order of the comparison."""
        return list(dict.fromkeys(each.percent for each in self.all if each.score != CONTROL))

    @property
    def recoveries(self) -> list[Recovery]:
        """The recoveries after which models were measured, in the order of the comparison."""
        return [Recovery(moment) for moment in self._moments if moment != BEFORE]

    @property
    def _moments(self) -> list[str]:
        """The moments of all measurements, right after pruning first."""
        return list(dict.fromkeys([BEFORE, *(each.moment for each in self.all)]))

    @cached_property
    def distinct(self) -> list[Outcome]:
        """The measurements without repetitions: without fine-tuning, seeds of one plan count once.

        Of methods that draw, a plan that was drawn twice counts twice, as the mean over draws needs
        it.
        """
        plans: dict[tuple[str, float], set[PruningPlan]] = {}
        for each in self.all:
            plans.setdefault((each.score, each.percent), set()).add(each.record.plan)
        distinct: dict[object, Outcome] = {}
        for each in self.all:
            draws = each.score == "random" or len(plans[each.score, each.percent]) > 1
            by_seed = each.record.seed if draws or each.record.finetune != "none" else None
            weights = each.record.fingerprint  # of methods that train, they differ by seed
            key = (each.score, each.percent, each.moment, each.record.plan, weights, by_seed)
            distinct.setdefault(key, each)
        return list(distinct.values())

    @property
    def environments(self) -> Environments:
        """The environments of all distinct measurements."""
        return Environments.of([each.record for each in self.distinct])

    def cell(self, score: str, percent: float, moment: str) -> Cell | None:
        """Mean and standard deviation over seeds; None where nothing was measured.

        A plan that is the same for all seeds has one value without fine-tuning, and no spread.
        """
        records = self.records(score, percent, moment)
        return cell_of(records) if records else None

    def records(self, score: str, percent: float, moment: str) -> list[Record]:
        """The measurements that differ of a score, one for each seed where seeds matter."""
        return [
            each.record
            for each in self.distinct
            if (each.score, each.percent, each.moment) == (score, percent, moment)
        ]

    def moment_of(self, score: str, moment: str) -> str | None:
        """The moment at which a score is compared with the others' ``moment``, at equal cost.

        A method that trains the model is compared right after its own training with the others
        after their fine-tuning, and at no other moment (None).
        """
        if score not in self.trained:
            return moment
        return BEFORE if moment == Recovery.FINETUNE else None

    def cells(self) -> Iterator[tuple[str, float, dict[str, Cell]]]:
        """The cells of scores that compare at equal cost, for each moment and percentage."""
        for moment in self._moments:
            own_moments = {name: self.moment_of(name, moment) for name in self.scores}
            for percent in self.percents:
                cells = {
                    name: self.cell(name, percent, own_moment)
                    for name, own_moment in own_moments.items()
                    if own_moment is not None
                }
                yield moment, percent, {name: cell for name, cell in cells.items() if cell}

    def signed(self, score: str) -> list[list[Record]]:
        """The records of a score after each recovery, by recovery.

        Those right after pruning are among them where there is no recovery, or where the method
        trained the model.
        """
        by_moment: dict[str, list[Record]] = {}
        for outcome in self.all:
            if outcome.score == score and outcome.record.kind != "baseline":
                by_moment.setdefault(outcome.moment, []).append(outcome.record)
        if len(by_moment) > 1 and score not in self.trained:
            by_moment.pop(BEFORE, None)
        return list(by_moment.values())


def save_records(comparison: Comparison, folder: Path) -> None:
    """Write a record for each measurement to a folder within the comparison's."""
    for outcome in Outcomes.of(comparison).distinct:
        path = folder / outcome.file
        files = outcome.record.files
        replace(outcome.record, files=files_beside(path, files, folder=folder.parent)).save(path)


def files_beside(record: Path, files: Mapping[str, str], *, folder: Path) -> dict[str, str]:
    """The names of files relative to a record, where they are relative to ``folder``."""
    return {name: os.path.relpath(folder / file, record.parent) for name, file in files.items()}


def _baseline(comparison: Comparison) -> Outcome | None:
    """The measurement of the model as it was given."""
    if comparison.plan is None:
        return None
    record = record_of(
        comparison,
        comparison.plan,
        model=comparison.model,
        value=comparison.base,
        kind="baseline",
        row="baseline",
        method="none",
        requested_percent=0.0,
        seed=1,
        environment=comparison.environment,
        metric_signature=comparison.metric_signature,
        fingerprint=comparison.fingerprint,
        files=comparison.files,
        training={CONSTANT: comparison.constant},
    )
    return Outcome(score=CONTROL, percent=0.0, moment="before", record=record)


def _record(comparison: Comparison, row: Row, moment: str) -> Record | None:
    """The record of a row and moment; None if there is no measurement."""
    value = row.before if moment == BEFORE else row.after
    is_control = row.score == CONTROL
    if value is None or (is_control and moment == BEFORE):
        return None
    is_last = moment != BEFORE or row.after is None
    is_percentage_of_units = comparison.measure == "units"
    recovery = Recovery.NONE if moment == BEFORE else Recovery(moment)
    trainings = int(recovery.trains) + int(row.trained and recovery != Recovery.SCRATCH)
    kind = KIND_AFTER.get(recovery, "before-finetune")
    return record_of(
        comparison,
        row.head_plan,
        model=comparison.model,
        value=value,
        kind="control" if is_control else kind,
        row=CONTROL if is_control else f"{row.score} {goal_of(row.percent, comparison.measure)}",
        method="none" if is_control else row.score,
        requested_percent=row.percent if is_percentage_of_units else None,
        seed=row.seed,
        recovery=comparison.name_of(recovery),
        trainings=trainings,
        environment=row.environment_before if moment == BEFORE else row.environment_after,
        metric_signature=comparison.metric_signature,
        fingerprint=row.fingerprint_before if moment == BEFORE else row.fingerprint_after,
        files=row.files_before if moment == BEFORE else row.files_after,
        training={
            "parameters": row.parameters,
            "flops": row.flops,
            "predicted_speedup": None if is_control else row.predicted_speedup,
            RESUMED: None if moment == BEFORE else row.resumed,
            CONSTANT: row.constant if is_last else row.constant_before,
        },
    )


class _Task(Protocol):
    """The task of a record: a ``Comparison`` or a ``TaskModel``."""

    @property
    def task(self) -> str: ...
    @property
    def metric(self) -> str: ...
    @property
    def data_name(self) -> str: ...
    @property
    def finetune_name(self) -> str: ...


def record_of(
    task: _Task,
    plan: PruningPlan,
    *,
    model: str | None,
    value: float,
    kind: str,
    row: str,
    method: str,
    requested_percent: float | None,
    seed: int,
    environment: Environment | None,
    metric_signature: str | None,
    fingerprint: str | None,
    training: Mapping[str, Any],
    recovery: str | None = None,
    trainings: int | None = None,
    finetune: str | None = None,
    form: str | None = None,
    data: str | None = None,
    files: Mapping[str, str] | None = None,
    study: str = "",
) -> Record:
    """The record of one measurement.

    Args:
        plan: the units of the measured model.
        method: the method that chose them; ``none`` where nothing is pruned.
        training: facts that are None are left out.
        recovery: the name of what was done besides fine-tuning; see ``signature``.
        trainings: the number of trainings; None: one for the kinds of records that are trained.
        finetune: the length of the fine-tuning; None: that of the task, once for each training.
        form: the form of the pruned units; None: ``remove``.
        data: the name of the data; None: that of the task.
        model, value, study, ...: see ``Record``.
    """
    if trainings is None:
        trainings = int(kind in ("control", "pruned", "scratch"))
    if finetune is None:
        finetune = "+".join([task.finetune_name] * trainings) or "none"
    form = "none" if plan.is_full else form or "remove"
    where = environment or Environment()
    metric = task.metric.lower()  # signatures and titles write BLEU, records bleu
    return Record(
        kind=kind,
        row=row,
        study=study,
        task=task.task,
        metrics={metric: value},
        metric_signatures={} if metric_signature is None else {metric: metric_signature},
        plan=plan,
        form=form,
        requested_percent=requested_percent,
        seed=seed,
        finetune=finetune,
        signature=signature(
            plan,
            select=method,
            seed=seed,
            form=form,
            finetune=finetune,
            data=task.data_name if data is None else data,
            recovery=recovery,
        ),
        model=model,
        fingerprint=fingerprint,
        files={**(files or {})},
        seconds=where.seconds,
        device=where.device,
        versions=where.versions,
        training={name: fact for name, fact in training.items() if fact is not None},
    )
