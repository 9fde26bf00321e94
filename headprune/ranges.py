"""Sets of unit numbers as text: ``0-511,600``."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import chain

from headprune.errors import UsageError

_PART = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)


def format_ranges(numbers: Sequence[int]) -> str:
    """The shortest text that ``parse_ranges`` reads back as the sorted ``numbers``.

    >>> format_ranges((0, 1, 2, 5, 7, 8)), format_ranges(())
    ('0-2,5,7-8', '')
    """
    return ",".join(
        str(first) if first == last else f"{first}-{last}" for first, last in _runs(numbers)
    )


def parse_ranges(text: str) -> tuple[int, ...]:
    """Read ascending ranges of unit numbers.

    Raises:
        UsageError: not such a text, or ranges that overlap or run backwards.
    """
    ranges: list[range] = []
    for part in text.split(",") if text else ():
        match = _PART.fullmatch(part.strip())
        if not match:
            raise UsageError(f"{part!r} is no range of numbers; write 0-511,600")
        run = range(int(match[1]), int(match[2] or match[1]) + 1)
        if not run or (ranges and run.start < ranges[-1].stop):
            raise UsageError(f"{part!r}: ranges have to ascend and not to overlap")
        ranges.append(run)
    if sum(map(len, ranges)) > 10_000_000:
        raise UsageError(f"{text[:40]!r} is more than 10,000,000 numbers")
    return tuple(chain.from_iterable(ranges))


def _runs(numbers: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First and last number of each run of consecutive numbers."""
    start = 0
    for place in range(1, len(numbers) + 1):
        if place == len(numbers) or numbers[place] != numbers[place - 1] + 1:
            yield numbers[start], numbers[place - 1]
            start = place
