"""Tables of studies, read from the table.json that a report wrote."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headprune.errors import DataError, UsageError
from headprune.json_files import json_object
from headprune.report import glue, translation
from headprune.report.document import Document
from headprune.report.table import Cell, ResultTable, Row, Task
from headprune.results.pairs import mean_paired
from headprune.results.paper import PaperTable, paper_glue_table, paper_table
from headprune.results.signature import fields_of
from headprune.results.stats import Spread
from headprune.results.tasks import TRANSLATION

FORMATS = ("headprune.table", "headprune.glue-table")
"""The tables of translation studies and of studies on GLUE."""


def load_table(path: Path) -> tuple[str, ResultTable, Document]:
    """Read a table; returns its title, its rows and its document.

    Raises:
        DataError: the file cannot be read, or is no table of a report.
    """
    content = json_object(path)
    if content.get("format") not in FORMATS or content.get("version") != 1:
        raise DataError(f"{path}: not the table of a report (table.json)")
    try:
        title = str(content["title"])
        if content["format"] == FORMATS[0]:
            table = _translation_table(content)
            papers = _papers(content.get("paper") or ())
            return title, table, translation.document(table, title=title, paper=papers)
        table = _glue_table(content)
        return title, table, glue.document(_glue_study(content, table))
    except (KeyError, TypeError, ValueError, AttributeError, UsageError) as problem:
        raise DataError(f"{path}: not the whole table of a report ({problem!r})") from None


def _glue_study(content: Mapping[str, Any], table: ResultTable) -> glue.GlueStudy:
    names = (content.get("paper") or {}).get("tables", ())
    return glue.GlueStudy(
        title=content["title"],
        table=table,
        rows=table.rows,
        settings={name: task["settings"] for name, task in content["tasks"].items()},
        paper=tuple(paper_glue_table(name.replace(" ", "")) for name in names),
    )


def _glue_table(content: Mapping[str, Any]) -> ResultTable:
    heads, baseline = content["heads"], content.get("baseline")
    control = None if content["control"] is None else _glue_row(content["control"], heads)
    return ResultTable(
        study="",
        model=content["model"],
        baseline=None if baseline is None else _glue_row(baseline, heads),
        control=control,
        rows=tuple(_paired(_glue_row(row, heads), control) for row in content["rows"]),
        tasks={
            name: Task(
                metric=task["metric"],
                metric_signatures={},
                examples={},
                signature=task["signature"],
                test_signature=None,
            )
            for name, task in content["tasks"].items()
        },
        heads=heads,
        unit_names=str(content.get("unit_names", "heads")),
        layers=content["layers"],
    )


def _glue_row(values: Mapping[str, Any], heads: int) -> Row:
    names = ("label", "kind", "form", "percent", "requested_percent", "heads_kept", "counts")
    return Row(
        **{name: values[name] for name in names},
        kept_between=_kept_between(values),
        units=heads,
        cells={task: _glue_cell(cell) for task, cell in values["cells"].items()},
        signature=values["signature"],
    )


def _kept_between(values: Mapping[str, Any]) -> tuple[int, int] | None:
    between = values.get("kept_between")
    return None if between is None else (between[0], between[1])


def _glue_cell(values: Mapping[str, Any]) -> Cell:
    return Cell(
        value=Spread(**values["value"]),
        values=tuple(values["values"]),
        metrics={name: Spread(**spread) for name, spread in values["metrics"].items()},
        seeds=tuple(values["seeds"]),
        p_values=tuple(values["p_values"]),
        constant=values.get("constant", 0),
        pairs=values.get("pairs"),
        **{name: values[name] for name in ("parameters", "delta", "paper_delta", "signature")},
    )


def _translation_table(content: Mapping[str, Any]) -> ResultTable:
    heads = content["heads"]
    rows = [_translation_row(values, heads) for values in content["rows"]]
    for row, values in zip(tuple(rows), content["rows"], strict=True):
        # Earlier versions gave this value to all rows of a label.
        if values["before"] is not None and row.kind == "pruned":
            rows.append(_before(row, values))
    baseline, control = (
        None if content[kind] is None else _translation_row(content[kind], heads)
        for kind in ("baseline", "control")
    )
    return ResultTable(
        study="",
        model=None,
        baseline=baseline,
        control=control,
        rows=tuple(_paired(row, control) for row in rows),
        tasks={
            TRANSLATION: Task(
                metric="bleu",
                metric_signatures=content["sacrebleu"],
                examples={"test": content["sentences"]} if content["sentences"] else {},
                signature="",
                test_signature=content["test_signature"],
            )
        },
        heads=heads,
        unit_names=str(content.get("unit_names", "heads")),
        layers=0,
    )


def _paired(row: Row, control: Row | None) -> Row:
    """A row whose differences are over the seeds that have a control.

    Where some seeds had none, earlier versions took the difference to the mean of all controls.
    """
    cells = {}
    for task, cell in row.cells.items():
        cells[task] = cell
        if control is None or task not in control.cells or cell.delta is None:
            continue
        difference = mean_paired(cell.of_seed, control.cells[task].of_seed)
        if 0 < difference.pairs < cell.value.n:
            cells[task] = replace(cell, delta=difference.mean, pairs=difference.pairs)
    return replace(row, cells=cells)


def _translation_row(values: Mapping[str, Any], heads: int) -> Row:
    bleu, chrf = Spread(**values["bleu"]), values["chrf"]
    fields = fields_of(values["signature"])
    asked = re.fullmatch(r"([\d.]+)%", values["label"])
    cell = Cell(
        value=bleu,
        values=tuple(values["values"]),
        metrics={"bleu": bleu, **({} if chrf is None else {"chrf": Spread(**chrf)})},
        seeds=tuple(values["seeds"]),
        p_values=tuple(values["p_values"]),
        constant=values.get("constant", 0),
        pairs=values.get("pairs"),
        **{name: values[name] for name in ("parameters", "delta", "paper_delta", "signature")},
    )
    return Row(
        **{name: values[name] for name in ("label", "kind", "percent", "heads_kept", "counts")},
        kept_between=_kept_between(values),
        form=fields.get("form", "remove"),
        requested_percent=float(asked[1]) if asked else None,
        units=heads,
        cells={TRANSLATION: cell},
        signature=values["signature"],
    )


def _before(row: Row, values: Mapping[str, Any]) -> Row:
    """The row of the same models right after pruning, of which the table has BLEU alone."""
    value = Spread(**values["before"])
    cell = Cell(
        value=value,
        values=tuple(values["before_values"]),
        metrics={"bleu": value},
        seeds=row.cells[TRANSLATION].seeds,
        parameters=None,
        delta=None,
        p_values=(),
        paper_delta=None,
        signature=row.signature,
    )
    return Row(
        label=row.label,
        kind="before-finetune",
        form=row.form,
        percent=row.percent,
        requested_percent=row.requested_percent,
        heads_kept=row.heads_kept,
        kept_between=row.kept_between,
        counts=row.counts,
        units=row.units,
        cells={TRANSLATION: cell},
        signature=row.signature,
    )


def _papers(tables: Sequence[Mapping[str, Any]]) -> list[PaperTable]:
    """The paper's tables, such as `table 1, en-de`."""
    papers = []
    for each in tables:
        table, language = each["table"].replace("table ", "table").split(", ")
        papers.append(paper_table(f"{table}:{language}" if table == "table1" else table))
    return papers
