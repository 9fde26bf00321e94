"""Sentence pairs of one's own: read them, clean the training pairs, hold sentences out.

A training pair is dropped if a side is empty, or longer than the limit, or more than R times as
long as the other (as Moses' ``clean-corpus-n``), or if either of its sentences is in the validation
or a test set. Lengths are numbers of tokens; where a language is written without spaces, each
character of such a script counts as one, and the ratio is relative to that of the whole corpus.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import repeat
from pathlib import Path
from typing import TextIO

from data_prep.lib.cli import positive, progress, run
from data_prep.lib.corpus import read_parallel, write
from data_prep.lib.hold_out import HeldOut, Pair, hold_out
from data_prep.lib.languages import is_unspaced, length
from data_prep.lib.pairs import files_of, read_pairs
from data_prep.lib.sample import selection
from headprune.errors import DataError
from headprune.files import atomic_path, write_text_atomically

Row = tuple[str, ...]

EMPTY, TOO_LONG, RATIO, HELD_OUT = "empty side", "too long", "length ratio", "in a held-out set"
"""Reasons to drop a training pair."""

_HELD_OUT, _NOT_DRAWN = "held out", "not drawn"

LINES_HELD_OUT = 1000
"""The default number of pairs of a set that is held out; at most a tenth of the clean pairs."""


@dataclass(frozen=True, kw_only=True)
class Cleaning:
    """Limits on the lengths of a pair.

    Attributes:
        ratio: the largest ratio of the two lengths; infinite for no limit.
        longest: the largest length of a side; None keeps every pair, also with an empty side.
        unspaced: tells that a language is written without spaces, so that lengths are those of
            `length`; else they are numbers of words.
        scale: the length of the target side of the corpus over that of the source side, where
            lengths are of different units; else 1.
    """

    ratio: float
    longest: int | None
    unspaced: bool = False
    scale: float = 1.0

    def reason_to_drop(self, source: str, target: str) -> str | None:
        """The reason why a pair is not clean; None if it is."""
        if self.longest is None:
            return None
        if self.unspaced:
            lengths = (length(source), length(target))
        else:
            lengths = (len(source.split()), len(target.split()))
        if not all(lengths):
            return EMPTY
        if max(lengths) > self.longest:
            return TOO_LONG
        scaled = (lengths[0] * self.scale, lengths[1])
        return RATIO if max(scaled) / min(scaled) > self.ratio else None


def corpus_scale(pairs: Iterator[Pair]) -> float:
    """The length of all target sides over that of all source sides; 1 without text."""
    totals = [0, 0]
    for source, target in pairs:
        totals[0] += length(source)
        totals[1] += length(target)
    return totals[1] / totals[0] if all(totals) else 1.0


def _unchanged(pair: Pair) -> Pair:
    return pair


def _swapped(pair: Pair) -> Pair:
    return pair[1], pair[0]


def _files_command(options: argparse.Namespace) -> None:
    languages = (options.source_lang, options.target_lang)
    for source in options.sources:
        for path in files_of(source, languages):
            print(path)


def _read_command(options: argparse.Namespace) -> None:
    languages = (options.source_lang, options.target_lang)

    def pairs() -> Iterator[Pair]:
        for source in options.sources:
            yield from progress(read_pairs(source, languages), what=f"read {Path(source).name}")

    count = write(pairs(), *(f"{options.out}.{language}" for language in languages))
    print(f"{options.out}: {count} pairs", file=sys.stderr)


class _Division:
    """The division of a corpus into training, validation and test sets."""

    def __init__(self, options: argparse.Namespace) -> None:
        self.options = options
        self.languages = (options.source_lang, options.target_lang)
        self.folders = {"raw": options.raw_folder}
        if options.tok_folder:
            self.folders["tok"] = options.tok_folder
        self.corpora = [
            [
                f"{folder}/{name}.{each}"
                for folder in self.folders.values()
                for each in self.languages
            ]
            for name in options.corpora
        ]
        self.keeps_overlap = options.keep_all or options.keep_overlap
        self.given = HeldOut()
        self.drawn: set[Pair] = set()

    def run(self) -> None:
        options = self.options
        tests = [self._read(prefix) for prefix in options.test]
        for test in tests:
            self.given.add(test)
        valid: list[Pair] | None = None
        overlapping = 0
        if options.valid:
            pairs = self._read(options.valid)
            valid = pairs if self.keeps_overlap else [p for p in pairs if p not in self.given]
            overlapping = len(pairs) - len(valid)
            self.given.add(valid)
        if self.keeps_overlap:
            self.given = HeldOut()
        self.cleaning = self._cleaning()
        wanted = self._sizes(need_valid=valid is None, need_test=not tests)
        drawn = []
        if any(wanted):
            order = _swapped if options.hold_out_by == self.languages[1] else _unchanged
            passes = [map(order, self._clean_pairs(what)) for what in ("choose", "collect")]
            sets = hold_out(passes, wanted, seed=options.seed)
            drawn = [list(map(order, pairs)) for pairs in sets]
            for pairs in drawn:
                self.given.add(pairs)
                self.drawn.update(pairs)
        for name, size, pairs in zip(("valid", "test"), wanted, drawn, strict=False):
            if size:
                self._write(name, pairs)
        if valid is not None:
            if not valid:
                raise DataError("every validation pair has a sentence of a test set; give another")
            if Path(options.valid) != Path("raw/valid"):  # else it is in place
                self._write("valid", valid)
        self._write_training(overlapping)

    def _read(self, prefix: str) -> list[Pair]:
        rows = read_parallel(*(f"{prefix}.{each}" for each in self.languages))
        return [(source, target) for source, target in rows]

    def _write(self, name: str, pairs: Sequence[Pair]) -> None:
        prefix = Path("raw") / name
        write(pairs, *(f"{prefix}.{each}" for each in self.languages))
        print(f"{prefix}: {len(pairs)} pairs", file=sys.stderr)

    def _rows(self, what: str) -> Iterator[Row]:
        """The rows of all corpora: the two raw sentences, and the two with tokens if there are."""
        for files in self.corpora:
            yield from progress(read_parallel(*files), what=f"{what} {Path(files[0]).stem}")

    def _cleaning(self) -> Cleaning:
        options = self.options
        if options.keep_all:
            return Cleaning(ratio=options.ratio, longest=None)
        limits = Cleaning(ratio=options.ratio, longest=options.max_length)
        if not any(map(is_unspaced, self.languages)):
            return limits
        scale = corpus_scale((row[-2], row[-1]) for row in self._rows("measure"))
        return replace(limits, unspaced=True, scale=scale)

    def _reason(self, row: Row) -> str | None:
        reason = self.cleaning.reason_to_drop(row[-2], row[-1])
        return HELD_OUT if reason is None and (row[0], row[1]) in self.given else reason

    def _clean_pairs(self, what: str) -> Iterator[Pair]:
        return ((row[0], row[1]) for row in self._rows(what) if self._reason(row) is None)

    def _sizes(self, *, need_valid: bool, need_test: bool) -> tuple[int, int]:
        """The numbers of pairs to hold out for validation and testing."""
        asked = [self.options.valid_lines, self.options.test_lines]
        default = 0
        if (need_valid and asked[0] is None) or (need_test and asked[1] is None):
            clean = sum(1 for _ in self._clean_pairs("count"))
            sets = need_valid + need_test
            if clean <= sets:
                raise DataError(
                    f"only {clean} clean pairs without a sentence of a given set, too few to train "
                    f"on and to hold out {sets} more; give more --train, or --valid and --test"
                )
            default = min(LINES_HELD_OUT, max(1, clean // 10))
        sizes = [default if lines is None else lines for lines in asked]
        return sizes[0] * need_valid, sizes[1] * need_test

    def _drawn(self) -> Iterator[bool]:
        """Tell for each kept pair if it is drawn for training."""
        options = self.options
        if options.pairs is None:
            return repeat(True)
        clean = sum(1 for row in self._rows("count") if self._reason(row) is None)
        if options.pairs > clean:
            raise DataError(
                f"only {clean} clean pairs (of {', '.join(options.corpora)}; at most "
                f"{options.max_length} tokens, ratio at most {options.ratio}) for the "
                f"{options.pairs} asked for; give fewer --pairs, or more sources"
            )
        return selection(options.pairs, clean, seed=options.seed)

    def _write_training(self, overlapping: int) -> None:
        dropped: Counter[str] = Counter()
        outputs = [f"{folder}/train.{each}" for folder in self.folders for each in self.languages]
        drawn = self._drawn()
        with ExitStack() as stack:
            listed = stack.enter_context(atomic_path(Path("dropped.tsv")))
            report = stack.enter_context(open(listed, "w", encoding="utf-8", newline="\n"))
            kept = write(self._kept_rows(dropped, report, drawn=drawn), *outputs)
        held_out, not_drawn = dropped.pop(_HELD_OUT, 0), dropped.pop(_NOT_DRAWN, 0)
        total = kept + held_out + not_drawn + dropped.total()
        reasons = [f"{count} {reason}" for reason, count in dropped.most_common()]
        summary = ", ".join(reasons)
        if not kept:
            left_out = [*reasons, *([f"{held_out} held out"] if held_out else [])]
            raise DataError(f"no pair is left for training, of {total} ({', '.join(left_out)})")
        facts: dict[str, object] = {"pairs": total, "kept": kept, "held_out": held_out}
        if self.options.pairs is not None:
            facts["not_drawn"] = not_drawn
        facts |= {
            "dropped": dict(dropped.most_common()),
            "dropped_from_valid": overlapping,
        }
        write_text_atomically("dropped.json", json.dumps(facts, indent=2) + "\n")
        print(
            f"raw/train: {kept} of {total} pairs"
            + (f"; not drawn: {not_drawn}" if not_drawn else "")
            + (f"; dropped: {summary} (dropped.tsv lists them)" if summary else ""),
            file=sys.stderr,
        )
        if overlapping:
            print(
                f"raw/valid: dropped {overlapping} pairs with a sentence of a test set",
                file=sys.stderr,
            )

    def _kept_rows(
        self, dropped: Counter[str], report: TextIO, *, drawn: Iterator[bool]
    ) -> Iterator[Row]:
        report.write("reason\tpair\t" + "\t".join(self.languages) + "\n")
        for number, row in enumerate(self._rows("write"), start=1):
            reason = self._reason(row)
            if reason is None:
                if next(drawn):
                    yield row
                else:
                    dropped[_NOT_DRAWN] += 1
            elif (row[0], row[1]) in self.drawn:
                self.drawn.remove((row[0], row[1]))
                dropped[_HELD_OUT] += 1
            else:
                dropped[reason] += 1
                sides = (sentence.replace("\t", " ") for sentence in row[:2])
                report.write(f"{reason}\t{number}\t" + "\t".join(sides) + "\n")


def main(arguments: Sequence[str]) -> None:
    """Read sentence pairs, or divide them into sets."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.bitext", description=__doc__)
    commands = parser.add_subparsers(required=True)

    command = commands.add_parser("files", help="list the files of sources")
    command.add_argument("sources", nargs="+", metavar="SOURCE")
    command.set_defaults(command=_files_command)

    command = commands.add_parser("read", help="read the pairs of files and write two plain files")
    command.add_argument("--out", required=True, metavar="PREFIX")
    command.add_argument("sources", nargs="+", metavar="SOURCE")
    command.set_defaults(command=_read_command)

    command = commands.add_parser("divide", help="clean the training pairs, hold sentences out")
    command.add_argument("corpora", nargs="+", metavar="NAME")
    command.add_argument("--raw-folder", required=True, metavar="FOLDER")
    command.add_argument("--tok-folder", metavar="FOLDER", help="with tokens; decides lengths")
    command.add_argument("--valid", metavar="PREFIX", help="a given validation set")
    command.add_argument("--test", action="append", default=[], metavar="PREFIX")
    command.add_argument("--valid-lines", type=positive, metavar="N")
    command.add_argument("--test-lines", type=positive, metavar="N")
    command.add_argument("--hold-out-by", metavar="LANG")
    command.add_argument("--pairs", type=positive, metavar="N", help="draw N of the clean pairs")
    command.add_argument("--seed", type=int, required=True)
    command.add_argument("--ratio", type=float, required=True)
    command.add_argument("--max-length", type=positive, required=True)
    command.add_argument("--keep-all", action="store_true", help="drop no pair for its length")
    command.add_argument("--keep-overlap", action="store_true", help="do not look at given sets")
    command.set_defaults(command=lambda options: _Division(options).run())

    for command in commands.choices.values():
        command.add_argument("--source-lang", required=True)
        command.add_argument("--target-lang", required=True)
    options = parser.parse_args(arguments)
    options.command(options)


if __name__ == "__main__":
    run(main)
