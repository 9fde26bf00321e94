"""Shared parts of this package's command lines: one-line errors, argument types, progress bars."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from headprune.errors import HeadpruneError

Item = TypeVar("Item")


def run(main: Callable[[Sequence[str]], None], arguments: Sequence[str] | None = None) -> None:
    """Call ``main`` with the command line; report errors as one line and an exit status."""
    try:
        main(sys.argv[1:] if arguments is None else arguments)
    except HeadpruneError as error:
        print(f"error: {error}", file=sys.stderr)
        sys.exit(error.exit_status)
    except OSError as error:
        # For example a full disk or a write-protected folder: the system's message says enough.
        print(f"error: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        print("error: interrupted; run the same command again to resume", file=sys.stderr)
        sys.exit(130)


def positive(text: str) -> int:
    """An argparse type: a whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError(f"{text} is less than 1")
    return value


def in_out_pairs(parser: argparse.ArgumentParser) -> None:
    """Add the positional argument ``files`` with pairs of input and output files."""
    parser.add_argument(
        "files",
        type=Path,
        nargs="+",
        action=_PairsAction,
        metavar="IN OUT",
        help="a file to read and the file to write, once or more",
    )


class _PairsAction(argparse.Action):
    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        if len(values) % 2:
            parser.error("each file to read needs a file to write")
        setattr(namespace, self.dest, list(zip(values[::2], values[1::2], strict=True)))


def progress(items: Iterable[Item], *, what: str, unit: str = " lines") -> Iterator[Item]:
    """Iterate over ``items`` with a progress bar if standard error is a terminal."""
    from tqdm import tqdm  # here, as prepared.sh needs only Python itself

    return iter(tqdm(items, desc=what, unit=unit, unit_scale=True, disable=None, leave=False))
