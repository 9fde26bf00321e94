"""Read parallel text, plain or gzip; errors name the file and the line.

Sentences are separated by line feeds. All other characters at which some readers break a line
(Python's universal newlines, ``str.splitlines``) become spaces, so that every tool that reads the
prepared files counts the same number of lines.
"""

from __future__ import annotations

import argparse
import gzip
import hashlib
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, TextIO

from data_prep.lib.cli import progress, run
from data_prep.lib.compressed import open_gzip
from headprune.errors import DataError
from headprune.files import atomic_path

# Limit in bytes. A longer line is not a sentence; a file without line feeds would fill the memory.
LONGEST_LINE = 1 << 24

_BREAKS = str.maketrans(dict.fromkeys("\r\x0b\x0c\x1c\x1d\x1e\x85\u2028\u2029", " "))
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def open_bytes(path: Path) -> BinaryIO:
    """Open a file for reading; decompress it if its name ends in ``.gz``.

    Raises:
        DataError: there is no such file.
    """
    try:
        if path.suffix == ".gz":
            return open_gzip(path)
        return open(path, "rb")
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot read ({error.strerror or error})") from None


def sentence(line: bytes, *, name: str, number: int) -> str:
    """Decode one line of a file.

    Args:
        line: the bytes, with or without the line feed.
        name: the name of the file, for the error message.
        number: the line's number, counted from 1.

    Raises:
        DataError: the bytes are not UTF-8.
    """
    if number == 1:
        line = line.removeprefix(_BYTE_ORDER_MARK)
    try:
        text = line.decode("utf-8")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{name}: line {number} is not valid UTF-8 (byte {error.start + 1} of the line)"
        ) from None
    text = text.removesuffix("\n").removesuffix("\r")
    # None of the replaced characters is printable, and translate is slow.
    return text if text.isprintable() else text.translate(_BREAKS)


def decode(file: BinaryIO, *, name: str) -> Iterator[str]:
    """Decode the lines of an open binary file.

    Raises:
        DataError: a line is not UTF-8 or longer than `LONGEST_LINE`, or a compressed stream is
            broken.
    """
    number = 0
    try:
        lines = iter(partial(file.readline, LONGEST_LINE + 1), b"")
        for number, line in enumerate(lines, start=1):
            if len(line) > LONGEST_LINE:
                raise DataError(
                    f"{name}: line {number} is longer than {LONGEST_LINE} bytes; "
                    "a corpus has one sentence a line"
                )
            yield sentence(line, name=name, number=number)
    except EOFError:
        raise DataError(f"{name}: the compressed file is cut off after line {number}") from None
    except (gzip.BadGzipFile, zlib.error) as error:
        raise DataError(
            f"{name}: not a sound gzip file, broken after line {number} ({error})"
        ) from None


def read(path: str | Path, *, name: str | None = None) -> Iterator[str]:
    """Read the sentences of a text file, plain or gzip.

    Args:
        path: the file.
        name: its name in error messages; default: the path.

    Raises:
        DataError: no such file, not UTF-8, or a truncated or corrupt gzip file.
    """
    path = Path(path)
    with open_bytes(path) as file:
        yield from decode(file, name=name or str(path))


def zip_equal(sides: Sequence[Iterator[str]], *, names: Sequence[str]) -> Iterator[tuple[str, ...]]:
    """Combine the sides of a corpus line by line.

    Raises:
        DataError: their numbers of lines differ, or they have none.
    """
    number = 0
    for number, row in enumerate(zip_longest(*sides), start=1):
        if None in row:
            counts = [number - 1 if item is None else number for item in row]
            counts = [
                count + (sum(1 for _ in side) if item is not None else 0)
                for count, side, item in zip(counts, sides, row, strict=True)
            ]
            lengths = ", ".join(
                f"{name} has {count} lines" for name, count in zip(names, counts, strict=True)
            )
            raise DataError(f"the sides of the corpus differ in length: {lengths}")
        yield row
    if number == 0:
        raise DataError(f"{' and '.join(names)}: empty, no line to read")


def read_parallel(*paths: str | Path) -> Iterator[tuple[str, ...]]:
    """Read parallel text files line by line; see `zip_equal` and `read`."""
    return zip_equal([read(path) for path in paths], names=[str(path) for path in paths])


def text_digest(path: Path) -> str:
    """Compute the SHA-256, in hexadecimal, of a text file; a .gz file is decompressed first.

    Raises:
        DataError: no such file, or a damaged gzip file.
    """
    digest = hashlib.sha256()
    with open_bytes(path) as file:
        try:
            while block := file.read(1 << 20):
                digest.update(block)
        except EOFError:
            raise DataError(f"{path}: the compressed file is cut off") from None
        except (gzip.BadGzipFile, zlib.error) as error:
            raise DataError(f"{path}: not a sound gzip file ({error})") from None
    return digest.hexdigest()


def count_lines(path: str | Path) -> int:
    """Count the lines of a text file, plain or gzip."""
    return sum(1 for _ in read(path))


def write(rows: Iterable[tuple[str, ...]], *paths: str | Path) -> int:
    """Write each column of ``rows`` to a file; the files appear only when all are complete.

    Returns:
        The number of rows.
    """
    count = 0
    with ExitStack() as stack:
        # The files are created from left to right, and renamed from right to left at the end.
        targets = [stack.enter_context(atomic_path(path)) for path in paths]
        with ExitStack() as open_files:
            files: list[TextIO] = [
                open_files.enter_context(open(target, "w", encoding="utf-8", newline="\n"))
                for target in targets
            ]
            for count, row in enumerate(rows, start=1):  # noqa: B007
                for file, text in zip(files, row, strict=True):
                    file.write(text + "\n")
    return count


def write_lines(lines: Iterable[str], path: str | Path) -> int:
    """Write one file completely or not at all.

    Returns:
        The number of lines.
    """
    return write(((line,) for line in lines), path)


def main(arguments: Sequence[str]) -> None:
    """Check the two sides of a parallel corpus, and copy them."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.lib.corpus",
        description="Read the two sides of a parallel corpus (plain or .gz), check that they are "
        "UTF-8 and equally long, and write them as plain text.",
    )
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("out_source", type=Path)
    parser.add_argument("out_target", type=Path)
    options = parser.parse_args(arguments)

    def pairs() -> Iterator[tuple[str, ...]]:
        empty = True
        for row in read_parallel(options.source, options.target):
            empty = False
            yield row
        if empty:
            raise DataError(f"{options.source}, {options.target}: there is no pair in them")

    count = write(
        progress(pairs(), what=options.out_source.name), options.out_source, options.out_target
    )
    print(f"{options.out_source}, {options.out_target}: {count} pairs", file=sys.stderr)


if __name__ == "__main__":
    run(main)
