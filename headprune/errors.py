"""Errors that are the user's to mend: one clear line, and the exit status of a command."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


class HeadpruneError(Exception):
    """A mistake in what the user gave. Commands print it as one line, without a traceback."""

    exit_status = 1

    def __init__(self, message: str) -> None:
        # What the user gave is quoted in messages, and may hold line breaks.
        super().__init__(" ".join(message.splitlines()))


class UsageError(HeadpruneError, ValueError):
    """Options or arguments that make no sense together (exit status 2)."""

    exit_status = 2


class DataError(HeadpruneError):
    """A file that is broken, or does not fit the others (exit status 1)."""

    exit_status = 1


@contextmanager
def needing(what: str, *, install: str = "see the README, Install") -> Iterator[None]:
    """A context for imports that may fail; ``what`` says who needs what.

    Raises:
        UsageError: an import failed; the message says how to ``install`` what is missing.
    """
    try:
        yield
    except ImportError as error:
        raise UsageError(f"{what} ({error}); {install}") from None
