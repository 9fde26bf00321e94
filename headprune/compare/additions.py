"""Settings that a comparison's folder gains with the first results that depend on them."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from headprune.compare.claimed_folder import claim
from headprune.compare.store import FOLDERS, TIMES_AT_SPEED
from headprune.methods.method import is_training
from headprune.methods.registry import registered
from headprune.recovery.kinds import Recovery
from headprune.speed.latency import Latency
from headprune.task_model import TaskModel, training_settings


def claim_folder(
    folder: Path, settings: Mapping[str, Any], *, model: TaskModel, latency: Latency | None
) -> None:
    """Claim a comparison's folder; see ``claim``.

    Those of trainings and of speeds are additions. Without a result that depends on them, as after
    flags that fairseq-train refuses, others replace them, and unfinished trainings are removed.

    Args:
        folder: the folder.
        settings: all settings, those of trainings included.
        model: the model; see ``training_settings``.
        latency: the time that units save, for speeds.

    Raises:
        UsageError: it is for other settings.
    """
    of_trainings = training_settings(model)
    unused = [
        *([] if any(_results_of_trainings(folder)) else of_trainings),
        *([] if any(_results_at_speeds(folder)) else ["latency"]),
    ]
    # Every recovery has its own numbers; older versions named one that was alone in its folder.
    replaced = claim(
        folder,
        {name: value for name, value in settings.items() if name not in of_trainings},
        additions={**of_trainings, "latency": None if latency is None else latency.identity},
        replaceable=unused,
        ignored=["recovery"],
    )
    if replaced & {*of_trainings}:
        for unfinished in (*_trainings(folder), folder / "methods"):
            shutil.rmtree(unfinished, ignore_errors=True)


def _results_of_trainings(folder: Path) -> Iterator[Path]:
    """The numbers of trained models, and the plans of methods that train."""
    for recovery in Recovery:
        if recovery.trains:
            yield from (folder / FOLDERS.get(recovery, str(recovery))).glob("*.json")
    for name, method in registered().items():
        if is_training(method):
            yield from (folder / "plans").glob(f"{name}-*.json")


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
        if re.search(r"-[\d.]+x(-seed\d+)?$", path.stem):
            yield path
