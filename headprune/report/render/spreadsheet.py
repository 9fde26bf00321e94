"""Documents as CSV, for spreadsheets: the sheet alone, empty where there is no value."""

from __future__ import annotations

import csv
import io

from headprune.report.document import Document

SUFFIX = ".csv"


def render(document: Document) -> str:
    """The sheet with its header."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(column.name for column in document.sheet.columns)
    writer.writerows(document.sheet.texts())
    return out.getvalue()
