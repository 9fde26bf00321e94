"""Early checks of fairseq's flags with fairseq's own parsers.

    python -m fairseq_plugin.flags < flags.json

reads a JSON list of questions and writes a JSON list of answers. A question is an object with
`flags` and with `check`: `train` or `generate` for the program that the flags are for, `shape` for
the model's options of fairseq-train alone. An answer has `mistake`, a message or null where the
flags are good, and for `shape` the units of each layer by component. Importing fairseq takes
seconds, a process of its own keeps it out of programs that have no other use for it.
"""

from __future__ import annotations

import contextlib
import difflib
import io
import logging
import re
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

from headprune.answers import serve
from headprune.errors import UsageError, reason_of


def architecture_shape(flags: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """The units of each layer of the unpruned model that fairseq-train's flags describe.

    Raises:
        UsageError: fairseq would refuse a flag.
    """
    from fairseq_plugin.shape import model_shape

    return model_shape(check_flags("train", flags))


def check_flags(program: str, flags: Sequence[str]) -> Namespace:
    """Raise a UsageError where `fairseq-train` or `fairseq-generate` would refuse the flags.

    Nothing is read that the flags name, no data and no model. Shares of the training (see
    ``fairseq_plugin.schedule``) are allowed.

    Args:
        program: `train` or `generate`.
        flags: without the data folder and `--user-dir`.

    Returns:
        The options, those of the model among them.
    """
    from fairseq import options
    from fairseq.dataclass.utils import convert_namespace_to_omegaconf

    from fairseq_plugin.schedule import placeholders

    parsers: dict[str, Callable[[], ArgumentParser]] = {
        "train": options.get_training_parser,
        "generate": options.get_generation_parser,
    }
    parser = parsers[program]()
    parser.error = _refuse  # type: ignore[method-assign]
    plugin = ["--user-dir", str(Path(__file__).parent)]
    given = ["data", *plugin, *placeholders(flags)]
    silence = io.StringIO()
    try:
        with contextlib.redirect_stdout(silence), contextlib.redirect_stderr(silence):
            args: Namespace = options.parse_args_and_arch(parser, input_args=given)
            convert_namespace_to_omegaconf(args)
            return args
    except UsageError as problem:
        raise UsageError(f"fairseq-{program}: {_in_short(str(problem), parser)}") from None
    except SystemExit:
        raise UsageError(f"fairseq-{program}: --help prints a text and runs nothing") from None
    # fairseq evaluates values, which may raise anything.
    except Exception as problem:
        raise UsageError(f"fairseq-{program}: {reason_of(problem)}") from None


def _refuse(message: str) -> NoReturn:
    raise UsageError(message)


def _in_short(message: str, parser: ArgumentParser) -> str:
    """Add the most similar choice to the parser's message, and drop long lists of choices."""
    known: Sequence[str] = ()
    if unknown := re.match(r"unrecognized arguments: (--[\w-]+)", message):
        known = [flag for action in parser._actions for flag in action.option_strings]
    elif unknown := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)$", message):
        known = re.findall(r"[\w.-]+", unknown[2])
        if len(known) > 20:
            message = message[: message.rindex(" (choose from ")]
    close = difflib.get_close_matches(unknown[1], known, n=1) if unknown else []
    return f"{message}; did you mean {close[0]}?" if close else message


def _answer(question: Mapping[str, Any]) -> dict[str, Any] | None:
    check, flags = question["check"], question["flags"]
    if check == "shape":
        return {"shape": architecture_shape(flags)}
    check_flags(check, flags)
    return None


if __name__ == "__main__":
    logging.disable()
    serve(_answer)
