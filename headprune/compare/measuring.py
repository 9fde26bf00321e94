"""Measure a model with its task, as a record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from headprune.compare.measured import Measured, timed
from headprune.compare.records import record_of
from headprune.files import write_text_atomically
from headprune.gates.closing import gates_not_closed
from headprune.model import require_no_uniform_heads
from headprune.plan import PruningPlan
from headprune.provenance import Provenance
from headprune.recovery.kinds import Recovery
from headprune.results.labels import kind_of, method_of, requested_percent_of, row_of
from headprune.results.marks import CONSTANT
from headprune.results.record import Record
from headprune.results.record_files import output_files
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

    A model that lies as ``headprune prune`` wrote it has the origin of its plan, no fine-tuning
    and the recovery of then; see ``Provenance``.

    Args:
        finetune: the length of its fine-tuning, for the signature. None: ``unknown`` for another
            pruned model, which nothing tells from one that was fine-tuned, and ``none`` for others.
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
    # Before it is measured, as these may fail.
    pruned = model.model if plan is None else model.model.prune(plan)
    known = Provenance.of(model.model) if plan is None else None
    measurements: list[Measurement] = []

    def measure() -> Measured:
        measurements.append(model.measure(plan))
        return Measured.of(measurements[-1])

    name = f"{path}{'' if plan is None else ', pruned'}"
    measured = timed(measure, metric=model.metric, where=path, model=name)
    kept = pruned.plan
    if plan is not None and plan.origin is not None:
        kept = kept.with_origin(plan.origin)
    if known is not None:
        kept = known.plan
        finetune = finetune or "none"
        recovery = recovery or known.recovery
    is_refitted = recovery is not None and recovery.startswith(Recovery.REFIT)
    if finetune is None:
        unknown = plan is None and not kept.is_full and not is_refitted
        finetune = UNKNOWN if unknown else "none"
    is_just_pruned = plan is not None or (
        known is not None and finetune == "none" and not kept.is_full
    )
    kind = "before-finetune" if is_just_pruned else kind_of(kept, finetune=finetune)
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
        seed=1 if kept.origin is None or kept.origin.seed is None else kept.origin.seed,
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
    )
    if output is None:
        return record
    places = output_files(output)
    record = replace(record, files={name: places[name].name for name in measurement.outputs})
    record.require_valid(source=f"{output}: not written")  # the outputs stay as they were
    for name, content in measurement.outputs.items():
        write_text_atomically(places[name], content)
    record.save(output)
    return record
