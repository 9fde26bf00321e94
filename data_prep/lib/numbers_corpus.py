"""A parallel corpus of number expressions, generated from a seed.

It is a small but real translation task: German puts the units before the tens and verbs last,
Russian inflects numbers, counted nouns and ordinals. No sentence occurs twice on either side, so
the three sets share no sentence.
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
from data_prep.lib.number_sentences import KINDS, count_sentences
from data_prep.lib.number_words import LANGUAGES
from headprune.errors import DataError, UsageError

SPLITS = ("train", "valid", "test")
# Sums of two numbers alone give this number of pairs. Counting all kinds takes a second or two.
_CERTAIN = 990_000
# Number of consecutive draws without a new sentence after which the search ends.
_LONGEST_SEARCH = 1_000_000


def sentence_pairs(source: str, target: str, *, seed: int) -> Iterator[tuple[str, str]]:
    """Generate different pairs in two of the languages ``en``, ``de``, ``ru``.

    No source sentence and no target sentence occurs twice. The same seed gives the same pairs. The
    iterator ends when nearly all sentences have been used.
    """
    rng = random.Random(seed)
    weights = [kind.weight for kind in KINDS]
    seen: set[tuple[str, str]] = set()
    search = 0
    while search < _LONGEST_SEARCH:
        search += 1
        kind = rng.choices(KINDS, weights)[0]
        value = kind.draw(rng)
        frame = rng.choice(kind.frames)
        pair = tuple(
            _first_capital(frame[language].format(**LANGUAGES[language].forms(value)))
            for language in (source, target)
        )
        sentences = set(zip((source, target), pair, strict=True))
        if not sentences & seen:
            seen |= sentences
            search = 0
            yield pair[0], pair[1]


def _first_capital(sentence: str) -> str:
    # A number alone, without a full stop, is not a sentence.
    return sentence[0].upper() + sentence[1:] if sentence.endswith(".") else sentence


def check_sizes(wanted: int) -> None:
    """Refuse a corpus with more pairs than there are different sentences.

    Raises:
        UsageError: ``wanted`` is larger than the number of sentences.
    """
    if wanted <= _CERTAIN:
        return
    available = count_sentences()
    if wanted > available:
        raise UsageError(
            f"there are {available} different sentences, fewer than the {wanted} asked for; "
            "give smaller --train, --valid and --test"
        )


def _take(pairs: Iterator[tuple[str, str]], wanted: int, split: str) -> Iterator[tuple[str, str]]:
    count = 0
    for count, pair in enumerate(islice(pairs, wanted), start=1):  # noqa: B007
        yield pair
    if count < wanted:
        raise DataError(
            f"{split}: no new sentence after {count} of the {wanted} asked for, nearly all are "
            "used up; give smaller --train, --valid and --test"
        )


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
    parser.add_argument("--only-check", action="store_true", help="check the sizes, write nothing")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)
    check_sizes(sum(getattr(options, split) for split in SPLITS))
    if options.only_check:
        return

    languages = (options.source_lang, options.target_lang)
    pairs = sentence_pairs(*languages, seed=options.seed)
    for split in SPLITS:
        rows = progress(_take(pairs, getattr(options, split), split), what=split, unit=" pairs")
        count = write(rows, *(options.folder / f"{split}.{language}" for language in languages))
        print(f"{options.folder / split}: {count} pairs", file=sys.stderr)


if __name__ == "__main__":
    run(main)
