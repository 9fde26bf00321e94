"""The report of a study on GLUE: records to a document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headprune.report.document import Block, Column, Document, Figure, Notes, Signatures, Table
from headprune.report.glue_figure import draw
from headprune.report.shown import (
    Decimals,
    Marked,
    millions,
    paired_note,
    rejections,
    rounded,
    signed,
    spaced,
    spaced_p_values,
)
from headprune.report.table import Cell, ResultTable, Row, name_of
from headprune.results.control_tests import Located
from headprune.results.labels import UNTRAINED
from headprune.results.marks import constant_note
from headprune.results.metrics import direction, gain, is_low_good
from headprune.results.paper import BERT_LAYERS, SOURCE, PaperGlueTable
from headprune.results.record import Record
from headprune.results.significance import SIGNIFICANCE_LEVEL
from headprune.results.stats import spread


@dataclass(frozen=True, kw_only=True)
class GlueStudy:
    """The rows of the report.

    Attributes:
        rows: the pruned models, percentages first and fewest pruned first, else in the order in
            which they were given.
        settings: for each task, its fine-tuning in words.
        paper: the paper's tables that differences were taken from, if any.
    """

    title: str
    table: ResultTable
    rows: tuple[Row, ...]
    settings: Mapping[str, str]
    paper: tuple[PaperGlueTable, ...]

    @property
    def control(self) -> Row | None:
        """The unpruned model, fine-tuned."""
        return self.table.control

    @property
    def lines(self) -> tuple[Row, ...]:
        """The unpruned models, where there are any, and the other rows."""
        unpruned = (row for row in (self.table.baseline, self.control) if row is not None)
        return (*unpruned, *self.rows)

    def paper_unpruned(self, task: str) -> float | None:
        """The accuracy of the paper's unpruned BERT, where a row of the paper is shown."""
        shown = any(
            task in row.cells and row.cells[task].paper_delta is not None for row in self.rows
        )
        values = (paper.unpruned(task) for paper in self.paper)
        return next((value for value in values if value is not None), None) if shown else None


def study_of(
    table: ResultTable,
    results: Sequence[Located],
    *,
    title: str,
    paper: Sequence[PaperGlueTable] = (),
) -> GlueStudy:
    """Order the rows and describe the tasks' settings.

    Args:
        table: the table of the records.
        results: the records in the table.
        title: the title of the document and its figure.
        paper: the paper's tables whose differences are shown.
    """
    records = [record for _, record in results]
    return GlueStudy(
        title=title,
        table=table,
        rows=tuple(
            sorted(table.rows, key=lambda row: (row.requested_percent is None, row.percent))
        ),
        settings={
            name: _settings([record for record in records if record.task == name], task.examples)
            for name, task in table.tasks.items()
        },
        paper=tuple(paper),
    )


def document(study: GlueStudy) -> Document:
    """The document of a study."""
    blocks: list[Block] = [_values_table(study)]
    differences = _differences_table(study)
    if differences is not None:
        blocks.append(differences)
    signatures = [
        *(f"{name}|{task.signature}" for name, task in study.table.tasks.items()),
        *(f"{name_of(row)}|{row.signature}" for row in study.lines),
    ]
    return Document(
        title=study.title,
        blocks=[*blocks, Notes(_notes(study)), Signatures(signatures)],
        sheet=_sheet(study),
        values=_values(study),
        figures=[Figure(name="figure", draw=lambda: draw(study), alt=_alt(study))],
    )


def _alt(study: GlueStudy) -> str:
    """The figure in words; the table has all of its values."""
    parts = []
    for name, task in study.table.tasks.items():
        names = Counter(map(name_of, study.rows))
        cells = {
            name_of(row) + f", {row.form}" * (names[name_of(row)] > 1): row.cells[name].value
            for row in study.rows
            if name in row.cells
        }
        if not cells:
            continue
        gains = {label: gain(task.metric, value.mean) for label, value in cells.items()}
        worst, best = min(gains, key=gains.__getitem__), max(gains, key=gains.__getitem__)
        parts.append(
            f"{name} ({task.metric}): pruned models from {cells[worst]} ({worst}) to "
            f"{cells[best]} ({best})"
        )
    return f"Each task's metric, by the share of heads pruned and by layers. {'; '.join(parts)}."


def _settings(records: Sequence[Record], examples: Mapping[str, int]) -> str:
    """The fine-tuning of a task in words."""
    tuned = [record.settings for record in records if record.kind not in UNTRAINED]

    def varying(words: str, name: str) -> list[str]:
        values = sorted({settings[name] for settings in tuned if name in settings})
        return [f"{words} {' or '.join(f'{value:g}' for value in values)}"] if values else []

    return ", ".join(
        [
            *(f"{split} {number:,}" for split, number in examples.items()),
            *varying("epochs", "epochs"),
            *varying("batch size", "batch_size"),
            *varying("learning rate", "learning_rate"),
            *varying("max length", "max_length"),
            *(["computed in bfloat16"] if any(each.get("bf16") for each in tuned) else []),
        ]
    )


def _values_table(study: GlueStudy) -> Table:
    tasks = study.table.tasks
    rows: list[list[object]] = []
    for row in study.lines:
        sizes = [cell.parameters for cell in row.cells.values() if cell.parameters is not None]
        numbers = {cell.value.n for cell in row.cells.values()}
        cells = [row.cells.get(task) for task in tasks]
        rows.append(
            [
                name_of(row),
                None if row.form == "none" else row.form,
                row.kept,
                # Classifiers of several tasks differ by some weights, which the CSV file has.
                spread(sizes).mean if sizes else None,
                *(
                    None if cell is None else Marked(cell.value, cell.constant > 0)
                    for cell in cells
                ),
                " to ".join(map(str, sorted({min(numbers), max(numbers)}))),
            ]
        )
    return Table(
        columns=[
            *(Column("model"), Column("form"), Column(f"{study.table.unit_names} kept")),
            Column("parameters", millions),
            *(
                Column(f"{name} ({task.metric}{direction(task.metric)})")
                for name, task in tasks.items()
            ),
            Column("n"),
        ],
        rows=rows,
    )


_DIFFERENCES: Sequence[tuple[Column, Callable[[Cell], object]]] = (
    (Column("Δ"), lambda cell: cell.shown_delta),
    (Column(f"p < {SIGNIFICANCE_LEVEL:g}", rejections), lambda cell: cell.p_values or None),
    (Column("paper's Δ", signed), lambda cell: cell.paper_delta),
)


def _differences_table(study: GlueStudy) -> Table | None:
    """The table of differences to the control; None where there is none."""
    shown: list[tuple[Column, list[object]]] = []
    for task in study.table.tasks:
        cells = [row.cells.get(task) for row in study.rows]
        for column, value_of in _DIFFERENCES:
            values = [None if cell is None else value_of(cell) for cell in cells]
            if any(value is not None for value in values):
                shown.append((Column(f"{task} {column.name}", column.show), values))
    if not shown:
        return None
    if len(tasks := _of_accuracy(study)) > 1:
        means = [_mean_difference(row, tasks) for row in study.rows]
        shown.append((Column("mean Δ", signed), list(means)))
    return Table(
        caption=f"Differences to the {'control' if study.control else 'baseline'}:",
        columns=[Column("model"), Column("form"), *(column for column, _ in shown)],
        rows=[
            [name_of(row), row.form, *(values[number] for _, values in shown)]
            for number, row in enumerate(study.rows)
        ],
    )


def _of_accuracy(study: GlueStudy) -> list[str]:
    """The tasks that report accuracy, over which differences can be averaged."""
    return [name for name, task in study.table.tasks.items() if task.metric == "accuracy"]


def _mean_difference(row: Row, tasks: Sequence[str]) -> float | None:
    """The mean difference over tasks; None if a task has none."""
    deltas = [row.cells[task].delta for task in tasks if task in row.cells]
    known = [delta for delta in deltas if delta is not None]
    return spread(known).mean if len(known) == len(tasks) else None


def _notes(study: GlueStudy) -> list[str]:
    on = "On" if study.table.model is None else f"{study.table.model}; on"
    metrics = dict.fromkeys(task.metric for task in study.table.tasks.values())
    unscaled = [metric for metric in metrics if is_low_good(metric)]
    scale = f", times 100 (but for {' and '.join(unscaled)})" if unscaled else ", times 100"
    if len(unscaled) == len(metrics):
        scale = ""
    notes = [
        f"{on} each task's development set{scale}; mean ± sample standard "
        "deviation over n seeds. A seed draws the heads, where they are drawn at random, and the "
        "fine-tuning's chances; named layers are the same heads for every seed.",
        *(f"{name}: {settings}." for name, settings in study.settings.items() if settings),
    ]
    cells = [cell for row in study.rows for cell in row.cells.values()]
    if any(row.form != "none" for row in study.rows):
        notes.append(
            "form: `remove`, the heads' weights are gone; `mask`, their outputs are times 0, "
            "which gives the same outputs; `uniform`, their attention scores are times 0 before "
            "the softmax, so that they still average the values of all tokens."
        )
    notes += constant_note([cell.constant for row in study.lines for cell in row.cells.values()])
    has_differences = any(cell.delta is not None for cell in cells)
    if study.control:
        notes.append(
            "control: the unpruned model, fine-tuned in the same way. Δ: mean difference to the "
            f"control of the same seed{paired_note([cell.pairs for cell in cells])}."
        )
    elif has_differences:
        notes.append("Δ: mean less the baseline's, the model that was pruned.")
    if has_differences and len(tasks := _of_accuracy(study)) > 1:
        notes.append(f"mean Δ: over the tasks that report accuracy, {', '.join(tasks)}.")
    if any(cell.p_values for cell in cells):
        notes.append(
            f"p < {SIGNIFICANCE_LEVEL:g}: seeds whose model differs from the control of the same "
            "seed by McNemar's exact test on the development set (not corrected for the number of "
            "tests). Tasks with a metric other than accuracy are not tested."
        )
    if any(cell.paper_delta is not None for cell in cells):
        notes += _paper_notes(study)
    return notes


def _paper_notes(study: GlueStudy) -> list[str]:
    unpruned = {task: study.paper_unpruned(task) for task in study.table.tasks}
    known = ", ".join(
        f"{task} {value:.2f}" for task, value in unpruned.items() if value is not None
    )
    notes = [
        f"paper's Δ: {SOURCE}, {', '.join(paper.name for paper in study.paper)}: accuracy less "
        f"that of its unpruned BERT-base ({known}), after 10 epochs of fine-tuning. The paper's "
        "equation 2 prunes in forms `remove` and `mask`. Its released code exists in two "
        "versions: that of October 2020 prunes in form `uniform`, that of November 2021 by "
        "equation 2; which of them its numbers come from is not said."
    ]
    by_layers = any(row.requested_percent is None for row in study.rows)
    if by_layers and study.table.layers != BERT_LAYERS:
        notes.append(
            f"The paper's sets of layers are of {BERT_LAYERS} layers; this model has "
            f"{study.table.layers}, and its sets are scaled to that: none of the paper's numbers "
            "stands beside them."
        )
    return notes


def _sheet(study: GlueStudy) -> Table:
    four = Decimals(4)
    return Table(
        columns=[
            *(Column("row"), Column("form"), Column("kind"), Column("task"), Column("metric")),
            *(Column("percent_pruned", four), Column("heads_kept"), Column("counts")),
            *(Column("parameters", rounded), Column("mean", four), Column("sd", four)),
            *(Column("seeds", spaced), Column("delta", four), Column("paper_delta", Decimals(2))),
            *(Column("p_values", spaced_p_values), Column("signature")),
            Column("constant_predictions"),
        ],
        rows=[
            [
                *(row.label, row.form, row.kind, task, study.table.tasks[task].metric),
                *(row.percent, row.heads_kept, row.counts, cell.parameters),
                *(cell.value.mean, cell.value.sd, cell.seeds, cell.delta, cell.paper_delta),
                *(cell.p_values, cell.signature, cell.constant),
            ]
            for row in study.lines
            for task, cell in row.cells.items()
        ],
    )


def _cell_values(cell: Cell) -> dict[str, Any]:
    values = asdict(cell)
    if cell.pairs is None:
        del values["pairs"]
    return values


def _row_values(row: Row) -> dict[str, Any]:
    return {
        "label": row.label,
        "kind": row.kind,
        "form": row.form,
        "percent": row.percent,
        "requested_percent": row.requested_percent,
        "heads_kept": row.heads_kept,
        **({} if row.kept_between is None else {"kept_between": row.kept_between}),
        "counts": row.counts,
        "cells": {task: _cell_values(cell) for task, cell in row.cells.items()},
        "signature": row.signature,
    }


def _values(study: GlueStudy) -> Mapping[str, Any]:
    table = study.table
    return {
        "format": "headprune.glue-table",
        "version": 1,
        "title": study.title,
        "model": table.model,
        **({} if table.baseline is None else {"baseline": _row_values(table.baseline)}),
        "control": None if study.control is None else _row_values(study.control),
        "rows": [_row_values(row) for row in study.rows],
        "tasks": {
            name: {
                "metric": task.metric,
                "settings": study.settings[name],
                "signature": task.signature,
                "paper_unpruned": study.paper_unpruned(name),
            }
            for name, task in table.tasks.items()
        },
        "heads": table.heads,
        **({} if table.unit_names == "heads" else {"unit_names": table.unit_names}),
        "layers": table.layers,
        "paper": {"source": SOURCE, "tables": [paper.name for paper in study.paper]}
        if study.paper
        else None,
    }
