"""The material of a page: studies, comparisons, scores and changes of heads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from headprune.report.document import Document
from headprune.report.table import ResultTable, Row
from headprune.results.changes import Changes
from headprune.results.control_tests import Located
from headprune.results.record import Record
from headprune.scores import HeadScores

if TYPE_CHECKING:
    # Statistics of comparisons need scipy, which records do not.
    from headprune.compare.report import Report as ComparisonReport


@dataclass(frozen=True, kw_only=True)
class StudyResult:
    """One study: its table, and the records that it was made of.

    Attributes:
        title: the title of the study.
        table: the rows.
        document: the table as a document, with notes, signatures and figure.
        results: the records; empty where only the table is known.
    """

    title: str
    table: ResultTable
    document: Document
    results: Sequence[Located] = field(default=())

    def records_of(self, row: Row, task: str) -> list[Record]:
        """The records of a row on a task; empty where only the table is known."""
        return [
            record
            for _, record in self.results
            if (record.kind, record.row, record.form, record.task)
            == (row.kind, row.label, row.form, task)
        ]


@dataclass(frozen=True, kw_only=True)
class ComparisonResult:
    """The outcome of `headprune compare`.

    Attributes:
        folder: the folder that it was written to.
    """

    title: str
    folder: Path
    report: ComparisonReport


@dataclass(frozen=True, kw_only=True)
class ChangesResult:
    """The outcome of `headprune changes`."""

    title: str
    changes: Sequence[Changes]


@dataclass(frozen=True, kw_only=True)
class Material:
    """All that a page is made of.

    Attributes:
        scores: scores of heads; a study shows those of models with its shape.
    """

    studies: Sequence[StudyResult] = ()
    comparisons: Sequence[ComparisonResult] = ()
    changes: Sequence[ChangesResult] = ()
    scores: Sequence[HeadScores] = ()
