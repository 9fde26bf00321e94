"""The document of a page: summary, studies, comparisons, and the origin of all numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from headprune.report import changes
from headprune.report.document import (
    Block,
    Column,
    Commands,
    Document,
    Figure,
    Notes,
    Section,
    Signatures,
    Table,
    with_own_figures,
)
from headprune.report.page.beside_paper import beside_paper
from headprune.report.page.claims import claims
from headprune.report.page.curves import training_curves
from headprune.report.page.drops import drops
from headprune.report.page.head_grids import grid_of_comparison, grid_of_study
from headprune.report.page.material import (
    ChangesResult,
    ComparisonResult,
    Material,
    StudyResult,
)
from headprune.report.page.provenance import provenance, provenance_of_comparison
from headprune.report.page.speed import against_speed
from headprune.report.table import Cell, Row
from headprune.results.marks import CONSTANT_MARK
from headprune.results.metrics import direction
from headprune.results.tasks import TRANSLATION


def page_of(material: Material, *, title: str, command: str = "", test: bool = True) -> Document:
    """The page.

    Args:
        material: studies, comparisons, scores and changes.
        title: its title.
        command: the command that made it.
        test: test the models that claims compare on the examples of their test set.
    """
    parts = [
        *(_study(study, material) for study in material.studies),
        *(_comparison(comparison, material) for comparison in material.comparisons),
    ]
    figure_2 = [_changes(each) for each in material.changes]
    if len(parts) == 1:
        # One study: its sections are those of the page.
        name, blocks = parts[0].title, list(parts[0].blocks)
        inner = [block for block in blocks if isinstance(block, Section)]
        own = [block for block in blocks if not isinstance(block, Section)]
        results = Section(title="Results", blocks=own)
        middle: list[Block] = [results, *drops(material.studies), *figure_2, *inner]
        title = title or name
    else:
        middle = [*drops(material.studies), *parts, *figure_2]
    blocks = [*_summary(material, test=test), *middle, *_command_of_page(command)]
    return Document(title=title or "Results", blocks=_with_own_names(blocks))


def _summary(material: Material, *, test: bool) -> list[Block]:
    """The claims, the sentences of comparisons, and the least and most pruned models."""
    rows = [row for study in material.studies for row in _summary_rows(study)]
    blocks = claims(material, test=test)
    if rows:
        blocks.append(
            Table(
                caption="Studies at a glance:",
                columns=[
                    *(Column("study"), Column("metric"), Column("models"), Column("seeds")),
                    *(Column("unpruned"), Column("least pruned"), Column("Δ")),
                    *(Column("most pruned"), Column("Δ, most pruned")),
                ],
                rows=rows,
            ).without_empty_columns()
        )
    several = len(material.comparisons) > 1
    for comparison in material.comparisons:
        if comparison.report.findings:
            findings = Notes(comparison.report.findings)
            blocks.append(
                Section(title=comparison.title, blocks=[findings]) if several else findings
            )
    return [Section(title="Summary", blocks=blocks)] if blocks else []


def _summary_rows(study: StudyResult) -> list[list[object]]:
    rows: list[list[object]] = []
    for name, task in study.table.tasks.items():
        pruned = [
            (row, row.cells[name])
            for row in study.table.rows
            if row.kind == "pruned" and name in row.cells
        ]
        pruned.sort(key=lambda pair: pair[0].percent)
        unpruned = study.table.compared_with
        cell = None if unpruned is None else unpruned.cells.get(name)
        seeds = {each.value.n for _, each in pruned} or ({cell.value.n} if cell else set())
        first, last = (pruned[0], pruned[-1]) if pruned else (None, None)
        forms = {row.form for row, _ in pruned}
        rows.append(
            [
                study.title,
                "BLEU"
                if name == TRANSLATION
                else f"{name} ({task.metric}{direction(task.metric)})",
                sum(len(row.cells[name].values) for row in study.table.lines if name in row.cells),
                " to ".join(map(str, sorted({min(seeds), max(seeds)}))) if seeds else None,
                None if cell is None else cell.value,
                *_described(first, with_form=len(forms) > 1),
                *_described(last if last is not first else None, with_form=len(forms) > 1),
            ]
        )
    return rows


def _described(pair: tuple[Row, Cell] | None, *, with_form: bool) -> list[object]:
    """The number of units that are kept, and the difference to the control.

    A dagger marks models that give the same output for every example, as in the tables.
    """
    if pair is None:
        return [None, None]
    row, cell = pair
    label = f"{row.label}, {row.form}" if with_form else row.label
    mark = f" {CONSTANT_MARK}" if cell.constant else ""
    return [f"{label}: {row.kept} kept{mark}", cell.shown_delta]


def _study(study: StudyResult, material: Material) -> Section:
    inner = [
        *beside_paper(study),
        *grid_of_study(study, material.scores),
        *training_curves(study),
        *provenance(study),
    ]
    own = _without_signatures(study.document)
    return Section(title=study.title, blocks=[*own, *inner])


def _comparison(comparison: ComparisonResult, material: Material) -> Section:
    document = comparison.report.document(title=comparison.title)
    # The sentences are in the summary.
    own = [block for block in _without_signatures(document) if not _is_findings(block, comparison)]
    inner = [
        *grid_of_comparison(comparison, material.scores),
        *against_speed(comparison),
        *provenance_of_comparison(comparison, document),
    ]
    return Section(title=comparison.title, blocks=[*own, *inner])


def _is_findings(block: Block, comparison: ComparisonResult) -> bool:
    return isinstance(block, Notes) and list(block.items) == list(comparison.report.findings)


def _changes(result: ChangesResult) -> Section:
    document = changes.document(result.changes, title=result.title)
    return Section(title=result.title, blocks=_without_signatures(document))


def _without_signatures(document: Document) -> list[Block]:
    """The blocks of a document, with its own figures."""
    return [block for block in with_own_figures(document) if not isinstance(block, Signatures)]


def _command_of_page(command: str) -> list[Block]:
    if not command:
        return []
    return [Section(title="This page", blocks=[Commands([command], "This page is made by:")])]


def _with_own_names(blocks: Sequence[Block]) -> list[Block]:
    """The same blocks, with a number in the names of figures that would have the same file."""
    used: dict[str, int] = {}

    def renamed(block: Block) -> Block:
        if isinstance(block, Section):
            return replace(block, blocks=[renamed(each) for each in block.blocks])
        if not isinstance(block, Figure):
            return block
        used[block.name] = used.get(block.name, 0) + 1
        number = used[block.name]
        return replace(block, name=block.name if number == 1 else f"{block.name}-{number}")

    return [renamed(block) for block in blocks]
