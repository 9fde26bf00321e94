"""Draw a random sample of the clean pairs of a corpus, in one pass to count and one to draw.

A pair is clean if Moses' ``clean-corpus-n.perl -ratio R corpus SRC TGT out 1 N`` keeps it: both
sides have 1 to N tokens, and neither has more than R times as many as the other. Duplicates are
kept, as in the recipe. The use of memory does not depend on the number of lines: the pairs are
drawn by Knuth's selection sampling (The Art of Computer Programming, volume 2, algorithm 3.4.2 S).
It draws exactly the requested number of pairs, every set of pairs with the same probability, in the
order of the corpus.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_prep.lib.cli import positive, progress, run
from data_prep.lib.corpus import read_parallel, write
from headprune.errors import DataError

Row = tuple[str, ...]


def is_clean(source: str, target: str, *, ratio: float, longest: int) -> bool:
    """Check that the lengths of a pair, in tokens, are plausible for a translation."""
    lengths = (len(source.split()), len(target.split()))
    shorter, longer = min(lengths), max(lengths)
    return shorter >= 1 and longer <= longest and longer / shorter <= ratio


def selection(wanted: int, total: int, *, seed: int) -> Iterator[bool]:
    """Draw ``wanted`` of ``total`` items; yield for each item whether it is drawn."""
    rng = random.Random(seed)
    missing = wanted
    for left in range(total, 0, -1):
        taken = rng.random() * left < missing
        missing -= taken
        yield taken


def clean_rows(
    corpora: Sequence[Sequence[Path]], *, ratio: float, longest: int, what: str
) -> Iterator[Row]:
    """Select the rows of corpora whose last two columns are a clean pair.

    Args:
        corpora: for each corpus, its parallel files; the last two decide whether a pair is clean.
        ratio: the largest allowed ratio of the two lengths.
        longest: the largest allowed number of tokens of a side.
        what: the name of the progress bar.
    """
    for files in corpora:
        for row in progress(read_parallel(*files), what=f"{what} {files[0].stem}"):
            if is_clean(row[-2], row[-1], ratio=ratio, longest=longest):
                yield row


def main(arguments: Sequence[str]) -> None:
    """Draw a training set."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.sample", description=__doc__)
    parser.add_argument("--source-lang", required=True)
    parser.add_argument("--target-lang", required=True)
    parser.add_argument("--pairs", required=True, help="the number of pairs to draw, or all")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--ratio", type=float, default=1.5)
    parser.add_argument("--max-length", type=positive, default=250)
    parser.add_argument("--raw-folder", type=Path, required=True)
    parser.add_argument(
        "--tok-folder",
        type=Path,
        help="tokenised texts; they decide which pairs are clean, and are sampled too",
    )
    parser.add_argument("--out-raw", type=Path, required=True, metavar="PREFIX")
    parser.add_argument("--out-tok", type=Path, metavar="PREFIX")
    parser.add_argument("corpora", nargs="+", metavar="NAME")
    options = parser.parse_args(arguments)

    languages = (options.source_lang, options.target_lang)
    folders = [options.raw_folder] + ([options.tok_folder] if options.tok_folder else [])
    prefixes = [options.out_raw] + ([options.out_tok] if options.tok_folder else [])
    corpora = [
        [folder / f"{name}.{language}" for folder in folders for language in languages]
        for name in options.corpora
    ]

    def rows(what: str, corpora: Sequence[Sequence[Path]] = corpora) -> Iterator[Row]:
        return clean_rows(corpora, ratio=options.ratio, longest=options.max_length, what=what)

    measured = [files[-2:] for files in corpora]
    total = sum(1 for _ in rows("count", measured))
    wanted = total if options.pairs == "all" else int(options.pairs)
    if wanted > total or total == 0:
        raise DataError(
            f"only {total} clean pairs (of {', '.join(options.corpora)}; at most "
            f"{options.max_length} tokens, ratio at most {options.ratio}) for the "
            f"{options.pairs} asked for; give fewer --pairs, or more sources"
        )
    drawn = selection(wanted, total, seed=options.seed)
    write(
        (row for row, taken in zip(rows("draw"), drawn, strict=True) if taken),
        *(f"{prefix}.{language}" for prefix in prefixes for language in languages),
    )
    print(f"{options.out_raw}: {wanted} of {total} clean pairs", file=sys.stderr)


if __name__ == "__main__":
    run(main)
