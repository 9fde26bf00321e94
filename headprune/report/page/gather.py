"""The material of a page, gathered from files and folders."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from headprune.errors import DataError, UsageError, needing
from headprune.report import saved_tables
from headprune.report.page.material import ChangesResult, ComparisonResult, StudyResult
from headprune.results.changes import FORMAT as CHANGES_FORMAT
from headprune.results.changes import read_changes
from headprune.results.control_tests import Located
from headprune.results.record import Record
from headprune.results.record_files import FORMATS as RECORD_FORMATS
from headprune.results.record_files import NAME as RECORD_NAME
from headprune.results.record_files import format_in, json_files_in
from headprune.results.tasks import TRANSLATION
from headprune.scores import HeadScores
from headprune.scores.head_scores import FORMAT as SCORES_FORMAT

_COMPARISON = "compare.json"
_NAMES = (RECORD_NAME, "table.json", "changes.json")
"""The usual names of records, tables and changes."""


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


def gather(paths: Sequence[Path], *, named: Mapping[str, Path] | None = None) -> Gathered:
    """Read records, tables, comparisons, scores and changes.

    Args:
        paths: files, or folders that are searched for such files.
        named: further files or folders, by the name of the study that their records are of.

    Raises:
        DataError: a file cannot be read, or is none of these.
        UsageError: a folder without any of these, or a named one without records.
    """
    gathered = Gathered()
    places: list[tuple[str | None, Path]] = [(None, path) for path in paths]
    for name, path in [*places, *(named or {}).items()]:
        before = len(gathered.records)
        if path.is_dir():
            _gather_folder(path, gathered)
        else:
            _gather_file(path, gathered, _format_of(path, warn=False))
        if name is not None and len(gathered.records) == before:
            raise UsageError(
                f"--study {name}: {path} has no records of a study; give it without --study"
            )
        if name is not None:
            gathered.records[before:] = [
                (place, replace(record, study=name)) for place, record in gathered.records[before:]
            ]
    return gathered


def _format_of(path: Path, *, warn: bool) -> str | None:
    """The format of a file, None if it has none or cannot be read.

    Args:
        warn: name unreadable files on standard error. A file that the user named itself ends in an
            error instead.
    """
    if path.name == _COMPARISON:
        return _COMPARISON
    return format_in(path, names=_NAMES, warn=warn)


def _gather_file(path: Path, gathered: Gathered, name: str | None) -> None:
    if name == _COMPARISON:
        with needing("comparisons need scipy", install="pip install scipy"):
            from headprune.compare.saved import load_report
        title, report = load_report(path.parent)
        gathered.comparisons.append(
            ComparisonResult(title=title, folder=path.parent, report=report)
        )
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
    records, of which they were made; a line on standard error names those of other records.
    """
    files = sorted(json_files_in(folder), key=_natural)
    comparisons = [path.parent for path in files if path.name == _COMPARISON]
    own = [
        path
        for path in files
        if path.name == _COMPARISON or not any(path.is_relative_to(each) for each in comparisons)
    ]
    formats = {path: _format_of(path, warn=True) for path in own}
    formats_to_read = [*RECORD_FORMATS, _COMPARISON, SCORES_FORMAT, CHANGES_FORMAT]
    tables = [path for path in own if formats[path] in saved_tables.FORMATS]
    has_records = any(name in RECORD_FORMATS for name in formats.values())
    formats_to_read += [] if has_records else saved_tables.FORMATS
    files_to_read = [path for path in own if formats[path] in formats_to_read]
    if not files_to_read:
        raise UsageError(f"{folder}: no record, table, comparison or score in this folder")
    for path in files_to_read:
        _gather_file(path, gathered, formats[path])
    if has_records:
        for path in tables:
            if not _is_of(path, gathered.records):
                print(
                    f"note: {path}: left out, as the folder has records; name the file itself to "
                    "show the table too",
                    file=sys.stderr,
                )


def _is_of(path: Path, records: Sequence[Located]) -> bool:
    """True if a table is that of the records' study, or all its values are the records'."""
    try:
        title, table, _ = saved_tables.load_table(path)
    except DataError:
        return False
    values = {(record.kind, record.row, record.task, record.value) for _, record in records}
    return title in {record.study for _, record in records} or all(
        (row.kind, row.label, task, value) in values
        for row in table.lines
        for task, cell in row.cells.items()
        for value in cell.values
    )


def _natural(path: Path) -> list[tuple[int, int | str]]:
    """A key that sorts numbers inside of names by their value."""
    parts = re.split(r"(\d+)", str(path))
    return [(0, int(part)) if part.isdigit() else (1, part) for part in parts]
