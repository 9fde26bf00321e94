"""Settings that a comparison's folder gains with the first results that depend on them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from headprune.compare.claimed_folder import claim
from headprune.compare.store import FOLDERS, TIMES_AT_SPEED, VERIFIED
from headprune.errors import UsageError
from headprune.json_files import json_object
from headprune.methods.method import is_training
from headprune.methods.registry import registered
from headprune.recovery.distillation import DISTILL_SETTINGS
from headprune.recovery.kinds import Recovery
from headprune.scores.names import FINE_TUNED
from headprune.speed.latency import Latency
from headprune.task_model import TaskModel, holds_out_the_same, training_settings

_OF_HELD_OUT = ("scores", "plans", "refitted", "refit-residual")
"""Folders of results that depend on the examples held out from training."""


def claim_folder(
    folder: Path,
    settings: Mapping[str, Any],
    *,
    model: TaskModel,
    scores: Collection[str],
    latency: Latency | None,
) -> None:
    """Claim a comparison's folder; see ``claim``.

    Without a result that depends on them, as where nothing was trained yet, settings of trainings
    and of speeds replace those of the folder, and unfinished trainings are removed. A run without
    trainings leaves them as they are. Either way, scores must be of the same examples as before.

    Args:
        folder: the folder.
        settings: all settings, those of trainings included.
        model: the model; see ``training_settings``.
        scores: the names of the scores that the run needs.
        latency: the time that units save, for speeds.

    Raises:
        UsageError: it is for other settings.
    """
    of_trainings = training_settings(model)
    of_teacher = {name: of_trainings.get(name) for name in DISTILL_SETTINGS}
    of_schedule = [name for name in of_trainings if name in settings and name not in of_teacher]
    has_trained = any(_results_of_trainings(folder))
    is_training_now = model.can_finetune or bool({*FINE_TUNED} & {*scores})
    replaceable = [
        *(of_trainings if is_training_now and not has_trained else []),
        *([] if any(_results_at_speeds(folder)) else ["latency"]),
    ]
    if not (has_trained and is_training_now):
        _require_same_examples(folder, settings, of_schedule, model=model)
    # Every recovery has its own numbers; older versions named one that was alone in its folder.
    replaced = claim(
        folder,
        {name: value for name, value in settings.items() if name not in of_teacher},
        additions={**of_teacher, "latency": None if latency is None else latency.identity},
        replaceable=replaceable,
        unused=[] if is_training_now else of_schedule,
        ignored=["recovery"],
    )
    if replaced & {*of_trainings}:
        for unfinished in (*_trainings(folder), folder / "methods"):
            shutil.rmtree(unfinished, ignore_errors=True)


def data_name_of(folder: Path, model: TaskModel) -> str:
    """The name of the data in signatures.

    A run without trainings leaves those of the folder as they are, and the name of their data.
    """
    path = folder / "compare.json"
    if model.can_finetune or not path.exists():
        return model.data_name
    return str(json_object(path).get("data_name") or model.data_name)


def _require_same_examples(
    folder: Path, settings: Mapping[str, Any], of_schedule: Sequence[str], *, model: TaskModel
) -> None:
    """Raise a UsageError where other examples than those of the folder's scores are held out."""
    path = folder / "settings.json"
    if not path.exists() or not any(any((folder / name).glob("*")) for name in _OF_HELD_OUT):
        return
    known = json_object(path)
    differing = sorted(name for name in of_schedule if known.get(name) != settings[name])
    if differing and not holds_out_the_same(model, known):
        raise UsageError(
            f"{folder}: holds scores of other training examples than those held out with these "
            f"settings ({', '.join(differing)}); choose another folder or delete this one"
        )


def _results_of_trainings(folder: Path) -> Iterator[Path]:
    """The numbers of trained models, and the scores and plans of methods that train."""
    for recovery in Recovery:
        if recovery.trains:
            yield from (folder / FOLDERS.get(recovery, str(recovery))).glob("*.json")
    for name, method in registered().items():
        if is_training(method):
            yield from (folder / "plans").glob(f"{name}-*.json")
    for name in FINE_TUNED:
        yield from (folder / "scores").glob(f"{name}.json")


def _trainings(folder: Path) -> Iterator[Path]:
    """The folders of unfinished trainings."""
    for recovery in Recovery:
        if recovery.trains:
            parent = folder / FOLDERS.get(recovery, str(recovery))
            yield from (path for path in parent.glob("*") if path.is_dir())


def _results_at_speeds(folder: Path) -> Iterator[Path]:
    """The run times, records and plans for speeds; see ``file_label``."""
    yield from folder.glob(TIMES_AT_SPEED)
    yield from folder.glob("records/*/*/*x")
    for path in (folder / "plans").glob("*.json"):
        if re.search(rf"-[\d.]+x(-seed\d+)?({VERIFIED}\d+)?$", path.stem):
            yield path
