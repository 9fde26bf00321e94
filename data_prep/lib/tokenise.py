"""Moses punctuation normalisation and tokenisation, on several cores.

The tokens are those of fairseq's ``--tokenizer moses`` for the normalised sentence (dashes are
split, characters such as ``&`` are escaped), so this option of ``fairseq-generate`` restores the
text.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

from sacremoses import MosesPunctNormalizer, MosesTokenizer

from data_prep.lib.cli import in_out_pairs, positive, progress, run
from data_prep.lib.corpus import read, write_lines
from data_prep.lib.languages import primary
from data_prep.lib.parallel import available_cores, map_lines


def make_tokeniser(language: str) -> Callable[[str], str]:
    """Create a function that splits a raw sentence into tokens, separated by single spaces.

    Args:
        language: a code such as ``de`` or ``de_AT``, whose rules are those of ``de``. Languages
            unknown to sacremoses get the English rules.
    """
    return tokeniser_with_rules(primary(language))  # sacremoses knows no code with a region


def tokeniser_with_rules(code: str) -> Callable[[str], str]:
    """Create a function as `make_tokeniser` does, with sacremoses's rules for exactly ``code``."""
    normaliser = MosesPunctNormalizer(lang=code)
    tokeniser = MosesTokenizer(lang=code)

    def tokenise(sentence: str) -> str:
        tokens: str = tokeniser.tokenize(
            normaliser.normalize(sentence), aggressive_dash_splits=True, return_str=True
        )
        return tokens

    return tokenise


def tokenise_lines(lines: Iterable[str], *, language: str, workers: int) -> Iterator[str]:
    """Tokenise lines; the order is kept."""
    return map_lines(partial(make_tokeniser, language), lines, workers=workers)


def main(arguments: Sequence[str]) -> None:
    """Tokenise texts."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.lib.tokenise",
        description="Normalise the punctuation of texts and split them into tokens (sacremoses).",
    )
    parser.add_argument("--lang", required=True, help="the language of the texts, such as de")
    parser.add_argument("--workers", type=positive, default=available_cores())
    in_out_pairs(parser)
    options = parser.parse_args(arguments)
    for source, target in options.files:
        lines = tokenise_lines(read(source), language=options.lang, workers=options.workers)
        write_lines(progress(lines, what=f"tokenise {target.name}"), target)


if __name__ == "__main__":
    run(main)
