"""Fingerprints of the local models that a run reads, to tell when their weights have changed.

A path does not tell: the model in a folder may be trained again, and a folder may be moved. Names
on the hub have no fingerprint here.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

from headprune.errors import HeadpruneError
from hf_plugin.finetuning.models import load_classifier
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.folders import Folder
from hf_plugin.tasks.task import Task

START = "start_fingerprint"
"""The fact about a training that names the weights of the model that it began with."""

_known: dict[tuple[object, ...], str | None] = {}
"""Fingerprints by folder and state: a command may do many runs with one model."""


def start_fingerprint(name: str) -> str | None:
    """The fingerprint of the weights in the folder ``name``; None if they cannot be read.

    A classifier that a fine-tuning adds to an encoder does not count.
    """
    return _remembered(name, "start", lambda: Folder.load(Path(name)).fingerprint)


def teacher_fingerprint(name: str, task: Task) -> str | None:
    """The fingerprint of the teacher in the folder ``name``; None if it cannot be read.

    It is loaded as for the training, whose record names the weights of this very class.

    Args:
        name: the folder.
        task: the task that the student is trained for.
    """
    return _remembered(
        name,
        task.type,
        lambda: model_fingerprint(load_classifier(name, task, untrained=False)),
    )


def _remembered(name: str, kind: str, compute: Callable[[], str]) -> str | None:
    """Compute a fingerprint, once while the folder's files stay as they are."""
    folder = Path(name)
    if not folder.is_dir():
        return None
    key = (folder.resolve(), kind, _state(folder))
    if key not in _known:
        try:
            _known[key] = compute()
        except HeadpruneError:  # what is wrong is said where the model is loaded for its use
            _known[key] = None
    return _known[key]


def _state(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """The names, sizes and times of the files in a folder."""
    with os.scandir(folder) as entries:
        files = [(entry.name, entry.stat()) for entry in entries if entry.is_file()]
    return tuple(sorted((name, stat.st_size, stat.st_mtime_ns) for name, stat in files))
