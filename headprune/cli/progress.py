"""Progress bars on standard error."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def progress(batches: Any, total: int, purpose: str) -> Any:
    """The batches of a pass, with a bar that names the pass's purpose."""
    from rich.console import Console
    from rich.progress import track

    return iter(track(batches, description=purpose, total=total, console=Console(stderr=True)))


def progress_of_rounds(numbers: range) -> Iterable[int]:
    """The numbers of the rounds of a measurement, with a bar."""
    rounds: Iterable[int] = progress(numbers, len(numbers), "rounds")
    return rounds
