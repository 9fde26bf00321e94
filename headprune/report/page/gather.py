"""The material of a page, gathered from files and folders."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headprune.errors import DataError, UsageError, needing
from headprune.json_files import json_object, read_json
from headprune.report import saved_tables
from headprune.report.changes import FORMAT as CHANGES_FORMAT
from headprune.report.changes import read_changes
from headprune.report.page.material import ChangesResult, ComparisonResult, StudyResult
from headprune.results.control_tests import Located
from headprune.results.old_formats import CONVERTERS
from headprune.results.record import FORMAT as RECORD_FORMAT
from headprune.results.record import Record
from headprune.results.tasks import TRANSLATION
from headprune.scores import HeadScores
from headprune.scores.head_scores import FORMAT as SCORES_FORMAT

_COMPARISON = "compare.json"
_NAMES = ("result.json", "table.json", "changes.json")
"""The usual names of records, tables and changes."""

_RECORDS = (RECORD_FORMAT, *CONVERTERS)


@dataclass
class Gathered:
    """Contents of the files, in their order.

    Attributes:
        records: all records.
        tables: studies of which only the table is known.
    """

    records: list[Located] = field(default_factory=list)
    tables: list[StudyResult] = field(default_factory=list)
    comparisons: list[ComparisonResult] = field(default_factory=list)
    changes: list[ChangesResult] = field(default_factory=list)
    scores: list[HeadScores] = field(default_factory=list)

    @property
    def studies(self) -> list[list[Located]]:
        """The records by study: those of translation, and those of classification."""
        groups: dict[tuple[str, bool], list[Located]] = {}
        for path, record in self.records:
            key = (record.study, record.task == TRANSLATION)
            groups.setdefault(key, []).append((path, record))
        return list(groups.values())


def gather(paths: Sequence[Path]) -> Gathered:
    """Read records, tables, comparisons, scores and changes.

    Args:
        paths: files, or folders that are searched for such files.

    Raises:
        DataError: a file cannot be read, or is none of these.
        UsageError: a folder without any of these.
    """
    gathered = Gathered()
    for path in paths:
        if path.is_dir():
            _gather_folder(path, gathered)
        else:
            _gather_file(path, gathered, _format_of(path, warn=False))
    return gathered


def _format_of(path: Path, *, warn: bool) -> str | None:
    """The format of a file, None if it has none or cannot be read.

    Args:
        warn: name unreadable files on standard error. A file that the user named itself ends in an
            error instead.
    """
    if path.name == _COMPARISON:
        return _COMPARISON
    try:
        return str(json_object(path).get("format"))
    except DataError as problem:
        if warn and (path.name in _NAMES or not _is_json(path)):
            print(f"warning: {problem}; left out", file=sys.stderr)
        return None


def _is_json(path: Path) -> bool:
    try:
        read_json(path)
    except DataError:
        return False
    return True


def _gather_file(path: Path, gathered: Gathered, name: str | None) -> None:
    if name == _COMPARISON:
        with needing("comparisons need scipy", install="pip install scipy"):
            from headprune.compare.saved import load_report
        title, report = load_report(path.parent)
        gathered.comparisons.append(ComparisonResult(title=title, report=report))
    elif name == SCORES_FORMAT:
        gathered.scores.append(HeadScores.load(path))
    elif name == CHANGES_FORMAT:
        title = "Change of heads in fine-tuning (figure 2)"
        gathered.changes.append(ChangesResult(title=title, changes=read_changes(path)))
    elif name in saved_tables.FORMATS:
        title, table, document = saved_tables.load_table(path)
        gathered.tables.append(StudyResult(title=title, table=table, document=document))
    else:
        gathered.records.append((path, Record.load(path)))


def _gather_folder(folder: Path, gathered: Gathered) -> None:
    """Gather the files in a folder and below.

    What lies in the folder of a comparison belongs to it. Tables are left out where the folder has
    records, of which they were made; a line on standard error names those of other titles.
    """
    files = sorted(_files(folder), key=_natural)
    comparisons = [path.parent for path in files if path.name == _COMPARISON]
    own = [
        path
        for path in files
        if path.name == _COMPARISON or not any(path.is_relative_to(each) for each in comparisons)
    ]
    formats = {path: _format_of(path, warn=True) for path in own}
    formats_to_read = [*_RECORDS, _COMPARISON, SCORES_FORMAT, CHANGES_FORMAT]
    tables = [path for path in own if formats[path] in saved_tables.FORMATS]
    has_records = any(name in _RECORDS for name in formats.values())
    formats_to_read += [] if has_records else saved_tables.FORMATS
    files_to_read = [path for path in own if formats[path] in formats_to_read]
    if not files_to_read:
        raise UsageError(f"{folder}: no record, table, comparison or score in this folder")
    for path in files_to_read:
        _gather_file(path, gathered, formats[path])
    if has_records:
        studies = {record.study for _, record in gathered.records}
        for path in tables:
            if json_object(path).get("title") not in studies:
                print(
                    f"note: {path}: left out, as the folder has records; name the file itself to "
                    "show the table too",
                    file=sys.stderr,
                )


def _files(folder: Path) -> Iterator[Path]:
    for path in folder.rglob("*.json"):
        if path.is_file() and not _is_hidden(path.relative_to(folder)):
            yield path


def _is_hidden(path: Path) -> bool:
    return any(part.startswith(".") for part in path.parts)


def _natural(path: Path) -> list[tuple[int, int | str]]:
    """A key that sorts numbers inside of names by their value."""
    parts = re.split(r"(\d+)", str(path))
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]
