"""The files of records in folders."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Iterator, Sequence
from pathlib import Path

from headprune.errors import DataError, UsageError
from headprune.json_files import json_object, read_json
from headprune.results.old_formats import CONVERTERS
from headprune.results.record import FORMAT

FORMATS = (FORMAT, *CONVERTERS)
"""The formats of records."""

NAME = "result.json"
"""The usual name of a record."""

REFERENCE = "reference"
ENDS = {"predictions": ".predictions.tsv", "hypotheses": ".hyp.txt", REFERENCE: ".txt"}
"""The ends of the names of files with the outputs of models."""

_GRID = "grid"
_CELL = re.compile(r"bs\d+-lr.+")


def beside(record: Path, end: str) -> Path:
    """The file whose name is that of a record, with ``end`` in place of ``.json``."""
    # Not with_suffix: half.3 has no suffix to give up, and half.4 would have the same file.
    return record.with_name(record.name.removesuffix(".json") + end)


def output_files(record: Path) -> dict[str, Path]:
    """The files beside a record for the outputs of its model."""
    ends = {**ENDS, REFERENCE: f".reference{ENDS[REFERENCE]}"}
    return {name: beside(record, end) for name, end in ends.items()}


def files_of_records(paths: Sequence[Path]) -> list[Path]:
    """The files of records among files and folders; all files that are named themselves.

    Files in folders that cannot be read are named on standard error.

    Raises:
        UsageError: a folder without any record.
    """
    files: list[Path] = []
    for path in paths:
        if not path.is_dir():
            files.append(path)
            continue
        below = [each for each in sorted(json_files_in(path)) if format_in(each) in FORMATS]
        if not below:
            raise UsageError(f"{path}: no record in this folder")
        files += below
    return files


def json_files_in(folder: Path) -> Iterator[Path]:
    """The JSON files in a folder and below that may hold results.

    Hidden files and folders, such as those of editors and checkpoints, are left out, and so are
    the records of a grid search.
    """
    for path in folder.rglob("*.json"):
        is_hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        if path.is_file() and not is_hidden and not is_of_a_grid(path, folder=folder):
            yield path


def format_in(path: Path, *, names: Collection[str] = (NAME,), warn: bool = True) -> str | None:
    """The format that a JSON file names; None if it names none or cannot be read.

    Args:
        names: usual names of the files that are looked for. Files of other names are expected to
            be JSON, but not of any form.
        warn: name files that cannot be read on standard error.
    """
    try:
        return str(json_object(path).get("format"))
    except DataError as problem:
        if warn and (path.name in names or not _is_json(path)):
            print(f"warning: {problem}; left out", file=sys.stderr)
        return None


def is_of_a_grid(path: Path, *, folder: Path) -> bool:
    """True if a record in ``folder`` is of a search of settings by `headprune glue --grid`.

    It is the record of a cell (grid/bs16-lr5e-05/result.json), or of the search that a study does
    once for all of its rows (grid/TASK/result.json). Neither is a row of the study.
    """
    parts = path.relative_to(folder).parts
    if len(parts) < 3 or parts[-3] != _GRID:
        return False
    return bool(_CELL.fullmatch(parts[-2])) or (path.parent / _GRID).is_dir()


def _is_json(path: Path) -> bool:
    try:
        read_json(path)
    except DataError:
        return False
    return True
