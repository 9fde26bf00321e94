"""The number of open units during a training, read from its log.

Two kinds of files are read: what fairseq-train prints or writes to its ``--log-file``, with
``--log-format`` ``json`` or ``simple``, and ``trainer_state.json`` of transformers' Trainer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headprune.components import COMPONENTS
from headprune.errors import DataError
from headprune.json_files import parse_json, read_limited

_TRAINING = re.compile(r'train_inner|^\{"epoch"|^epoch [0-9]+: +[0-9]+ / [0-9]+')
"""Lines within an epoch, in a ``--log-file`` without the loggers' names. Others have its means."""
_UPDATE = re.compile(r"\bnum_updates[\"=: ]+([0-9]+)")
_OPEN = re.compile(r"\bopen_([A-Z]{2})[\"=: ]+([0-9.]+)")


@dataclass(frozen=True)
class OpenUnits:
    """One line of a training's log.

    Attributes:
        update: the number of updates.
        expected: the expected number of open units of each component.
    """

    update: int
    expected: Mapping[str, float]


def read_history(path: Path) -> list[OpenUnits]:
    """Read the open units of a log, in the order of updates.

    Of a training that was resumed, the later line of an update counts.

    Raises:
        DataError: the file cannot be read, or has no such lines.
    """
    text = read_limited(path, what="the log")
    entries = _of_trainer(text, path) if path.suffix == ".json" else _of_fairseq(text)
    by_update = {entry.update: entry for entry in entries if entry.expected}
    if not by_update:
        raise DataError(f"{path}: no line of the log has the number of open units (open_ES)")
    return [by_update[update] for update in sorted(by_update)]


def _of_fairseq(text: str) -> Iterator[OpenUnits]:
    for line in text.splitlines():
        update = _UPDATE.search(line)
        if update and _TRAINING.search(line):
            found = {name: float(n) for name, n in _OPEN.findall(line) if name in COMPONENTS}
            yield OpenUnits(int(update[1]), found)


def _of_trainer(text: str, path: Path) -> Iterator[OpenUnits]:
    state = parse_json(text, source=str(path))
    entries = state.get("log_history") if isinstance(state, dict) else None
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, dict) and isinstance(entry.get("step"), int):
            found = {
                name: float(entry[f"open_{name}"])
                for name in COMPONENTS
                if isinstance(entry.get(f"open_{name}"), (int, float))
            }
            yield OpenUnits(entry["step"], found)
