"""Measure a model with its task, as a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headprune.compare.measured import Measured, timed
from headprune.compare.records import record_of
from headprune.compare.store import ENDS, REFERENCE
from headprune.files import write_text_atomically
from headprune.gates.closing import gates_not_closed
from headprune.model import require_no_uniform_heads
from headprune.plan import PruningPlan
from headprune.recovery.kinds import Recovery
from headprune.results.environment import versions_of
from headprune.results.labels import kind_of, method_of, requested_percent_of, row_of
from headprune.results.marks import CONSTANT
from headprune.results.record import Record
from headprune.task_model import Measurement, TaskModel

UNKNOWN = "unknown"
"""The length of a fine-tuning, in signatures, that nobody has told."""


def measure_and_save(
    model: TaskModel,
    plan: PruningPlan | None = None,
    *,
    finetune: str | None = None,
    recovery: str | None = None,
    output: Path | None = None,
) -> Record:
    """Measure a model as it is, or right after pruning it to ``plan``.

    Args:
        finetune: the length of its fine-tuning, for the signature. None: ``unknown`` for a pruned
            model, which nothing tells from one that was fine-tuned, and ``none`` for others.
        recovery: what was done after pruning besides fine-tuning, for the signature. A model that
            was re-fitted and not fine-tuned has a record of the kind ``refitted``.
        output: the file for the record. The model's outputs are written beside it.

    Raises:
        UsageError: the plan does not fit the model, or the model has learned gates, or uniform
            heads beside a plan.
        DataError: the model or its data cannot be read, or its outputs are not finite.
    """
    path = model.model.path
    if getattr(model.model, "gates", None) is not None:
        raise gates_not_closed(path)
    if plan is not None:
        require_no_uniform_heads(model.model)
    pruned = model.model if plan is None else model.model.prune(plan)  # before it is measured
    measurements: list[Measurement] = []

    def measure() -> Measured:
        measurements.append(model.measure(plan))
        return Measured.of(measurements[-1])

    name = f"{path}{'' if plan is None else ', pruned'}"
    measured = timed(measure, metric=model.metric, where=path, model=name)
    kept = (
        pruned.plan if plan is None or plan.origin is None else pruned.plan.with_origin(plan.origin)
    )
    is_refitted = recovery is not None and recovery.startswith(Recovery.REFIT)
    if finetune is None:
        unknown = plan is None and not kept.is_full and not is_refitted
        finetune = UNKNOWN if unknown else "none"
    kind = "before-finetune" if plan is not None else kind_of(kept, finetune=finetune)
    if is_refitted and finetune == "none":
        kind = "refitted"
    record = record_of(
        model,
        kept,
        model=str(path),
        value=measured.value,
        kind=kind,
        row=row_of(kept, default="baseline" if kept.is_full else f"{kept.percent_pruned:.0f}%"),
        method=method_of(kept, default="given"),
        requested_percent=requested_percent_of(kept),
        seed=1,
        finetune=finetune,
        recovery=recovery,
        form=pruned.form,
        data=model.measured_data_name,
        environment=measured.environment,
        metric_signature=measured.signature,
        fingerprint=measured.fingerprint,
        training={"parameters": pruned.parameters, CONSTANT: measured.constant},
    )
    measurement = measurements[-1]
    signatures = {**record.metric_signatures, **measurement.other_signatures}
    record = replace(
        record,
        metrics={**record.metrics, **measurement.others},
        metric_signatures=signatures,
        versions={**record.versions, **(versions_of("sacrebleu") if signatures else {})},
    )
    if output is None:
        return record
    files = {}
    for name, content in measurement.outputs.items():
        end = f".reference{ENDS[name]}" if name == REFERENCE else ENDS[name]
        files[name] = f"{output.stem}{end}"
        write_text_atomically(output.with_name(files[name]), content)
    record = replace(record, files=files)
    record.save(output)
    return record
