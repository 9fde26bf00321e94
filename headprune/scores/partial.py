"""Files of unfinished scores, so that a command that was killed resumes.

The folder is that of the command in progress, whatever backend computes the scores: backends do
not pass it on.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from headprune.files import write_text_atomically


@dataclass(frozen=True)
class _Block:
    """A block of ``partial_results``: its folder, and the files that scores in it have used."""

    folder: Path
    used: set[Path] = field(default_factory=set)


_BLOCK: ContextVar[_Block | None] = ContextVar("block", default=None)

_SUFFIX = ".unfinished.jsonl"


@contextmanager
def partial_results(folder: Path) -> Iterator[None]:
    """A context in which scores write their parts to a folder, and read those of a killed command.

    The files of these scores are removed at the end of the block, in which scores have to be saved;
    they stay where it fails. Those of other scores stay too: a later block resumes them. The caller
    holds the lock of the folder.
    """
    block = _Block(folder)
    token = _BLOCK.set(block)
    try:
        yield
    finally:
        _BLOCK.reset(token)
    for path in block.used:
        path.unlink(missing_ok=True)


class Parts:
    """The finished parts of a score, one JSON object a line, in a file of the current folder.

    Outside of ``partial_results`` there is no file, and no part is kept.
    """

    def __init__(self, name: str, identity: Mapping[str, Any]) -> None:
        """Read the parts of a run that was killed.

        Args:
            name: the name of the score.
            identity: JSON values that two runs have in common only if their parts are the same.
                Numbers may differ by rounding.
        """
        block = _BLOCK.get()
        self._path = None if block is None else block.folder / f"{name}{_SUFFIX}"
        self.finished: list[dict[str, Any]] = []
        if block is None or self._path is None:
            return
        block.used.add(self._path)
        lines = _lines(self._path)
        if lines and _is_close(lines[0], json.loads(json.dumps(dict(identity)))):
            self.finished = lines[1:]
            return
        write_text_atomically(self._path, json.dumps(dict(identity)) + "\n")

    def add(self, part: Mapping[str, Any]) -> None:
        """Write a finished part."""
        if self._path is not None:
            with self._path.open("a") as file:
                file.write(json.dumps(dict(part)) + "\n")


def _lines(path: Path) -> list[dict[str, Any]]:
    """The objects of a file, without a line that was being written at the end."""
    if not path.is_file():
        return []
    objects: list[dict[str, Any]] = []
    whole = ""
    for line in path.read_text().splitlines(keepends=True):
        try:
            objects.append(json.loads(line))
        except ValueError:
            break
        if not line.endswith("\n"):
            objects.pop()
            break
        whole += line
    write_text_atomically(path, whole)
    return objects


def _is_close(one: Any, other: Any) -> bool:
    """Check that two JSON values are the same but for rounding."""
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-5, abs_tol=1e-7)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_is_close, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_is_close(one[key], other[key]) for key in one)
    return bool(one == other)
