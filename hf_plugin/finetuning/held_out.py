"""Training examples that a model was not fine-tuned on.

Scores are computed on one half of them, and the ablation that evaluates the scores on the other
half. Neither half was used to train the model, and the pruned model is measured on another set.
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
from headprune.scores.parts import FEWEST, SUBSET_SEED, in_parts
from headprune.scores.registry import ABLATION, SCORING
from hf_plugin.tasks.examples import Examples
from hf_plugin.tasks.task import MAX_LENGTH, LabelledData

HOLD_OUT = 10.0
"""Default percentage of the training set that is held out."""

RECORD = "headprune_training.json"
"""File in a model's folder that records the examples of its fine-tuning."""


@dataclass(frozen=True)
class TrainingPart:
    """The part of the training set that a fine-tuning uses.

    Attributes:
        max_examples: the largest number of examples, which are drawn at random.
        hold_out: percentage of the training set that is not used.
    """

    max_examples: int | None = None
    hold_out: float = 0.0

    def size(self, examples: int) -> int:
        """Compute the number of examples used, at least 1, of a training set of ``examples``."""
        available = examples - math.ceil(examples * self.hold_out / 100)
        return max(1, available if self.max_examples is None else min(self.max_examples, available))


@dataclass(frozen=True)
class HeldOut:
    """Indices of training examples for scores, and for the ablation that evaluates them.

    Attributes:
        scoring: examples for scores, in random order.
        ablation: examples for ablation, in random order; none of them is in ``scoring``.
        trained_on: whether the model was fine-tuned on them: ``no``, ``yes`` or ``unknown``.
    """

    scoring: Sequence[int]
    ablation: Sequence[int]
    trained_on: str

    def training(self, examples: int, *, most: int | None = None) -> list[int]:
        """Select at most ``most`` indices of examples outside of both parts, in ascending order.

        Where there are none, they are those of ``scoring``.

        Args:
            examples: the size of the training set.
        """
        others = sorted(set(range(examples)).difference(self.scoring, self.ablation))
        if most is not None and most < len(others):
            others = random.Random(SUBSET_SEED).sample(others, most)
        return sorted(others) or self.part(SCORING, most=most)

    def part(self, name: str, *, most: int | None = None) -> list[int]:
        """Select at most ``most`` indices of ``scoring`` or ``ablation``, in ascending order."""
        chosen = self.scoring if name == SCORING else self.ablation
        return sorted(chosen[:most])


@dataclass(frozen=True)
class _Seen:
    """The examples that a model was fine-tuned on, as far as it is known.

    Attributes:
        sizes: the sizes of the random subsets of the training set.
        is_recorded: whether the sizes are recorded, for this training set.
        others: whether the model was fine-tuned on another training set too, or on one that is not
            known. It may have some of the same examples: rows may have been added to its file.
    """

    sizes: tuple[int, ...] = ()
    is_recorded: bool = False
    others: bool = False


def held_out(train: Examples, *, model: Path, parts: Iterable[TrainingPart] = ()) -> HeldOut:
    """Divide the unused training examples into one part for scores and one for ablation.

    If the model was fine-tuned on all examples (or all but three), the whole training set is
    divided, and ``trained_on`` is ``yes``.

    Args:
        train: the whole training set.
        model: folder of the fine-tuned model.
        parts: the parts that later fine-tunings will use; their examples are left out too.
    """
    seen = _seen(model, train)
    used = {
        index
        for size in (*seen.sizes, *(part.size(len(train)) for part in parts))
        for index in train.subset_indices(size)
    }
    indices = [index for index in range(len(train)) if index not in used]
    trained_on = "no" if seen.is_recorded and not seen.others else "unknown"
    if len(indices) < FEWEST:
        indices, trained_on = list(range(len(train))), "yes"
    random.Random(SUBSET_SEED).shuffle(indices)
    divided = in_parts(indices)
    return HeldOut(scoring=divided[SCORING], ablation=divided[ABLATION], trained_on=trained_on)


def record_training(
    folder: Path,
    train: Examples,
    *,
    size: int,
    start: Path,
    is_classifier: bool = False,
    max_length: int | None = None,
) -> None:
    """Record in a model's folder the examples of its fine-tuning.

    Args:
        folder: the folder of the fine-tuned model.
        train: the whole training set.
        size: the size of the random subset that the fine-tuning used.
        start: the folder of the model that the fine-tuning began with, whose record is included. Of
            a record for other data, it is noted that there is one.
        is_classifier: whether that model was a classifier for as many labels, which somebody has
            fine-tuned before. If it has no record, its training set is another one, or not known.
        max_length: the maximum number of tokens of an example.
    """
    before = _seen(start, train)
    others = before.others or (is_classifier and not before.is_recorded)
    content = {
        "format": "headprune.training",
        "version": 1,
        "data": _fingerprint(train),
        "subset_seed": SUBSET_SEED,
        "sizes": sorted({size, *before.sizes}),
        **({"others": True} if others else {}),
        **({} if max_length is None else {"max_length": max_length}),
    }
    write_text_atomically(folder / RECORD, json.dumps(content, indent=1) + "\n")


def default_max_length(model: Path) -> int:
    """The maximum number of tokens of an example that a model was fine-tuned with, else 128."""
    path = model / RECORD
    length = json_object(path).get("max_length") if path.is_file() else None
    return length if type(length) is int and length > 0 else MAX_LENGTH


def copy_record(start: Path, folder: Path) -> None:
    """Copy the record to the folder of a model that was not trained further.

    Without one, a record that lies there from an earlier run is removed.
    """
    if (start / RECORD).is_file():
        write_text_atomically(folder / RECORD, (start / RECORD).read_text(encoding="utf-8"))
    else:
        (folder / RECORD).unlink(missing_ok=True)


def recorded_sizes(model: Path, train: Examples) -> tuple[int, ...] | None:
    """Read the sizes of the random subsets of ``train`` that a model was fine-tuned on.

    None if there is no record, or the record is for other data. For a model of an older version,
    which wrote no record, the sizes follow from the settings in result.json beside its folder; of
    one that was only measured, from its start model.
    """
    seen = _seen(model, train)
    return seen.sizes if seen.is_recorded else None


def _seen(model: Path, train: Examples) -> _Seen:
    """Read what a model was fine-tuned on; see ``recorded_sizes``."""
    followed: set[Path] = set()
    while model.absolute() not in followed:
        followed.add(model.absolute())
        if (model / RECORD).is_file():
            return _read_record(model / RECORD, train)
        settings = _settings_beside(model)
        if settings is None:
            break
        if settings.get("epochs"):
            part = TrainingPart(settings.get("max_train_examples"), settings.get("hold_out", 0.0))
            return _Seen((part.size(len(train)),), is_recorded=True)
        # Without training the model is its start model, perhaps pruned.
        model = Path(str(settings.get("model", "")))
    return _Seen()


def _read_record(path: Path, train: Examples) -> _Seen:
    """Read a record of fine-tunings.

    Raises:
        DataError: its sizes are no sizes.
    """
    record = json_object(path)
    sizes = record.get("sizes")
    if not isinstance(sizes, list) or not all(type(size) is int and size > 0 for size in sizes):
        raise DataError(f"{path}: sizes is {sizes!r}, not a list of whole numbers above 0")
    if record.get("data") != _fingerprint(train) or record.get("subset_seed") != SUBSET_SEED:
        return _Seen(others=True)
    return _Seen(tuple(sizes), is_recorded=True, others=bool(record.get("others")))


def part_given(
    data: LabelledData | None,
    output: Path | None,
    *,
    max_examples: int | None,
    hold_out: float | None,
) -> TrainingPart:
    """The part of the training set that a user asks for.

    A subset of all examples is none, so that the signature names the whole set and a part of it is
    held out.

    Args:
        data: the data; None where they are not written yet.
        output: see ``default_hold_out``.
        max_examples, hold_out: the user's, None where they give none.
    """
    if max_examples is not None and data is not None and "train" in data.splits:
        max_examples = max_examples if max_examples < len(data.load("train")) else None
    if hold_out is None:
        hold_out = default_hold_out(output, max_examples)
    return TrainingPart(max_examples, hold_out)


def default_hold_out(output: Path | None, max_examples: int | None) -> float:
    """Choose the percentage to hold out if the user gives none.

    A run that is resumed in ``output`` keeps its percentage. With a random subset of the examples
    it is 0, because the other examples are unused anyway.
    """
    files = ("result.json", "training/settings.json") if output is not None else ()
    for path in (Path(output or "", file) for file in files):
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
    """Return the settings in a result of `headprune glue`; None if there are none."""
    training = result.get("training")
    settings = training.get("settings") if isinstance(training, dict) else None
    return settings if isinstance(settings, dict) else None


def _fingerprint(train: Examples) -> str:
    digest = hashlib.sha256()
    for texts, label in zip(train.texts, train.labels, strict=True):
        digest.update(json.dumps([*texts, label]).encode())
    return digest.hexdigest()
