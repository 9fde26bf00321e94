"""Divide a list of translations with repeated sentences into training, validation and test sets.

Sentences are held out, not pairs: no sentence of the validation or test set, on either side, occurs
in another set. Sentences are compared without regard to case and spacing. A hash of the seed and
the sentence decides which sentences are held out. The result therefore does not depend on the order
of the list, and the use of memory not on its length.
"""

from __future__ import annotations

import argparse
import hashlib
import heapq
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from data_prep.lib.archives import extract
from data_prep.lib.cli import positive, progress, run
from data_prep.lib.corpus import read, text_digest, write
from headprune.errors import DataError

Pair = tuple[str, str]

# Checksum of deu.txt in the archive of 2018-05-13. The archive is replaced with every release, so
# its current checksum cannot be known beforehand.
RELEASES = {"a79c90b3cd3102decffa49cc00fb6f20023974f2ae5c4782515bebe133fcc07b": "2018-05-13"}


def read_list(path: Path, *, name: str | None = None) -> Iterator[Pair]:
    """Read the pairs of a file of lines ``english<TAB>german``, with or without a third column.

    Raises:
        DataError: a line has no tab, or an empty side; the file is empty or cannot be read.
    """
    label = name or str(path)
    number = 0
    for number, line in enumerate(read(path, name=label), start=1):
        columns = line.split("\t")
        if len(columns) < 2:
            raise DataError(f"{label}: line {number} has no tab between two sentences")
        pair = (columns[0].strip(), columns[1].strip())
        if not all(pair):
            raise DataError(f"{label}: line {number} has an empty sentence")
        yield pair
    if number == 0:
        raise DataError(f"{label}: empty, no line to read")


def check_release(path: Path, *, name: str, expected: str | None) -> str:
    """Identify the release of a list by its checksum, and describe it in one line.

    Args:
        path: the list, plain or .gz.
        name: its name in messages.
        expected: the required SHA-256 of the list's text; None accepts every list.

    Raises:
        DataError: the checksum differs from the expected one.
    """
    digest = text_digest(path)
    if expected and digest != expected.lower():
        raise DataError(
            f"{name}: SHA-256 of its text is {digest}, not {expected.lower()}; "
            "without --sha256 every list is taken"
        )
    if digest in RELEASES:
        return f"{name}: the release of {RELEASES[digest]}"
    if expected:
        return f"{name}: the release that was asked for"
    return (
        f"note: {name}: a release that is not known here; its sets differ from those of other "
        f"releases (--sha256 {digest} asks for this one)"
    )


def _key(sentence: str) -> str:
    return " ".join(sentence.casefold().split())


def _rank(sentence: str, seed: int) -> tuple[bytes, str]:
    key = _key(sentence)
    return hashlib.blake2b(f"{seed} {key}".encode(), digest_size=16).digest(), key


def hold_out(
    pairs: Sequence[Iterable[Pair]], sizes: Sequence[int], *, seed: int
) -> list[list[Pair]]:
    """Draw sets of pairs, of the given sizes, that share no sentence on either side.

    Args:
        pairs: the whole list, to be read twice: two iterators over it.
        sizes: the sizes of the sets.
        seed: the seed of the draw.

    Raises:
        DataError: there are too few different sentences.
    """
    wanted = sum(sizes)
    # A few more than needed, because all translations of a sentence may be taken already.
    spare = wanted // 10 + 20
    ranks: set[tuple[bytes, str]] = set()
    heap: list[tuple[int, tuple[bytes, str]]] = []
    for english, _ in pairs[0]:
        rank = _rank(english, seed)
        if rank in ranks:
            continue
        # a heap of the smallest ranks, with the largest of them on top
        entry = (-int.from_bytes(rank[0]), rank)
        if len(heap) < wanted + spare:
            heapq.heappush(heap, entry)
            ranks.add(rank)
        elif entry > heap[0]:
            ranks.discard(heapq.heapreplace(heap, entry)[1])
            ranks.add(rank)

    translations: dict[str, list[Pair]] = {key: [] for _, key in sorted(ranks)}
    for pair in pairs[1]:
        candidates = translations.get(_key(pair[0]))
        if candidates is not None:
            candidates.append(pair)

    drawn: list[Pair] = []
    taken: set[str] = set()
    for candidates in translations.values():
        # Of several translations, the one with the smallest rank is preferred.
        for pair in sorted(candidates, key=lambda pair: _rank(pair[1], seed)):
            if _key(pair[1]) not in taken and len(drawn) < wanted:
                taken.add(_key(pair[1]))
                drawn.append(pair)
                break
    if len(drawn) < wanted:
        raise DataError(
            f"only {len(drawn)} different sentences can be held out of the {wanted} asked for"
        )
    sets = []
    for size in sizes:
        sets.append(drawn[:size])
        drawn = drawn[size:]
    return sets


def without(pairs: Iterable[Pair], held_out: Iterable[Pair]) -> Iterator[Pair]:
    """Select the pairs of which neither sentence is held out."""
    held_out = list(held_out)
    english = {_key(pair[0]) for pair in held_out}
    german = {_key(pair[1]) for pair in held_out}
    for pair in pairs:
        if _key(pair[0]) not in english and _key(pair[1]) not in german:
            yield pair


def main(arguments: Sequence[str]) -> None:
    """Write raw/{train,valid,test} from a list of translations."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.tatoeba", description=__doc__)
    parser.add_argument("--valid", type=positive, required=True, metavar="PAIRS")
    parser.add_argument("--test", type=positive, required=True, metavar="PAIRS")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--sha256", metavar="HEX", help="refuse a list with another checksum")
    parser.add_argument("list", type=Path, help="deu.txt, deu.txt.gz or deu-eng.zip")
    parser.add_argument("folder", type=Path)
    options = parser.parse_args(arguments)

    languages = ("en", "de")
    with tempfile.TemporaryDirectory(
        dir=options.folder, prefix=".train.en.", suffix=".tmp"
    ) as scratch:
        path, name = options.list, str(options.list)
        if path.suffix == ".zip":
            path = extract(path, [["deu.txt"]], Path(scratch))[0]
            name = f"deu.txt in {options.list}"

        release = check_release(path, name=name, expected=options.sha256)

        def pairs(what: str) -> Iterator[Pair]:
            return progress(read_list(path, name=name), what=what)

        valid, test = hold_out(
            (pairs("choose"), pairs("collect")), (options.valid, options.test), seed=options.seed
        )
        train = without(pairs("write"), [*valid, *test])
        for split, rows in (("train", train), ("valid", valid), ("test", test)):
            count = write(rows, *(options.folder / f"{split}.{language}" for language in languages))
            if not count:
                raise DataError(f"{name}: no pair is left for training")
            print(f"{options.folder / split}: {count} pairs", file=sys.stderr)
    print(release, file=sys.stderr)


if __name__ == "__main__":
    run(main)
