"""Training examples that a model was not fine-tuned on.

Scores are computed on one half of them, the ablation that judges the scores on the other. So no
score has seen what it is judged on, and neither has seen what trained the model or what the pruned
model is measured on.
"""

from __future__ import annotations

import hashlib
import json
import math
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.json_files import json_object
from hf_plugin.glue.data import SUBSET_SEED, Examples

HOLD_OUT = 10.0
"""Percentage of the training set that is held out where nothing else is asked for."""

RECORD = "headprune_training.json"
"""File in a model's folder that says which examples it was fine-tuned on."""

FEWEST = 2
"""Examples that each part needs at least: ablation tests differences over examples."""


@dataclass(frozen=True)
class TrainingPart:
    """The examples of the training set that a fine-tuning uses.

    Attributes:
        max_examples: at most this number of examples, drawn at random.
        hold_out: percentage of the training set that is not used.
    """

    max_examples: int | None = None
    hold_out: float = 0.0

    def size(self, examples: int) -> int:
        """The number of examples used, of a training set of ``examples``; one at least."""
        rest = examples - math.ceil(examples * self.hold_out / 100)
        return max(1, rest if self.max_examples is None else min(self.max_examples, rest))


@dataclass(frozen=True)
class HeldOut:
    """Indices of training examples for scores, and for the ablation that judges them.

    Attributes:
        scoring: for scores, in random order.
        ablation: for ablation, in random order; none is in ``scoring``.
        trained_on: whether a fine-tuning used them: ``no``, ``yes`` or ``unknown``.
    """

    scoring: Sequence[int]
    ablation: Sequence[int]
    trained_on: str

    def part(self, name: str, *, most: int | None = None) -> list[int]:
        """Indices of ``scoring`` or ``ablation``, ``most`` at the most, in ascending order."""
        chosen = self.scoring if name == "scoring" else self.ablation
        return sorted(chosen[:most])


def held_out(train: Examples, *, model: Path, parts: Iterable[TrainingPart] = ()) -> HeldOut:
    """Split the training examples that were not used into a scoring and an ablation part.

    Where a model was fine-tuned on all examples (or all but three), each half of the whole
    training set is one part, and ``trained_on`` says so.

    Args:
        train: the whole training set.
        model: folder of the fine-tuned model.
        parts: of fine-tunings to come, whose examples are left out too.
    """
    sizes = recorded_sizes(model, train)
    used = {
        index
        for size in (*(sizes or ()), *(part.size(len(train)) for part in parts))
        for index in train.subset_indices(size)
    }
    rest = [index for index in range(len(train)) if index not in used]
    trained_on = "unknown" if sizes is None else "no"
    if len(rest) < 2 * FEWEST:
        rest, trained_on = list(range(len(train))), "yes"
    random.Random(SUBSET_SEED).shuffle(rest)
    half = (len(rest) + 1) // 2
    return HeldOut(scoring=rest[:half], ablation=rest[half:], trained_on=trained_on)


def record_training(folder: Path, train: Examples, *, size: int, start: Path) -> None:
    """Write into a model's folder which examples it was fine-tuned on.

    Args:
        folder: of the fine-tuned model.
        train: the whole training set.
        size: of the random subset that the fine-tuning used.
        start: folder of the model that the fine-tuning began with, whose examples count too.
    """
    content = {
        "format": "headprune.training",
        "version": 1,
        "data": _fingerprint(train),
        "subset_seed": SUBSET_SEED,
        "sizes": sorted({size, *(recorded_sizes(start, train) or ())}),
    }
    write_text_atomically(folder / RECORD, json.dumps(content, indent=1) + "\n")


def copy_record(start: Path, folder: Path) -> None:
    """Copy the record, if there is one, to a folder of a model that was not trained further."""
    if (start / RECORD).is_file():
        write_text_atomically(folder / RECORD, (start / RECORD).read_text(encoding="utf-8"))


def recorded_sizes(model: Path, train: Examples) -> tuple[int, ...] | None:
    """Sizes of the random subsets of ``train`` that a model was fine-tuned on.

    None where nothing says so, or where the record is of other data. A run that is older than the
    record has its settings in result.json beside the model's folder.
    """
    path = model / RECORD
    if path.is_file():
        record = json_object(path)
        sizes = record.get("sizes")
        if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
            raise DataError(f"{path}: sizes is {sizes!r}, not a list of whole numbers above 0")
        same = record.get("data") == _fingerprint(train)
        return tuple(sizes) if same and record.get("subset_seed") == SUBSET_SEED else None
    settings = _settings_beside(model)
    if settings is None:
        return None
    part = TrainingPart(settings.get("max_train_examples"), settings.get("hold_out", 0.0))
    return (part.size(len(train)),) if settings.get("epochs") else ()


def default_hold_out(output: Path, max_examples: int | None) -> float:
    """The percentage to hold out where the user names none.

    A run that is resumed in ``output`` keeps its value; a random subset leaves examples out anyway.
    """
    for path in (output / "result.json", output / "training" / "settings.json"):
        if path.is_file():
            content = json_object(path)
            settings = _inner(content) if path.name == "result.json" else content
            hold_out = (settings or {}).get("hold_out", 0.0)
            return hold_out if isinstance(hold_out, float) else 0.0
    return 0.0 if max_examples is not None else HOLD_OUT


def _settings_beside(model: Path) -> dict[str, Any] | None:
    path = model.parent / "result.json"
    if model.name != "model" or not path.is_file():
        return None
    return _inner(json_object(path))


def _inner(result: dict[str, Any]) -> dict[str, Any] | None:
    """The settings in a result of `headprune glue`; None where there are none."""
    training = result.get("training")
    settings = training.get("settings") if isinstance(training, dict) else None
    return settings if isinstance(settings, dict) else None


def _fingerprint(train: Examples) -> str:
    digest = hashlib.sha256()
    for texts, label in zip(train.texts, train.labels, strict=True):
        digest.update(json.dumps([*texts, label]).encode())
    return digest.hexdigest()
