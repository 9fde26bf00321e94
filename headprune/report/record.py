"""Records: one JSON file for one thing that was measured, with its format and version."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, ClassVar, Self

from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.plan import HeadPlan

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
        names = {f.name for f in fields(cls)}
        wrong = sorted(names.symmetric_difference(values))
        if wrong:
            raise DataError(f"{path}: not a whole result: see {', '.join(wrong)}")
        record = cls(**values)
        if not record._makes_sense():
            raise DataError(f"{path}: not a result: its kind or one of its numbers makes no sense")
        return record

    def _makes_sense(self) -> bool:
        """Whether the kind is known and the numbers are numbers."""
        return self.kind in self.kinds and are_numbers(self.percent, self.seed)


def are_numbers(*values: object) -> bool:
    """Whether each value, as read from JSON, is a number."""
    return all(isinstance(v, (int, float)) and not isinstance(v, bool) for v in values)


def json_object(path: Path) -> dict[str, Any]:
    """The object that a JSON file holds.

    Raises:
        DataError: the file cannot be read, or holds no object.
    """
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except OSError as problem:
        raise DataError(f"{path}: cannot be read: {problem.strerror}") from None
    except (UnicodeDecodeError, json.JSONDecodeError) as problem:
        raise DataError(f"{path}: not JSON: {problem}") from None
    if not isinstance(values, dict):
        raise DataError(f"{path}: not a JSON object")
    return values
