"""The tables of Budhraja et al. 2020, as they stand in the package."""

from __future__ import annotations

import json
from importlib.resources import files
from typing import Any


def rows(table: str) -> list[dict[str, Any]]:
    """The rows of ``table1`` to ``table6``, by the names of their columns."""
    path = files("headprune.results").joinpath("paper_results.json")
    content = json.loads(path.read_text(encoding="utf-8"))[table]
    return [dict(zip(content["columns"], row, strict=True)) for row in content["rows"]]
