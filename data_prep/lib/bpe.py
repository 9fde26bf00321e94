"""Joint byte-pair encoding with subword-nmt: count words, learn the merges, apply them.

Counting and applying use several cores. Learning runs on one core, with a faster search for the
most frequent pair. The codes are identical to those of ``subword-nmt learn-bpe`` on the
concatenated texts, because merges depend on the counts of words alone. The use of memory grows with
the number of different words, not with the number of lines.
"""

from __future__ import annotations

import argparse
import io
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from data_prep.lib.cli import in_out_pairs, positive, progress, run
from data_prep.lib.corpus import read, write_lines
from data_prep.lib.parallel import Chunk, available_cores, map_chunks, map_lines
from headprune.errors import DataError
from headprune.files import write_text_atomically

# subword-nmt caches the split of every word. Each worker clears its cache at this number of words.
WORDS_REMEMBERED = 200_000


def _count_chunk(chunk: Chunk) -> Counter[str]:
    # Only spaces separate words, as in subword-nmt.
    words = Counter(chain.from_iterable(line.split(" ") for line in chunk))
    del words[""]
    return words


def _make_counter() -> Callable[[Chunk], Counter[str]]:
    return _count_chunk


def count_words(lines: Iterable[str], *, workers: int) -> Counter[str]:
    """Count the occurrences of each word in tokenised lines."""
    total: Counter[str] = Counter()
    for counts in map_chunks(_make_counter, lines, workers=workers):
        total.update(counts)
    return total


def learn(words: Counter[str], *, merges: int) -> tuple[str, int]:
    """Learn merge operations.

    Args:
        words: words with their numbers of occurrences.
        merges: the number of merge operations to learn.

    Returns:
        The text of the codes file, and the number of merge operations in it, which is smaller than
        ``merges`` for a short text.

    Raises:
        DataError: no word has two characters.
    """
    if not any(len(word) > 1 for word in words):
        raise DataError("no word of two or more characters to learn byte-pair encoding from")
    counted = io.StringIO("".join(f"{word} {count}\n" for word, count in sorted(words.items())))
    codes = io.StringIO()
    with redirect_stderr(io.StringIO()), _quick_learning():
        learn_bpe(counted, codes, merges, is_dict=True)
    return codes.getvalue(), codes.getvalue().count("\n") - 1


Pair = tuple[str, str]


class _Counts(defaultdict[Pair, int]):
    """Counts of pairs, grouped by count so that the most frequent pair is found quickly."""

    def __init__(self, counts: Mapping[Pair, int]) -> None:
        super().__init__(int, counts)
        self._pairs: dict[int, set[Pair]] = {}
        for pair, count in counts.items():
            self._pairs.setdefault(count, set()).add(pair)

    def __setitem__(self, pair: Pair, count: int) -> None:
        if pair in self:
            self._forget(pair)
        super().__setitem__(pair, count)
        self._pairs.setdefault(count, set()).add(pair)

    def __delitem__(self, pair: Pair) -> None:
        self._forget(pair)
        super().__delitem__(pair)

    def __deepcopy__(self, memo: object) -> _Counts:
        return _Counts(self)

    def _forget(self, pair: Pair) -> None:
        count = self[pair]
        pairs = self._pairs[count]
        pairs.remove(pair)
        if not pairs:
            del self._pairs[count]

    def most_frequent(self) -> Pair:
        """Return the most frequent pair; of equally frequent pairs, the last in text order."""
        return max(self._pairs[max(self._pairs)])


@contextmanager
def _quick_learning() -> Iterator[None]:
    """Speed up subword-nmt's search for the most frequent pair.

    subword-nmt evaluates ``max(stats, key=lambda pair: (stats[pair], pair))`` for each merge. This
    calls a Python function for every pair, and takes four fifths of the time.
    """
    module: Any = sys.modules[learn_bpe.__module__]
    count_pairs = module.get_pair_statistics

    def counts(words: object) -> tuple[_Counts, object]:
        stats, places = count_pairs(words)
        return _Counts(stats), places

    def maximum(values: Any, key: object = None) -> Any:
        return max(values) if key is None else values.most_frequent()

    module.get_pair_statistics, module.max = counts, maximum
    try:
        yield
    finally:
        module.get_pair_statistics = count_pairs
        del module.max


def make_splitter(codes: str) -> Callable[[str], str]:
    """Create a function that splits a tokenised line into sub-words with the given codes."""
    bpe = BPE(io.StringIO(codes))

    def split(line: str) -> str:
        if len(bpe.cache) > WORDS_REMEMBERED:
            bpe.cache.clear()
        result: str = bpe.process_line(line)
        return result

    return split


def split_lines(lines: Iterable[str], *, codes: str, workers: int) -> Iterator[str]:
    """Split lines into sub-words; the order is kept."""
    return map_lines(partial(make_splitter, codes), lines, workers=workers)


def _learn_command(options: argparse.Namespace) -> None:
    words: Counter[str] = Counter()
    for path in options.inputs:
        words.update(
            count_words(
                progress(read(path), what=f"count words of {path.name}"), workers=options.workers
            )
        )
    codes, learned = learn(words, merges=options.merges)
    write_text_atomically(options.codes, codes)
    if learned < options.merges:
        print(
            f"{options.codes}: the text gives only {learned} of the {options.merges} merges",
            file=sys.stderr,
        )


def _apply_command(options: argparse.Namespace) -> None:
    codes = "\n".join(read(options.codes)) + "\n"
    for source, target in options.files:
        lines = split_lines(read(source), codes=codes, workers=options.workers)
        write_lines(progress(lines, what=f"BPE {target.name}"), target)
    if options.vocabulary:
        counts = count_words(read(options.files[0][1]), workers=options.workers)
        ordered = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        write_lines((f"{word} {count}" for word, count in ordered), options.vocabulary)


def main(arguments: Sequence[str]) -> None:
    """Learn or apply byte-pair encoding."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.bpe", description=__doc__)
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("learn", help="learn one set of merges from several texts")
    command.add_argument("--merges", type=positive, required=True)
    command.add_argument("--codes", type=Path, required=True, help="the file to write")
    command.add_argument("inputs", type=Path, nargs="+")
    command.set_defaults(command=_learn_command)

    command = commands.add_parser("apply", help="split the words of tokenised texts")
    command.add_argument("--codes", type=Path, required=True)
    command.add_argument(
        "--vocabulary", type=Path, help="file for the sub-words of the first text with their counts"
    )
    in_out_pairs(command)
    command.set_defaults(command=_apply_command)

    for command in commands.choices.values():
        command.add_argument("--workers", type=positive, default=available_cores())
    options = parser.parse_args(arguments)
    options.command(options)


if __name__ == "__main__":
    run(main)
