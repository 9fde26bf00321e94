"""fairseq's flags, checked by its own parsers before anything runs with them.

    python -m fairseq_plugin.flags < flags.json

reads a JSON list of objects with `program` and `flags`, and writes a JSON list with one message for
each; null where the flags are good. Importing fairseq takes seconds, a process of its own keeps it
out of programs that have no other use for it.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import json
import logging
import re
import sys
from argparse import ArgumentParser
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NoReturn

from headprune.errors import UsageError

PROGRAMS = ("train", "generate")


def check_flags(program: str, flags: Sequence[str]) -> None:
    """Raise a UsageError where `fairseq-train` or `fairseq-generate` would refuse the flags.

    Nothing is read that the flags name, no data and no model.

    Args:
        program: `train` or `generate`.
        flags: without the data folder and `--user-dir`.
    """
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    parsers: dict[str, Callable[[], ArgumentParser]] = {
        "train": options.get_training_parser,
        "generate": options.get_generation_parser,
    }
    parser = parsers[program]()
    parser.error = _refuse  # type: ignore[method-assign]
    plugin = ["--user-dir", str(Path(__file__).parent)]
    silence = io.StringIO()
    try:
        with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
            args = options.parse_args_and_arch(parser, input_args=["data", *plugin, *flags])
            convert_namespace_to_omegaconf(args)
    except UsageError as problem:
        raise UsageError(f"fairseq-{program}: {_in_short(str(problem), parser)}") from None
    except SystemExit:
        raise UsageError(f"fairseq-{program}: --help prints a text and runs nothing") from None
    # fairseq evaluates values, which may raise anything.
    except Exception as problem:
        lines = str(problem).strip().splitlines() or [type(problem).__name__]
        raise UsageError(f"fairseq-{program}: {lines[0]}") from None


def _refuse(message: str) -> NoReturn:
    raise UsageError(message)


def _in_short(message: str, parser: ArgumentParser) -> str:
    """The parser's message without a long list of choices, with the choice of a like name."""
    known: Sequence[str] = ()
    if unknown := re.match(r"unrecognized arguments: (--[\w-]+)", message):
        known = [flag for action in parser._actions for flag in action.option_strings]
    elif unknown := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)$", message):
        known = re.findall(r"[\w.-]+", unknown[2])
        if len(known) > 20:
            message = message[: message.rindex(" (choose from ")]
    close = difflib.get_close_matches(unknown[1], known, n=1) if unknown else []
    return f"{message}; did you mean {close[0]}?" if close else message


def _message(program: str, flags: Sequence[str]) -> str | None:
    try:
        check_flags(program, flags)
    except UsageError as problem:
        return str(problem)
    return None


def _main() -> None:
    logging.disable()
    asked = json.load(sys.stdin)
    with contextlib.redirect_stdout(sys.stderr):
        messages = [_message(one["program"], one["flags"]) for one in asked]
    json.dump(messages, sys.stdout)


if __name__ == "__main__":
    _main()
