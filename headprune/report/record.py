"""Records: one JSON file for one thing that was measured, with its format and version."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.json_files import json_object, known_values
from headprune.plan import HeadPlan, is_whole

_VERSION = 1


@dataclass(frozen=True, kw_only=True)
class Record:
    """What was measured of one model; the base of what is written for each kind of task.

    Attributes:
        study: the study that it belongs to; empty without one.
        kind: which kind of model it is, one of `kinds`.
        row: the label of the table's row that it belongs to.
        percent: share of heads pruned, of the plan.
        requested_percent: the percentage that was asked for, if any; the plan's may differ by
            what a whole number of heads makes of it.
        seed: of the plan and of the fine-tuning.
        plan, counts, heads_kept: the heads that the model has left.
        signature: what the figures are of.
        finetune: length of the fine-tuning, such as `30ep`; `none` without.
        training: facts about the training, such as `parameters` (weights of the model), and those
            that `headprune.report.marks` names.
    """

    format: ClassVar[str]
    kinds: ClassVar[tuple[str, ...]]

    study: str
    kind: str
    row: str
    percent: float
    requested_percent: float | None
    seed: int
    plan: dict[str, Any]
    counts: str
    heads_kept: int
    signature: str
    finetune: str
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> int | None:
        """Number of weights of the model, where it is known."""
        return self.training.get("parameters")

    @property
    def head_plan(self) -> HeadPlan:
        """The plan, read."""
        return HeadPlan.from_json(json.dumps(self.plan), source=f"result {self.row}")

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        content = {"format": self.format, "version": _VERSION, **asdict(self)}
        write_text_atomically(path, json.dumps(content, indent=1, ensure_ascii=False) + "\n")

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a record.

        Raises:
            DataError: the file cannot be read, is no such record, or is of a newer version.
        """
        values = json_object(path)
        if values.pop("format", None) != cls.format:
            raise DataError(f'{path}: not a result (no "format": "{cls.format}")')
        version = values.pop("version", None)
        if version != _VERSION:
            raise DataError(
                f"{path}: result of version {version!r}, this headprune reads {_VERSION}"
            )
        record = cls(**known_values(cls, values, source=f"{path}: not a result"))
        HeadPlan.from_json(json.dumps(record.plan), source=f"{path}: plan")
        if problem := record._problem():
            raise DataError(f"{path}: not a result: {problem}")
        return record

    def _problem(self) -> str | None:
        """The first value that makes no sense, in words."""
        if self.kind not in self.kinds:
            return f"kind is {self.kind!r}, not one of {', '.join(self.kinds)}"
        if not all(":" in part for part in self.signature.split("|")):
            return f"signature is {self.signature!r}, not name:value|name:value"
        parameters = self.training.get("parameters")
        if parameters is not None and (not is_whole(parameters) or parameters < 0):
            return f"training: parameters is {parameters!r}, not a number of weights"
        asked = self.percent if self.requested_percent is None else self.requested_percent
        return (
            outside("percent", self.percent, 0, 100)
            or outside("requested_percent", asked, 0, 100)
            or outside("heads_kept", self.heads_kept, 0, math.inf)
        )


def outside(name: str, value: float, low: float, high: float) -> str | None:
    """The problem in words if ``value`` does not lie between ``low`` and ``high``."""
    if low <= value <= high:
        return None
    wanted = f"{low:g} or more" if high == math.inf else f"between {low:g} and {high:g}"
    return f"{name} is {value!r}, not {wanted}"
