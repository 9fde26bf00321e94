"""The reference study's own numbers, to set beside ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from headprune.errors import UsageError
from headprune.plan import COMPONENTS

SOURCE = "Budhraja et al., EMNLP 2020"
_TABLES = ("table1", "table2", "table3")


@dataclass(frozen=True, kw_only=True)
class PaperTable:
    """BLEU of one of the paper's tables, as differences to its unpruned model.

    Attributes:
        name: for captions, such as `table 1, en-de`.
        unpruned: BLEU of the paper's unpruned model.
    """

    name: str
    unpruned: float
    _rows: tuple[Mapping[str, Any], ...]
    _by_counts: bool
    _bleu: str

    def delta(
        self, *, percent: float | None, counts: Mapping[str, tuple[int, ...]]
    ) -> float | None:
        """BLEU of the paper's row of that percentage, or of those counts, less `unpruned`.

        Table 1 goes by the percentage; tables 2 and 3 by heads kept per layer and per component.
        None where the paper has no such row.
        """
        for row in self._rows:
            if self._by_counts:
                same = all(_counts_agree(row[name], counts.get(name)) for name in COMPONENTS)
            else:
                same = percent is not None and float(row["percent"]) == percent
            if same:
                return float(row[self._bleu]) - self.unpruned
        return None


def paper_table(name: str) -> PaperTable:
    """One of the paper's tables on BLEU: `table1:en-de`, `table1:en-ru`, `table2`, `table3`.

    Raises:
        UsageError: the paper has no such table or column.
    """
    table, _, column = name.partition(":")
    if table not in _TABLES:
        raise UsageError(f"paper: {table!r} is not one of {', '.join(_TABLES)}")
    text = files("headprune.report").joinpath("paper_results.json").read_text(encoding="utf-8")
    content = json.loads(text)[table]
    rows = tuple(dict(zip(content["columns"], row, strict=True)) for row in content["rows"])
    columns = [c for c in content["columns"] if c != "percent" and c not in COMPONENTS]
    column = column or (columns[0] if len(columns) == 1 else "")
    if column not in columns:
        known = ", ".join(f"{table}:{c}" for c in columns)
        raise UsageError(f"paper: which column? Give one of {known}")
    unpruned = next(float(row[column]) for row in rows if row["percent"] == 0)
    return PaperTable(
        name=f"table {table.removeprefix('table')}, {column if len(columns) > 1 else 'en-ru'}",
        unpruned=unpruned,
        _rows=rows,
        _by_counts="ES" in content["columns"],
        _bleu=column,
    )


def _counts_agree(theirs: str | int, ours: tuple[int, ...] | None) -> bool:
    """Whether ours are the counts as the paper has them: by layer, or one sum a component."""
    if ours is None:
        return False
    return sum(ours) == theirs if isinstance(theirs, int) else "".join(map(str, ours)) == theirs
