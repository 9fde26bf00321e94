"""Units kept in each layer, as text: ``888444``, or ``16,16,12,8,4,4`` if one has ten or more."""

from __future__ import annotations

import re
from collections.abc import Sequence

from headprune.errors import UsageError


def parse_counts(text: str, *, component: str = "counts") -> tuple[int, ...]:
    """Read the numbers of units in each layer. ``component`` begins the error message.

    >>> parse_counts("888444"), parse_counts("16,4"), parse_counts("12,")
    ((8, 8, 8, 4, 4, 4), (16, 4), (12,))
    """
    parts = text.strip().removesuffix(",").split(",") if "," in text else list(text.strip())
    if not parts or not all(re.fullmatch("[0-9]{1,9}", part.strip()) for part in parts):
        raise UsageError(
            f"{component}: {text!r} is no list of counts; "
            "write one digit a layer (888444), or commas (16,16,12,8,4,4)"
        )
    return tuple(int(part) for part in parts)


def format_counts(counts: Sequence[int]) -> str:
    """The shortest text that ``parse_counts`` reads back as ``counts``."""
    if all(count < 10 for count in counts):
        return "".join(str(count) for count in counts)
    return ",".join(str(count) for count in counts) + ("," if len(counts) == 1 else "")
