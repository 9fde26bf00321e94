"""Run the command ``headprune`` inside the tests' own process."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import dataclass
from unittest import mock

from headprune import cli


@dataclass(frozen=True)
class Outcome:
    """Exit status and output of a command."""

    status: int
    out: str
    err: str


def headprune(*arguments: object) -> Outcome:
    """Run ``headprune`` with these arguments and capture its output."""
    out, err = io.StringIO(), io.StringIO()
    argv = ["headprune", *map(str, arguments)]
    status = 0
    with (
        mock.patch.object(sys, "argv", argv),
        mock.patch.dict("os.environ", {"COLUMNS": "200", "TERM": "dumb"}),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
    ):
        try:
            cli.main()
        except SystemExit as error:
            status = int(error.code or 0)
    return Outcome(status, out.getvalue(), err.getvalue())
