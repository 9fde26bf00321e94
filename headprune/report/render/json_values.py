"""Documents as JSON, for programs: all values, each seed's included."""

from __future__ import annotations

import json

from headprune.report.document import Document

SUFFIX = ".json"


def render(document: Document) -> str:
    """The values."""
    return json.dumps(dict(document.values), indent=1, ensure_ascii=False) + "\n"
