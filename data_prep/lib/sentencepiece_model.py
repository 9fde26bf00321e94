"""Joint byte-pair encoding of raw text with sentencepiece: train a model, apply it."""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path

import sentencepiece

from data_prep.lib.cli import in_out_pairs, positive, progress, run
from data_prep.lib.corpus import read, write_lines
from data_prep.lib.parallel import available_cores, map_lines
from headprune.errors import DataError
from headprune.files import atomic_path

# The trainer keeps its sentences in memory. From a larger text it takes a random sample.
SENTENCES_AT_MOST = 5_000_000


def _bound(message: str) -> str:
    """Extract the possible sizes from the library's long error message."""
    largest = re.search(r"to a value <= (\d+)", message)
    if largest:
        return f"give --merges of at most {largest[1]}"
    smallest = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if smallest:
        return f"give --merges of at least {smallest[1]}"
    return message.splitlines()[-1].strip()


def train(inputs: Sequence[Path], *, size: int, model: Path, seed: int = 1) -> None:
    """Train a joint model of ``size`` pieces; write ``model`` and the ``.vocab`` file beside it.

    Raises:
        DataError: the text is too small for this number of pieces, or an input is missing.
    """
    for path in inputs:
        if not path.is_file():
            raise DataError(f"{path}: no such file")
    sentencepiece.set_random_generator_seed(seed)
    with (
        atomic_path(model) as new_model,
        atomic_path(model.with_suffix(".vocab")) as new_vocabulary,
    ):
        prefix = model.with_name(f".{model.name}.training.tmp")
        try:
            sentencepiece.SentencePieceTrainer.train(
                input=",".join(str(path) for path in inputs),
                model_prefix=str(prefix),
                model_type="bpe",
                vocab_size=size,
                character_coverage=1.0,
                input_sentence_size=SENTENCES_AT_MOST,
                shuffle_input_sentence=True,
                num_threads=1,
                minloglevel=2,
            )
        except RuntimeError as error:
            raise DataError(
                f"sentencepiece cannot make {size} pieces of this text; {_bound(str(error))}"
            ) from None
        Path(f"{prefix}.model").replace(new_model)
        Path(f"{prefix}.vocab").replace(new_vocabulary)


def make_splitter(model: str) -> Callable[[str], str]:
    """Create a function that splits a raw sentence into pieces, separated by single spaces."""
    processor = sentencepiece.SentencePieceProcessor(model_file=model)

    def split(sentence: str) -> str:
        return " ".join(processor.encode(sentence, out_type=str))

    return split


def split_lines(lines: Iterable[str], *, model: Path, workers: int) -> Iterator[str]:
    """Split lines into pieces; the order is kept."""
    return map_lines(partial(make_splitter, str(model)), lines, workers=workers)


def main(arguments: Sequence[str]) -> None:
    """Train or apply a sentencepiece model."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.lib.sentencepiece_model", description=__doc__
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("learn", help="train one model on several raw texts")
    command.add_argument("--merges", type=positive, required=True, help="the number of pieces")
    command.add_argument("--model", type=Path, required=True, help="the file to write")
    command.add_argument("inputs", type=Path, nargs="+")
    command = commands.add_parser("apply", help="split raw texts into pieces")
    command.add_argument("--model", type=Path, required=True)
    in_out_pairs(command)
    command.add_argument("--workers", type=positive, default=available_cores())
    options = parser.parse_args(arguments)
    if options.command == "learn":
        train(options.inputs, size=options.merges, model=options.model)
    else:
        for source, target in options.files:
            lines = split_lines(read(source), model=options.model, workers=options.workers)
            write_lines(progress(lines, what=f"pieces {target.name}"), target)


if __name__ == "__main__":
    run(main)
