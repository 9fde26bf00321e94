"""Read a list of translations of the Tatoeba project, and recognise its release."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from data_prep.lib.archives import extract
from data_prep.lib.cli import progress, run
from data_prep.lib.corpus import read, text_digest, write
from data_prep.lib.hold_out import Pair
from headprune.errors import DataError

# Checksum of deu.txt in the archive of 2018-05-13. The archive is replaced with every release, so
# its current checksum cannot be known beforehand.
RELEASES = {"a79c90b3cd3102decffa49cc00fb6f20023974f2ae5c4782515bebe133fcc07b": "2018-05-13"}


def read_list(path: Path, *, name: str | None = None) -> Iterator[Pair]:
    """Read the pairs of a file of lines ``english<TAB>other``, with or without a third column.

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


def main(arguments: Sequence[str]) -> None:
    """Check a list of translations, and write it as two plain files."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.tatoeba", description=__doc__)
    parser.add_argument("--sha256", metavar="HEX", help="refuse a list with another checksum")
    parser.add_argument("--language", default="de", help="the language beside English")
    parser.add_argument("--member", default="deu.txt", help="the list's name in a zip archive")
    parser.add_argument("list", type=Path, help="deu.txt, deu.txt.gz or deu-eng.zip")
    parser.add_argument("prefix", type=Path, help="writes PREFIX.en and PREFIX.LANGUAGE")
    options = parser.parse_args(arguments)

    prefix: Path = options.prefix
    with tempfile.TemporaryDirectory(
        dir=prefix.parent, prefix=f".{prefix.name}.en.", suffix=".tmp"
    ) as scratch:
        path, name = options.list, str(options.list)
        if path.suffix == ".zip":
            path = extract(path, [[options.member]], Path(scratch))[0]
            name = f"{options.member} in {options.list}"
        release = check_release(path, name=name, expected=options.sha256)
        pairs = progress(read_list(path, name=name), what="read")
        count = write(pairs, f"{prefix}.en", f"{prefix}.{options.language}")
    print(f"{prefix}: {count} pairs", file=sys.stderr)
    print(release, file=sys.stderr)


if __name__ == "__main__":
    run(main)
