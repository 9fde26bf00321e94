"""The user's mistakes as one line, also inside fairseq's own commands."""

from __future__ import annotations

import sys
from types import TracebackType

from headprune.errors import HeadpruneError


def print_as_one_line() -> None:
    """Make an uncaught HeadpruneError end the process with its one line and exit status.

    fairseq's commands print a traceback for every exception, and its trainer wraps what goes
    wrong while a checkpoint is loaded; so the hook looks through the chain of causes. All other
    exceptions go to the hook that was there before.
    """
    previous = sys.excepthook

    def hook(
        kind: type[BaseException], error: BaseException, traceback: TracebackType | None
    ) -> None:
        mistake = find(error)
        if mistake is None:
            previous(kind, error, traceback)
            return
        print(f"error: {mistake}", file=sys.stderr, flush=True)
        raise SystemExit(mistake.exit_status)

    sys.excepthook = hook


def find(error: BaseException | None) -> HeadpruneError | None:
    """The HeadpruneError in a chain of exceptions, if there is one."""
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, HeadpruneError):
            return error
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return None
