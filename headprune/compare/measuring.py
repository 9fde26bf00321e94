"""Measure a model with its task, as a record."""

from __future__ import annotations

from dataclasses import replace

from headprune.compare.measured import Measured, timed
from headprune.compare.records import record_of
from headprune.plan import PruningPlan
from headprune.results.labels import kind_of, method_of, requested_percent_of, row_of
from headprune.results.marks import CONSTANT
from headprune.results.record import Record
from headprune.task_model import TaskModel


def measured_record(model: TaskModel, plan: PruningPlan | None = None) -> Record:
    """Measure a model as it is, or right after pruning it to ``plan``.

    Raises:
        UsageError: the plan does not fit the model.
        DataError: the model or its data cannot be read, or its outputs are not finite.
    """
    folder = model.model if plan is None else model.model.prune(plan)  # before it is measured
    others: dict[str, float] = {}

    def measure() -> Measured:
        measurement = model.measure(plan)
        others.update(measurement.others)
        return Measured.of(measurement)

    name = f"{model.model.path}{'' if plan is None else ', pruned'}"
    measured = timed(measure, metric=model.metric, where=model.model.path, model=name)
    kept = (
        folder.plan if plan is None or plan.origin is None else folder.plan.with_origin(plan.origin)
    )
    record = record_of(
        model,
        kept,
        model=str(model.model.path),
        value=measured.value,
        kind=kind_of(kept, finetune="none") if plan is None else "before-finetune",
        row=row_of(kept, default="baseline" if kept.is_full else f"{kept.percent_pruned:.0f}%"),
        method=method_of(kept, default="given"),
        requested_percent=requested_percent_of(kept),
        seed=1,
        environment=measured.environment,
        metric_signature=measured.signature,
        fingerprint=measured.fingerprint,
        training={"parameters": folder.parameters, CONSTANT: measured.constant},
    )
    return replace(record, metrics={**record.metrics, **others})
