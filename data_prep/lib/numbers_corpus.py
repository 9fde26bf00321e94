"""A parallel corpus of number expressions, made up from a seed.

It is a small but real translation task: German says the units before the tens and puts verbs last,
Russian inflects numbers, counted nouns, and ordinals. No sentence of either side occurs twice, so
the three parts share none.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path

from data_prep.lib.cli import positive, progress, run
from data_prep.lib.corpus import write
from data_prep.lib.number_sentences import KINDS
from data_prep.lib.number_words import LANGUAGES

SPLITS = ("train", "valid", "test")


def sentence_pairs(source: str, target: str, *, seed: int) -> Iterator[tuple[str, str]]:
    """Endless different pairs in two of the languages ``en``, ``de``, ``ru``.

    No source sentence and no target sentence occurs twice. The same seed gives the same pairs.
    """
    rng = random.Random(seed)
    weights = [kind.weight for kind in KINDS]
    seen: set[tuple[str, str]] = set()
    while True:
        kind = rng.choices(KINDS, weights)[0]
        value = kind.draw(rng)
        frame = rng.choice(kind.frames)
        pair = tuple(
            _first_capital(frame[language].format(**LANGUAGES[language].forms(value)))
            for language in (source, target)
        )
        marks = set(zip((source, target), pair, strict=True))
        if not marks & seen:
            seen |= marks
            yield pair[0], pair[1]


def _first_capital(sentence: str) -> str:
    # A number alone, without a full stop, is no sentence.
    return sentence[0].upper() + sentence[1:] if sentence.endswith(".") else sentence


def main(arguments: Sequence[str]) -> None:
    """Write raw/{train,valid,test} of a number corpus."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.lib.numbers_corpus", description=__doc__
    )
    parser.add_argument("--source-lang", choices=sorted(LANGUAGES), required=True)
    parser.add_argument("--target-lang", choices=sorted(LANGUAGES), required=True)
    for split in SPLITS:
        parser.add_argument(f"--{split}", type=positive, required=True, metavar="PAIRS")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)

    languages = (options.source_lang, options.target_lang)
    pairs = sentence_pairs(*languages, seed=options.seed)
    for split in SPLITS:
        some = progress(islice(pairs, getattr(options, split)), what=split, unit=" pairs")
        count = write(some, *(options.folder / f"{split}.{language}" for language in languages))
        print(f"{options.folder / split}: {count} pairs", file=sys.stderr)


if __name__ == "__main__":
    run(main)
