"""The run times of plans, in a comparison's folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.json_files import json_object, known_values
from headprune.speed.turns import Quartiles, speedup

TOGETHER = 4
"""The number of pruned models that are in memory, and timed in turns, beside the unpruned one."""

Timing = Callable[[Sequence[int]], list[list[float]]]
"""A function from the numbers of plans to the seconds of each in each round."""


@dataclass(frozen=True)
class _Group:
    """Plans that took turns, the unpruned one first, by name, and their seconds in each round."""

    plans: list[str]
    seconds: list[list[float]]


@dataclass(frozen=True)
class _Times:
    """The file of times: one group, as in older folders, and further ones."""

    plans: list[str] = field(default_factory=list)
    seconds: list[list[float]] = field(default_factory=list)
    more: list[dict[str, Any]] = field(default_factory=list)


def speedups(path: Path, names: Sequence[str], *, rounds: int, time: Timing) -> list[Quartiles]:
    """The speed-up of each plan over the first one: median and quartiles.

    Times of the file are used again; those that it lacks are taken, some plans at a time.

    Args:
        path: the file.
        names: the names of the plans, each once.
        rounds: the number of times that each is timed.
        time: see ``Timing``.

    Raises:
        DataError: the file cannot be read, or a time in it is not above 0.
    """
    groups = [each for each in _read(path) if _is_usable(each, first=names[0], rounds=rounds)]
    known = {name for group in groups for name in group.plans}
    missing = [number for number, name in enumerate(names) if name not in known]
    missing = [number for number in missing if number]
    for start in range(0, len(missing), TOGETHER):
        numbers = [0, *missing[start : start + TOGETHER]]
        groups.append(_Group([names[number] for number in numbers], time(numbers)))
        _write(path, groups)
    found: dict[str, Quartiles] = {names[0]: (1.0, 1.0, 1.0)}
    for group in groups:
        for name, seconds in zip(group.plans, group.seconds, strict=True):
            found.setdefault(name, speedup(group.seconds[0], seconds))
    return [found[name] for name in names]


def _read(path: Path) -> list[_Group]:
    if not path.exists():
        return []
    times = _Times(**known_values(_Times, json_object(path), source=str(path)))
    try:
        groups = [_Group(times.plans, times.seconds), *(_Group(**each) for each in times.more)]
        if any(second <= 0 for group in groups for each in group.seconds for second in each):
            raise DataError(f"{path}: a time that is not above 0")
    except TypeError:
        raise DataError(f"{path}: not a file of times; delete it") from None
    return groups


def _is_usable(group: _Group, *, first: str, rounds: int) -> bool:
    lengths = [len(each) for each in group.seconds]
    return group.plans[:1] == [first] and lengths == [rounds] * len(group.plans)


def _write(path: Path, groups: Sequence[_Group]) -> None:
    first, *others = groups
    content = asdict(first) | ({"more": [asdict(each) for each in others]} if others else {})
    write_text_atomically(path, json.dumps(content) + "\n")
