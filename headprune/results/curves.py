"""Training curves: the loss against the number of updates."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headprune.results.record import Record

CURVE = "curve"
"""The fact of a record's `training` that holds the curve."""
_MOST_POINTS = 200
LOG = "training/train.log"
"""The log of fairseq-train, relative to the record of a study."""

Points = tuple[tuple[int, float], ...]
"""Numbers of updates, and the loss after each."""


@dataclass(frozen=True)
class Curve:
    """The losses of one training.

    Attributes:
        train: on training data, means since the point before.
        valid: on the validation set.
    """

    train: Points = ()
    valid: Points = ()

    def __bool__(self) -> bool:
        return bool(self.train or self.valid)

    def as_json(self) -> dict[str, list[list[float]]]:
        """The points as JSON values; of a long training not all, but always the last."""
        return {
            name: [list(point) for point in _thin(points)] for name, points in vars(self).items()
        }

    @classmethod
    def from_json(cls, values: object) -> Curve:
        """Read what ``as_json`` gave; whatever is not a point is left out."""
        if not isinstance(values, Mapping):
            return cls()
        return cls(*(_points(values.get(name)) for name in ("train", "valid")))


def curve_of(path: Path, record: Record) -> Curve:
    """The curve in a record, or in the log beside it; empty where there is none."""
    if CURVE in record.training:
        return Curve.from_json(record.training[CURVE])
    log = path.parent / LOG
    return read_log(log) if log.is_file() else Curve()


_INNER = re.compile(r"\| train_inner \|.* loss=([-\d.einf]+), .*num_updates=(\d+)")
_VALID = re.compile(r"\| valid \|.* \| loss ([-\d.einf]+) \|.* num_updates (\d+)")
_TRAIN = re.compile(r"\| train \| epoch.* \| loss ([-\d.einf]+) \|.* num_updates (\d+)")
BEGINNING_ANEW = "beginning anew"
"""The end of a line of the log of a training whose checkpoints were removed."""
# A fine-tuning that begins has no checkpoint of its own, but loads that of its start.
_BEGINS = re.compile(
    r"No existing checkpoint found|Loaded checkpoint .* @ 0 updates\)|"
    rf"^note: .*; {BEGINNING_ANEW}$"
)


def read_log(path: Path) -> Curve:
    """Read the losses from a log of fairseq-train in its simple format.

    A log may hold a training that was resumed, and then repeats some updates: the later figures
    count. Where the training began anew, the earlier figures do not.
    """
    inner: dict[int, float] = {}
    epochs: dict[int, float] = {}
    valid: dict[int, float] = {}
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        if _BEGINS.search(line):
            for points in (inner, epochs, valid):
                points.clear()
        for pattern, points in ((_INNER, inner), (_TRAIN, epochs), (_VALID, valid)):
            if matched := pattern.search(line):
                loss = _number(matched[1])
                if loss is not None:
                    points[int(matched[2])] = loss
    # A short training has no line within its epochs.
    return Curve(tuple(sorted((inner or epochs).items())), tuple(sorted(valid.items())))


def _thin(points: Points) -> Points:
    """Every n-th point, counted from the last, such that at most ``_MOST_POINTS`` remain."""
    step = -(-len(points) // _MOST_POINTS) or 1
    return points[::-1][::step][::-1]


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _points(values: Any) -> Points:
    if not isinstance(values, list):
        return ()
    return tuple(
        (int(point[0]), float(point[1]))
        for point in values
        if isinstance(point, list)
        and len(point) == 2
        and all(isinstance(number, int | float) and math.isfinite(number) for number in point)
    )
