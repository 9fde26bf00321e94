"""The rows of a study beside the same rows of the paper's tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headprune.report.document import Block, Column, Notes, Section, Table
from headprune.report.page.material import StudyResult
from headprune.report.shown import Decimals, rejections, signed
from headprune.report.table import Cell, Row
from headprune.results.paper import (
    ACCURACY,
    GLUE_TABLES,
    NEAR,
    SOURCE,
    PaperGlueTable,
    PaperTable,
    paper_glue_table,
    paper_table,
)
from headprune.results.record import Record
from headprune.results.signature import fields_of
from headprune.results.significance import SIGNIFICANCE_LEVEL
from headprune.results.tasks import TRANSLATION

_TRANSLATION_TABLES: Mapping[str, Sequence[str]] = {
    "Table 1": ("table1:en-ru", "table1:en-de"),
    "Table 2": ("table2",),
    "Table 3": ("table3",),
}


@dataclass(frozen=True)
class _Group:
    """A row of the study on one task, with its records."""

    row: Row
    cell: Cell
    records: Sequence[Record]

    @property
    def is_like_the_papers(self) -> bool:
        """True if the heads were chosen as in the paper, in all components, and nothing else is
        pruned."""
        first = self.records[0]
        fields = fields_of(first.signature)
        asked = first.requested_percent
        near = asked is None or abs(self.row.percent - asked) <= NEAR
        by_the_paper = fields.get("select") in ("random", "location", "layers")
        return near and by_the_paper and first.plan.prunes_heads_alone


def beside_paper(study: StudyResult) -> list[Block]:
    """A section with a table for each table of the paper that has rows of the study."""
    tables: list[Block] = []
    if TRANSLATION in study.table.tasks:
        groups = _groups(study, TRANSLATION)
        for name, columns in _TRANSLATION_TABLES.items():
            papers = [paper_table(column) for column in columns]
            tables += _translation_table(study, name, papers, groups)
    for name in GLUE_TABLES:
        tables += _glue_table(study, paper_glue_table(name))
    if not tables:
        return []
    note = Notes(
        [
            f"{SOURCE}. Its numbers are of other models, data and lengths of training (Transformer-"
            "Base on WMT'14 with 30 epochs of fine-tuning, BERT-base with 10), so differences to "
            "the unpruned model are set side by side: Δ here is to the control of this study, Δ in "
            "the paper to its unpruned model."
        ]
    )
    return [Section(title="Beside the paper", blocks=[note, *tables])]


def _groups(study: StudyResult, task: str) -> list[_Group]:
    groups = []
    for row in study.table.rows:
        records = study.records_of(row, task)
        if row.kind == "pruned" and records:
            groups.append(_Group(row, row.cells[task], records))
    return [group for group in groups if group.is_like_the_papers]


def _translation_table(
    study: StudyResult, name: str, papers: Sequence[PaperTable], groups: Sequence[_Group]
) -> list[Table]:
    # The columns of a table have the same rows.
    matching = [
        (group, [paper.delta_in(number) for paper in papers])
        for number, group in _in_the_papers_order(papers[0], groups)
    ]
    if not matching:
        return []
    reference = study.table.compared_with
    rows: list[list[object]] = []
    if reference is not None and TRANSLATION in reference.cells:
        unpruned = [number for paper in papers for number in (paper.unpruned, None)]
        rows.append([reference.label, *_here(reference.cells[TRANSLATION]), *unpruned])
    for group, deltas in matching:
        numbers: list[object] = []
        for paper, delta in zip(papers, deltas, strict=True):
            numbers += [None if delta is None else paper.unpruned + delta, delta]
        rows.append([group.row.label, *_here(group.cell), *numbers])
    languages = [f" {paper.name.split(', ')[1].upper()}" for paper in papers]
    paper_columns = [
        column
        for language in languages
        for column in (Column(f"paper{language}", Decimals(2)), Column("Δ in the paper", signed))
    ]
    return [
        Table(
            caption=f"{name} of the paper:",
            columns=[Column("model"), *_columns_here("BLEU"), *paper_columns],
            rows=rows,
        ).without_empty_columns()
    ]


def _glue_table(study: StudyResult, paper: PaperGlueTable) -> list[Table]:
    rows: list[list[object]] = []
    reference = study.table.compared_with
    for task in study.table.tasks:
        unpruned = paper.unpruned(task)
        if unpruned is None or study.table.tasks[task].metric != ACCURACY:
            continue
        own = [
            [group.row.label, task, group.row.form, *_here(group.cell), unpruned + delta, delta]
            for number, group in _in_the_papers_order(paper, _groups(study, task))
            if (delta := paper.delta_in(task, number)) is not None
        ]
        if own and reference is not None and task in reference.cells:
            rows.append(
                [reference.label, task, None, *_here(reference.cells[task]), unpruned, None]
            )
        rows += own
    if not rows:
        return []
    return [
        Table(
            caption=f"{paper.name.capitalize()} of the paper:",
            columns=[
                *(Column("model"), Column("task"), Column("form"), *_columns_here(ACCURACY)),
                *(Column("paper", Decimals(2)), Column("Δ in the paper", signed)),
            ],
            rows=rows,
        ).without_empty_columns()
    ]


def _in_the_papers_order(
    paper: PaperTable | PaperGlueTable, groups: Sequence[_Group]
) -> list[tuple[int, _Group]]:
    """The groups that a table of the paper has rows for, with the rows' numbers, in its order."""
    numbered = [(paper.row_of(group.records), group) for group in groups]
    found = [(number, group) for number, group in numbered if number is not None]
    return sorted(found, key=lambda pair: pair[0])


def _columns_here(metric: str) -> list[Column]:
    return [
        *(Column(f"{metric} here"), Column("n"), Column("Δ here")),
        Column(f"p < {SIGNIFICANCE_LEVEL:g}", rejections),
    ]


def _here(cell: Cell) -> list[object]:
    return [cell.value, cell.value.n, cell.shown_delta, cell.p_values or None]
