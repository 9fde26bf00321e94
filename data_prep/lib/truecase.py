"""Moses truecasing of tokenised text: learn the usual case of words, apply it, and undo it.

A word at the beginning of a sentence gets the case that it most often has elsewhere; a form that
occurs elsewhere in the training text is left as it is. Detruecasing makes the first letter of each
sentence large again.
"""

from __future__ import annotations

import argparse
import tempfile
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

from sacremoses import MosesDetruecaser, MosesTruecaser

from data_prep.lib.cli import in_out_pairs, positive, progress, run
from data_prep.lib.corpus import read, write_lines
from data_prep.lib.parallel import available_cores, map_lines
from headprune.errors import DataError
from headprune.files import write_text_atomically


def learn(lines: Iterable[str]) -> str:
    """Count the forms of words in tokenised lines, but for the first words of sentences.

    Memory grows with the number of different words, not with that of lines, which
    ``MosesTruecaser.train`` would keep.

    Returns:
        The text of the model's file, in the format of Moses.

    Raises:
        DataError: no word has a letter, but for first words.
    """
    truecaser = MosesTruecaser()
    forms: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for line in lines:
        for lower, form, weight in truecaser.learn_truecase_weights(line.split()):
            forms[lower][form] += weight
    if not forms:
        raise DataError("no words to learn truecasing from; leave out --truecase")
    truecaser.model = {"casing": forms}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model"
        truecaser.save_model(str(path))
        return path.read_text(encoding="utf-8")


def make_truecaser(model: str) -> Callable[[str], str]:
    """Create a function that truecases a tokenised line.

    Args:
        model: the path of a model that `learn` made.

    Raises:
        DataError: it is no such file.
    """
    try:
        truecaser = MosesTruecaser(model)
    except FileNotFoundError:
        raise DataError(f"{model}: no such file") from None
    except (ValueError, OSError) as error:
        raise DataError(f"{model}: no model for truecasing ({error})") from None

    def truecase(line: str) -> str:
        # As Moses does, words in a form that was seen are left as they are.
        result: str = truecaser.truecase(line, return_str=True, use_known=True)
        return result

    return truecase


def make_detruecaser() -> Callable[[Sequence[str]], list[str]]:
    """Create a function that makes the first letter of each sentence of tokens large."""
    detruecaser = MosesDetruecaser()

    def detruecase(tokens: Sequence[str]) -> list[str]:
        result: list[str] = detruecaser.detruecase(" ".join(tokens))
        return result

    return detruecase


def truecase_lines(lines: Iterable[str], *, model: Path, workers: int) -> Iterator[str]:
    """Truecase tokenised lines; the order is kept."""
    return map_lines(partial(make_truecaser, str(model)), lines, workers=workers)


def main(arguments: Sequence[str]) -> None:
    """Learn or apply truecasing."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.truecase", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("learn", help="learn the usual case of words")
    command.add_argument("--model", type=Path, required=True, help="the file to write")
    command.add_argument("input", type=Path)
    command = commands.add_parser("apply", help="truecase tokenised texts")
    command.add_argument("--model", type=Path, required=True)
    command.add_argument("--workers", type=positive, default=available_cores())
    in_out_pairs(command)
    options = parser.parse_args(arguments)
    if options.command == "learn":
        lines = progress(read(options.input), what=f"count words of {options.input.name}")
        write_text_atomically(options.model, learn(lines))
        return
    for source, target in options.files:
        lines = truecase_lines(read(source), model=options.model, workers=options.workers)
        write_lines(progress(lines, what=f"truecase {target.name}"), target)


if __name__ == "__main__":
    run(main)
