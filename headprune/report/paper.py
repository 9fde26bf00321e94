"""The reference study's own numbers, to set beside ours."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from headprune.errors import UsageError
from headprune.plan import COMPONENTS, HeadPlan
from headprune.select import by_location

SOURCE = "Budhraja et al., EMNLP 2020"
GLUE_TABLES = ("table4", "table5", "table6")
"""On BERT: heads drawn by percentage; all heads of some layers; half of the layers."""
_TABLES = ("table1", "table2", "table3")
_GLUE_COLUMNS = {"mnli": "MNLI-M", "qqp": "QQP", "qnli": "QNLI", "sst2": "SST-2"}
BERT_LAYERS = 12
"""Layers of the paper's BERT-base; each has 12 heads."""


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
    rows = _rows_of(table)
    columns = [c for c in rows[0] if c != "percent" and c not in COMPONENTS]
    column = column or (columns[0] if len(columns) == 1 else "")
    if column not in columns:
        known = ", ".join(f"{table}:{c}" for c in columns)
        raise UsageError(f"paper: which column? Give one of {known}")
    unpruned = next(float(row[column]) for row in rows if row["percent"] == 0)
    return PaperTable(
        name=f"table {table.removeprefix('table')}, {column if len(columns) > 1 else 'en-ru'}",
        unpruned=unpruned,
        _rows=rows,
        _by_counts="ES" in rows[0],
        _bleu=column,
    )


@dataclass(frozen=True, kw_only=True)
class PaperGlueTable:
    """Accuracy of one of the paper's tables on BERT, as differences to its unpruned model."""

    name: str
    _rows: tuple[Mapping[str, Any], ...]

    def unpruned(self, task: str) -> float | None:
        """Accuracy of the paper's unpruned BERT; None for a task that the paper has not."""
        column = _GLUE_COLUMNS.get(task)
        return None if column is None else float(self._rows[0][column])

    def delta(self, task: str, *, percent: float | None, plan: HeadPlan) -> float | None:
        """Accuracy of the paper's like row, less that of its unpruned model.

        Table 4 goes by the percentage that was asked for, which a model of any size can have.
        Tables 5 and 6 go by the layers that `plan` empties, in models as deep as BERT-base only:
        what "top 3" is worth depends on the number of layers. None where the paper has no such
        row.
        """
        unpruned = self.unpruned(task)
        for row in self._rows:
            if "percent" in row:
                same = percent is not None and float(row["percent"]) == percent
            else:
                same = _is_deep_as_bert(plan) and plan == by_location(
                    plan.heads, prune=row["layers"]
                )
            if same and unpruned is not None:
                return float(row[_GLUE_COLUMNS[task]]) - unpruned
        return None


def paper_glue_table(name: str) -> PaperGlueTable:
    """One of the paper's tables on BERT: `table4`, `table5`, `table6`.

    Raises:
        UsageError: the paper has no such table.
    """
    if name not in GLUE_TABLES:
        raise UsageError(f"paper: {name!r} is not one of {', '.join(GLUE_TABLES)}")
    # The unpruned model is not repeated in table 6; it is the same in all three.
    unpruned, rows = _rows_of("table5")[0], _rows_of(name)
    return PaperGlueTable(
        name=f"table {name.removeprefix('table')}",
        _rows=rows if name == "table4" else (unpruned, *rows),
    )


def _is_deep_as_bert(plan: HeadPlan) -> bool:
    return list(plan.heads) == ["ES"] and len(plan.heads["ES"]) == BERT_LAYERS


def _rows_of(table: str) -> tuple[dict[str, Any], ...]:
    text = files("headprune.report").joinpath("paper_results.json").read_text(encoding="utf-8")
    content = json.loads(text)[table]
    return tuple(dict(zip(content["columns"], row, strict=True)) for row in content["rows"])


def _counts_agree(theirs: str | int, ours: tuple[int, ...] | None) -> bool:
    """Whether ours are the counts as the paper has them: by layer, or one sum a component."""
    if ours is None:
        return False
    return sum(ours) == theirs if isinstance(theirs, int) else "".join(map(str, ours)) == theirs
