"""The numbers of the reference study, to compare with."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

from headprune.components import HEADS
from headprune.errors import UsageError
from headprune.plan import PruningPlan
from headprune.results.record import Record
from headprune.select import by_location

SOURCE = "Budhraja et al., EMNLP 2020"

NEAR = 2.5
"""Percentage points by which the share pruned may differ from the requested one. Where it differs
by more, the percentage is that of one component."""

GLUE_TABLES = ("table4", "table5", "table6")
"""On BERT: heads drawn by percentage; all heads of some layers; half of the layers."""
_TABLES = ("table1", "table2", "table3")
GLUE_COLUMNS = {"mnli": "MNLI-M", "qqp": "QQP", "qnli": "QNLI", "sst2": "SST-2"}
"""The columns of the paper's tables on BERT, by task."""
ACCURACY = "accuracy"
"""The metric of the paper's tables on BERT."""
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

    def delta_of(self, records: Sequence[Record]) -> float | None:
        """The difference in BLEU in the paper's row that corresponds to the records."""
        return self.delta_in(self.row_of(records))

    def row_of(self, records: Sequence[Record]) -> int | None:
        """The number of the paper's row that corresponds to the records; None without one."""
        first = records[0]
        if not first.plan.prunes_heads_alone or first.kind == "scratch":
            return None
        asked = _percent_drawn(first)
        if asked is not None and abs(first.percent - asked) > NEAR:
            asked = None
        counts = _common_counts([record.plan for record in records])
        return self.row(percent=asked, counts=counts)

    def row(self, *, percent: float | None, counts: Mapping[str, tuple[int, ...]]) -> int | None:
        """The number of the paper's row with a percentage, or with numbers of heads.

        Rows of table 1 correspond by the percentage, rows of tables 2 and 3 by the number of heads
        kept in each layer and component. None if the paper has no such row.
        """
        for number, row in enumerate(self._rows):
            if self._by_counts:
                same = all(_counts_agree(row[name], counts.get(name)) for name in HEADS)
            else:
                same = percent is not None and float(row["percent"]) == percent
            if same:
                return number
        return None

    def delta_in(self, number: int | None) -> float | None:
        """BLEU in a row of the paper, minus `unpruned`; None without a row."""
        return None if number is None else float(self._rows[number][self._bleu]) - self.unpruned


def _percent_drawn(record: Record) -> float | None:
    """The percentage that was asked for, where the units were drawn at random as in the paper."""
    origin = record.plan.origin
    is_random = origin is None or origin.method == "random"
    return record.requested_percent if is_random else None


def paper_table(name: str) -> PaperTable:
    """One of the paper's tables on BLEU: `table1:en-de`, `table1:en-ru`, `table2`, `table3`.

    Raises:
        UsageError: the paper has no such table or column.
    """
    table, _, column = name.partition(":")
    if table not in _TABLES:
        raise UsageError(
            f"paper: {table!r} is not one of the tables on translation, {', '.join(_TABLES)}"
        )
    rows = table_rows(table)
    columns = [c for c in rows[0] if c != "percent" and c not in HEADS]
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
        """Accuracy of the paper's unpruned BERT; None for a task that is not in the table."""
        column = GLUE_COLUMNS.get(task)
        return None if column is None else float(self._rows[0][column])

    def delta_of(self, records: Sequence[Record]) -> float | None:
        """The difference in accuracy in the paper's row that corresponds to the records."""
        return self.delta_in(records[0].task, self.row_of(records))

    def row_of(self, records: Sequence[Record]) -> int | None:
        """The number of the paper's row that corresponds to the records; None without one."""
        first = records[0]
        if first.metric != ACCURACY or not first.plan.prunes_heads_alone:
            return None
        return self.row(percent=_percent_drawn(first), plan=first.plan)

    def row(self, *, percent: float | None, plan: PruningPlan) -> int | None:
        """The number of the paper's row with a percentage, or with the layers of a plan.

        Rows of table 4 correspond by the requested percentage, in models of any size. Rows of
        tables 5 and 6 correspond by the layers whose heads are all pruned, in models as deep as
        BERT-base only: the effect of "top 3" depends on the number of layers. None if the paper
        has no such row.
        """
        for number, row in enumerate(self._rows):
            if "percent" in row:
                same = percent is not None and float(row["percent"]) == percent
            else:
                same = _is_deep_as_bert(plan) and plan == by_location(
                    plan.heads, prune=row["layers"]
                )
            if same:
                return number
        return None

    def delta_in(self, task: str, number: int | None) -> float | None:
        """Accuracy on a task in a row of the paper, minus that of its unpruned model.

        None without a row, or for a task that the paper does not have.
        """
        unpruned = self.unpruned(task)
        if number is None or unpruned is None:
            return None
        return float(self._rows[number][GLUE_COLUMNS[task]]) - unpruned


def paper_glue_table(name: str) -> PaperGlueTable:
    """One of the paper's tables on BERT: `table4`, `table5`, `table6`.

    Raises:
        UsageError: the paper has no such table.
    """
    if name not in GLUE_TABLES:
        raise UsageError(
            f"paper: {name!r} is not one of the tables on BERT, {', '.join(GLUE_TABLES)}"
        )
    # The unpruned model is not repeated in table 6; it is the same in all three.
    unpruned, rows = table_rows("table5")[0], table_rows(name)
    return PaperGlueTable(
        name=f"table {name.removeprefix('table')}",
        _rows=rows if name == "table4" else (unpruned, *rows),
    )


def figure_1() -> dict[str, list[tuple[float, float]]]:
    """The paper's figure 1, from its tables 1 and 4: for each setting, percentages and changes."""
    curves: dict[str, list[tuple[float, float]]] = {}
    for table in ("table1", "table4"):
        rows = table_rows(table)
        for column in rows[0]:
            if column != "percent":
                unpruned = float(rows[0][column])
                curves[column.upper()] = [
                    (float(row["percent"]), float(row[column]) - unpruned) for row in rows
                ]
    return curves


def _is_deep_as_bert(plan: PruningPlan) -> bool:
    return list(plan.heads) == ["ES"] and len(plan.heads["ES"]) == BERT_LAYERS


def table_rows(table: str) -> tuple[dict[str, Any], ...]:
    """The rows of one of the paper's tables, `table1` to `table6`, by the names of its columns."""
    text = files("headprune.results").joinpath("paper_results.json").read_text(encoding="utf-8")
    content = json.loads(text)[table]
    return tuple(dict(zip(content["columns"], row, strict=True)) for row in content["rows"])


def _common_counts(plans: Sequence[PruningPlan]) -> dict[str, tuple[int, ...]]:
    """Heads kept by layer if the plans agree; if only their sums agree, the sum as one number."""
    counts: dict[str, tuple[int, ...]] = {}
    for name in plans[0].counts:
        by_layer = {plan.counts[name] for plan in plans}
        sums = {sum(layers) for layers in by_layer}
        if len(by_layer) == 1:
            counts[name] = by_layer.pop()
        elif len(sums) == 1:
            counts[name] = (sums.pop(),)
    return counts


def _counts_agree(paper_counts: str | int, counts: tuple[int, ...] | None) -> bool:
    """Check if counts equal the paper's, which are given per layer or as a sum."""
    if counts is None:
        return False
    if isinstance(paper_counts, int):
        return sum(counts) == paper_counts
    return "".join(map(str, counts)) == paper_counts
