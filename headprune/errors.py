"""Errors that the user can correct: each has a one-line message and an exit status."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


class HeadpruneError(Exception):
    """An error in the user's input. Commands print its one-line message without a traceback."""

    exit_status = 1

    def __init__(self, message: str) -> None:
        # Messages quote the user's input, which may contain line breaks.
        super().__init__(" ".join(message.splitlines()))


class UsageError(HeadpruneError, ValueError):
    """Invalid or contradictory options or arguments (exit status 2)."""

    exit_status = 2


class DataError(HeadpruneError):
    """A file that is damaged, or does not match other files (exit status 1)."""

    exit_status = 1


def reason_of(error: BaseException, *, last_line: bool = False) -> str:
    """The first line of an error's message, or the last one; its type, where it has no message.

    A first line that ends with a colon has the second one with it.
    """
    lines = str(error).strip().splitlines() or [type(error).__name__]
    if last_line:
        return lines[-1].strip()
    announced = lines[0].rstrip().endswith(":") and len(lines) > 1
    return " ".join(line.strip() for line in lines[: 2 if announced else 1])


@contextmanager
def needing(what: str, *, install: str = "see the README, Install") -> Iterator[None]:
    """Turn a failing import into a UsageError that begins with ``what``.

    Raises:
        UsageError: an import failed; the message says how to ``install`` the missing package.
    """
    try:
        yield
    except ImportError as error:
        # transformers reports whatever ends an import as a missing package.
        if any(isinstance(each, KeyboardInterrupt) for each in _chain(error)):
            raise KeyboardInterrupt from None
        raise UsageError(f"{what} ({error}); {install}") from None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and those that it was raised from or while they were handled."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


INTERRUPTED = "interrupted; run the same command again"
"""The message where the user ends a program."""

INTERRUPTED_STATUS = 130
"""The exit status then, as shells have it."""


def exit_status(program: Callable[..., object], *arguments: Any) -> int:
    """Run a program, and print the message of an error that the user can correct, in one line.

    Returns:
        0, or the exit status of the error, or of an interruption.
    """
    try:
        program(*arguments)
    except HeadpruneError as problem:
        print(f"error: {problem}", file=sys.stderr)
        return problem.exit_status
    except KeyboardInterrupt:
        print(f"error: {INTERRUPTED}", file=sys.stderr)
        return INTERRUPTED_STATUS
    return 0
