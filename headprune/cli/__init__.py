"""The command ``headprune``. Each subcommand loads its libraries when it runs, not before."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, NoReturn

import typer

from headprune.cli.group import CommandGroup
from headprune.errors import INTERRUPTED, INTERRUPTED_STATUS, HeadpruneError, UsageError
from headprune.files import disk_problem, flush_standard_output
from headprune.version import __version__

app = typer.Typer(
    cls=CommandGroup,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Prune heads, feed-forward neurons and layers of Transformers, and measure what that "
    "costs.\n\n"
    "Components are ES, ED and DS (the heads of encoder self-attention, encoder-decoder attention "
    "and decoder self-attention), EF and DF (the feed-forward neurons of encoder and decoder), EL "
    "and DL (their layers). Layer 0 is next to the embeddings. Units are numbered as in the "
    "unpruned model.",
)


def main() -> None:
    """Run the command; errors of the user or the disk, and its end by Ctrl-C, are one line."""
    try:
        try:
            _require_output(sys.argv[1:])
            app(prog_name="headprune")
        finally:
            flush_standard_output()
    except HeadpruneError as error:
        _fail(str(error), error.exit_status)
    except KeyboardInterrupt:
        _fail(INTERRUPTED, INTERRUPTED_STATUS)
    except SystemExit as end:  # typer's, for Ctrl-C in a command
        if end.code == INTERRUPTED_STATUS:
            _fail(INTERRUPTED, INTERRUPTED_STATUS)
        raise
    except UnicodeEncodeError as error:
        _fail(f"standard output: {error.object[error.start : error.end]!r} is no valid text", 1)
    except Exception as error:
        reason = disk_problem(error)
        if reason is None:
            raise
        name = getattr(error, "filename", None)
        _fail(f"{name or 'standard output, or a file'}: cannot write ({reason})", 1)


def _require_output(arguments: Sequence[str]) -> None:
    """Refuse an empty --output, such as an unset variable, which would be the current folder.

    Raises:
        UsageError: it is empty.
    """
    named = [value for name, value in pairwise(arguments) if name in ("-o", "--output")]
    if "" in named or "--output=" in arguments:
        raise UsageError("--output is empty; give a name")


def _fail(message: str, status: int) -> NoReturn:
    print(f"error: {' '.join(message.splitlines())}", file=sys.stderr)
    sys.exit(status)


@app.callback(invoke_without_command=True)
def _version(
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
) -> None:
    if version:
        print(f"headprune {__version__}")
        raise typer.Exit
