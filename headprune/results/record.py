"""Records: one JSON file for each measurement of a model."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.json_files import json_object, known_values
from headprune.plan import PruningPlan, is_whole
from headprune.results.metrics import range_of
from headprune.results.old_formats import CONVERTERS

FORMAT = "headprune.record"
_VERSION = 1

KINDS = ("baseline", "control", "pruned", "before-finetune", "refitted", "scratch")
"""The unpruned model; the unpruned model fine-tuned for as long as the pruned ones; a pruned and
fine-tuned model; a model right after pruning; a pruned model that was re-fitted without training;
a model of a pruned shape that was trained from
random weights."""

_ROUNDING = 1e-6
"""sacreBLEU gives 100.00000000000004 for a perfect translation."""


@dataclass(frozen=True, kw_only=True)
class Record:
    """One measurement of one model on one task.

    Attributes:
        study: the study that it belongs to; empty without one.
        kind: one of ``KINDS``.
        row: the label of the table's row that it belongs to.
        task: ``translation``, a task of GLUE, or the name of a user's.
        metrics: the values by name, times 100 (correlations lie between -100 and 100; those of
            ``LOW_IS_GOOD`` are not multiplied). The first is the one that tables report.
        metric_signatures: the signature of a metric, for those that have one (sacreBLEU's).
        plan: the units that the model keeps, and the origin of the plan.
        form: the form of the pruned units: ``remove``, ``mask``, ``uniform``; ``none`` without
            pruning; ``remove+uniform`` for a model with units in both forms.
        requested_percent: the requested percentage, if any; the plan's percentage may differ, as
            the number of heads is rounded to a whole number.
        seed: the seed of the plan and of the fine-tuning.
        finetune: length of the fine-tuning, such as ``30ep``; ``none`` without.
        signature: the signature of the figures.
        model: the model that was pruned, if known.
        fingerprint: the fingerprint of the measured weights, if known.
        examples: number of examples of each split of the data that was used.
        files: text files that belong to the record, relative to its folder: ``hypotheses`` and
            ``reference``, or ``predictions``.
        seconds: wall time of training and measuring, where it is known.
        device: the processor, where it is known.
        versions: the versions of the packages that the figures depend on.
        training: facts about the training, such as ``parameters`` (weights of the model), and
            those that ``headprune.results.marks`` names.
        unknown: fields of later versions, which are written back as they were.
    """

    task: str
    metrics: dict[str, float]
    plan: PruningPlan
    signature: str
    study: str = ""
    kind: str = "pruned"
    row: str = ""
    form: str = "remove"
    requested_percent: float | None = None
    seed: int = 1
    finetune: str = "none"
    metric_signatures: dict[str, str] = field(default_factory=dict)
    model: str | None = None
    fingerprint: str | None = None
    examples: dict[str, int] = field(default_factory=dict)
    files: dict[str, str] = field(default_factory=dict)
    seconds: float | None = None
    device: str | None = None
    versions: dict[str, str] = field(default_factory=dict)
    training: dict[str, Any] = field(default_factory=dict)
    unknown: dict[str, Any] = field(default_factory=dict)

    @property
    def metric(self) -> str:
        """The name of the metric that tables report."""
        return next(iter(self.metrics))

    @property
    def value(self) -> float:
        """The value of that metric."""
        return self.metrics[self.metric]

    @property
    def percent(self) -> float:
        """The share of the plan's units that are pruned, in percent."""
        return self.plan.percent_pruned

    @property
    def parameters(self) -> int | None:
        """The number of weights of the model, where it is known."""
        return self.training.get("parameters")

    @property
    def settings(self) -> Mapping[str, Any]:
        """The settings of the training, where they are known."""
        settings = self.training.get("settings")
        return settings if isinstance(settings, dict) else {}

    def require_valid(self, *, source: str) -> None:
        """Check that ``load`` will read the record.

        Raises:
            DataError: a value that it refuses, with ``source`` in the message.
        """
        if problem := _problem(self):
            raise DataError(f"{source}: {problem}")
        try:
            json.dumps(self.training, allow_nan=False)
        except ValueError:
            raise DataError(f"{source}: training has a value that is infinite or NaN") from None

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all.

        Raises:
            DataError: it cannot be written, or ``load`` would refuse it.
        """
        self.require_valid(source=f"{path}: not written")
        values = {item.name: getattr(self, item.name) for item in fields(self)}
        values |= {"plan": json.loads(self.plan.to_json()), **values.pop("unknown")}
        content = {"format": FORMAT, "version": _VERSION, **values}
        write_text_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Record:
        """Read a record, or a result of the older formats for translation and for GLUE.

        Raises:
            DataError: the file cannot be read, is no such record, or is of a newer version.
        """
        values = json_object(path)
        name = values.pop("format", None)
        if name not in (FORMAT, *CONVERTERS):
            raise DataError(f'{path}: not a result (no "format": "{FORMAT}")')
        version = values.pop("version", None)
        if version != _VERSION:
            raise DataError(
                f"{path}: result of version {version!r}, this headprune reads {_VERSION}"
            )
        source = f"{path}: not a result"
        if name != FORMAT:
            values = CONVERTERS[name](values, source=source)
        unknown = {name: values.pop(name) for name in list(values) if name not in _FIELDS}
        if isinstance(values.get("plan"), dict):
            values["plan"] = PruningPlan.from_json(
                json.dumps(values["plan"]), source=f"{path}: plan"
            )
        record = cls(**known_values(cls, values, source=source), unknown=unknown)
        if problem := _problem(record):
            raise DataError(f"{source}: {problem}")
        return record


_FIELDS = frozenset(item.name for item in fields(Record)) - {"unknown"}


def _problem(record: Record) -> str | None:
    """A description of the first invalid value."""
    if record.kind not in KINDS:
        return f"kind is {record.kind!r}, not one of {', '.join(KINDS)}"
    if not record.metrics:
        return "metrics is empty"
    if not all(":" in part for part in record.signature.split("|")):
        return f"signature is {record.signature!r}, not name:value|name:value"
    parameters = record.training.get("parameters")
    if parameters is not None and (not is_whole(parameters) or parameters < 0):
        return f"training: parameters is {parameters!r}, not a number of weights"
    for name, value in record.metrics.items():
        low, high = range_of(name)
        if not low <= value <= high + _ROUNDING:
            return f"{name} is {value!r}, not between {low:g} and {high:g}"
    asked = record.requested_percent
    if asked is not None and not 0 <= asked <= 100:
        return f"requested_percent is {asked!r}, not between 0 and 100"
    if record.seconds is not None and not 0 <= record.seconds < math.inf:
        return f"seconds is {record.seconds!r}, not 0 or more"
    return None
