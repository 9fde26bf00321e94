"""The report of a translation study: records to a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headprune.recovery.variant import L0_GATES
from headprune.report.document import Block, Column, Document, Figure, Notes, Signatures, Table
from headprune.report.figure import draw
from headprune.report.shown import (
    Decimals,
    Marked,
    paired_note,
    rejections,
    rounded,
    signed,
    spaced,
    spaced_p_values,
    whole,
)
from headprune.report.table import Cell, ResultTable, Row, name_of
from headprune.results.labels import is_draw
from headprune.results.marks import constant_note
from headprune.results.paper import SOURCE, PaperTable
from headprune.results.signature import fields_of
from headprune.results.significance import SIGNIFICANCE_LEVEL
from headprune.results.stats import Spread
from headprune.results.tasks import TRANSLATION

BEFORE = "before-finetune"
"""The kind of models that are measured right after pruning."""


@dataclass(frozen=True, kw_only=True)
class Line:
    """A row of the report: models of one way to prune, and the same before their fine-tuning.

    Attributes:
        before: the cell of the models right after pruning; None where they were not measured.
    """

    row: Row
    before: Cell | None = None

    @property
    def cell(self) -> Cell:
        """The cell of the models: of the fine-tuned ones, where there are any."""
        return self.row.cells[TRANSLATION]

    @property
    def name(self) -> str:
        """The label; marked if the models were not fine-tuned."""
        return name_of(self.row)

    @property
    def right_after(self) -> Cell | None:
        """The cell of the models right after pruning, whether they were fine-tuned later or not."""
        return self.cell if self.row.kind == BEFORE else self.before

    @property
    def bleu(self) -> Spread:
        """BLEU over the seeds."""
        return self.cell.value

    @property
    def chrf(self) -> Spread | None:
        """chrF over the seeds, where it was measured."""
        return self.cell.metrics.get("chrf")


@dataclass(frozen=True, kw_only=True)
class TranslationStudy:
    """The rows of the report.

    Attributes:
        baseline, control: the unpruned models.
        lines: the pruned models, fewest units pruned first.
    """

    title: str
    table: ResultTable
    baseline: Line | None
    control: Line | None
    lines: tuple[Line, ...]

    @property
    def compared_with(self) -> Line | None:
        """The reference line for differences: the control, or else the baseline."""
        return self.control or self.baseline

    @property
    def all_lines(self) -> tuple[Line, ...]:
        """The unpruned models, where there are any, and the others."""
        unpruned = (line for line in (self.baseline, self.control) if line is not None)
        return (*unpruned, *self.lines)


def study_of(table: ResultTable, *, title: str) -> TranslationStudy:
    """Join rows before and after fine-tuning.

    Models that were re-fitted or trained from scratch are no fine-tuning of the pruned models.
    Models without a fine-tuning are lines of their own.
    """
    before = {(row.label, row.form): row for row in table.rows if row.kind == BEFORE}
    lines = []
    for row in table.rows:
        if row.kind == "pruned":
            same = before.pop((row.label, row.form), None)
            lines.append(Line(row=row, before=None if same is None else same.cells[TRANSLATION]))
        elif row.kind != BEFORE:
            lines.append(Line(row=row))
    lines += [Line(row=row) for row in before.values()]
    return TranslationStudy(
        title=title,
        table=table,
        baseline=None if table.baseline is None else Line(row=table.baseline),
        control=None if table.control is None else Line(row=table.control),
        lines=tuple(sorted(lines, key=lambda line: line.row.percent)),
    )


def document(table: ResultTable, *, title: str, paper: Sequence[PaperTable] = ()) -> Document:
    """The document of a translation study.

    Args:
        table: a table with records of translation only.
        title: the title of the document and its figure.
        paper: the paper's tables whose differences are shown.
    """
    study = study_of(table, title=title)
    task = table.tasks[TRANSLATION]
    blocks: list[Block] = [
        _values_table(study),
        Notes(_notes(study, paper)),
        Signatures(
            [
                *(
                    f"{name}|{task.metric_signatures[name.lower()]}"
                    for name in ("BLEU", "chrF")
                    if name.lower() in task.metric_signatures
                ),
                *([f"test|{task.test_signature}"] if task.test_signature else []),
                *(line.row.signature for line in study.all_lines),
            ]
        ),
    ]
    return Document(
        title=title,
        blocks=blocks,
        sheet=_sheet(study),
        values=_values(study, paper),
        figures=[Figure(name="figure", draw=lambda: draw(study), alt=_alt(study))],
    )


def _alt(study: TranslationStudy) -> str:
    """The figure in words."""
    means = "; ".join(f"{line.name} {line.bleu}" for line in study.all_lines)
    return f"BLEU of the pruned models beside the unpruned ones: {means}."


def _values_table(study: TranslationStudy) -> Table:
    versus = _versus(study)
    columns: list[tuple[Column, list[object]]] = [
        (Column("model"), [line.name for line in study.all_lines]),
        (Column("form"), _forms(study)),
        (
            Column(f"{study.table.unit_names} kept"),
            [line.row.kept for line in study.all_lines],
        ),
        (Column("parameters", whole), [line.cell.parameters for line in study.all_lines]),
        (
            Column("BLEU"),
            [Marked(line.bleu, line.cell.constant > 0) for line in study.all_lines],
        ),
        (Column("chrF"), [line.chrf for line in study.all_lines]),
        (Column("n"), [line.bleu.n for line in study.all_lines]),
        (Column(f"Δ {versus}"), [line.cell.shown_delta for line in study.all_lines]),
        (
            Column(f"p < {SIGNIFICANCE_LEVEL:g}", rejections),
            [line.cell.p_values or None for line in study.all_lines],
        ),
        (
            Column("BLEU before fine-tuning"),
            [line.before.value if line.before else None for line in study.all_lines],
        ),
        (Column("paper's Δ", signed), [line.cell.paper_delta for line in study.all_lines]),
    ]
    columns = [(column, cells) for column, cells in columns if any(c is not None for c in cells)]
    return Table(
        columns=[column for column, _ in columns],
        rows=list(zip(*(cells for _, cells in columns), strict=True)),
    )


def _forms(study: TranslationStudy) -> list[object]:
    """The form of each line; None for all lines where the pruned models have one form."""
    if len({line.row.form for line in study.lines}) < 2:
        return [None for _ in study.all_lines]
    return [None if line.row.form == "none" else line.row.form for line in study.all_lines]


def _versus(study: TranslationStudy) -> str:
    return "control" if study.control else "baseline"


def _is_trained_with_gates(row: Row) -> bool:
    """Check for models whose one fine-tuning chose their heads; comparisons add a second one."""
    fields = fields_of(row.signature)
    has_one_training = "+" not in fields.get("finetune", "")
    return row.kind == "pruned" and fields.get("select") == L0_GATES and has_one_training


def _notes(study: TranslationStudy, paper: Sequence[PaperTable]) -> list[str]:
    task = study.table.tasks[TRANSLATION]
    sentences = f", {task.examples['test']:,} sentences" if "test" in task.examples else ""
    selects = [fields_of(line.row.signature).get("select", "random") for line in study.lines]
    # Plans by scores, or of a file, are the same for all seeds.
    heads = "" if selects and not any(map(is_draw, selects)) else "the heads and "
    notes = [
        f"BLEU and chrF: cased, detokenised{sentences}; mean ± sample standard deviation over n "
        f"seeds. A seed draws {heads}the order of the fine-tuning data; all models are "
        "pruned from one baseline.",
    ]
    if study.control:
        notes.append(
            "control: the unpruned baseline, fine-tuned for as long and in the same way as the "
            "pruned models, so that more training is not taken for an effect of pruning."
        )
    if scratch := [line.row.label for line in study.lines if line.row.kind == "scratch"]:
        notes.append(
            f"{', '.join(scratch)}: not pruned from the baseline, but trained in the pruned shape "
            "from random weights for as long as the baseline; the seed draws these too."
        )
    if gates := [line.row.label for line in study.lines if _is_trained_with_gates(line.row)]:
        notes.append(
            f"{', '.join(gates)}: the heads are chosen by gates with an L0 penalty during the "
            "fine-tuning, so that each seed has its own."
        )
    notes += constant_note([line.cell.constant for line in study.all_lines])
    if study.control:
        notes.append(
            "Δ control: mean difference in BLEU to the control of the same "
            f"seed{paired_note([line.cell.pairs for line in study.lines])}."
        )
    elif study.baseline:
        notes.append("Δ baseline: mean BLEU less the BLEU of the baseline.")
    if task.test_signature:
        notes.append(
            f"p < {SIGNIFICANCE_LEVEL:g}: seeds whose model differs from the control of the same "
            "seed, by paired approximate randomisation on this test set (not corrected for the "
            "number of tests)."
        )
    if any(line.cell.paper_delta is not None for line in study.lines):
        tables = "; ".join(f"{table.name}: {table.unpruned:.2f}" for table in paper)
        notes.append(
            f"paper's Δ: {SOURCE}: BLEU less that of its unpruned model ({tables}), on WMT'14 with "
            "Transformer-Base and 30 epochs of fine-tuning."
        )
    return notes


def _sheet(study: TranslationStudy) -> Table:
    four = Decimals(4)
    return Table(
        columns=[
            *(Column("row"), Column("kind"), Column("percent_pruned", four)),
            *(Column("heads_kept"), Column("counts"), Column("parameters", rounded)),
            *(Column("bleu_mean", four), Column("bleu_sd", four)),
            *(Column("chrf_mean", four), Column("chrf_sd", four)),
            *(Column("seeds", spaced), Column("delta", four)),
            *(Column("before_mean", four), Column("before_sd", four)),
            *(Column("paper_delta", Decimals(2)), Column("p_values", spaced_p_values)),
            *(Column("signature"), Column("constant_translations")),
        ],
        rows=[
            [
                *(line.row.label, line.row.kind, line.row.percent),
                *(line.row.heads_kept, line.row.counts, line.cell.parameters),
                *(*_mean_and_sd(line.bleu), *_mean_and_sd(line.chrf)),
                *(line.cell.seeds, line.cell.delta),
                *_mean_and_sd(line.before.value if line.before else None),
                *(line.cell.paper_delta, line.cell.p_values),
                *(line.row.signature, line.cell.constant),
            ]
            for line in study.all_lines
        ],
    )


def _mean_and_sd(value: Spread | None) -> tuple[float | None, float | None]:
    return (None, None) if value is None else (value.mean, value.sd)


def _values(study: TranslationStudy, paper: Sequence[PaperTable]) -> Mapping[str, Any]:
    task = study.table.tasks[TRANSLATION]
    return {
        "format": "headprune.table",
        "version": 1,
        "title": study.title,
        "baseline": _line_values(study.baseline),
        "control": _line_values(study.control),
        "rows": [_line_values(line) for line in study.lines],
        "heads": study.table.heads,
        **({} if study.table.unit_names == "heads" else {"unit_names": study.table.unit_names}),
        "sentences": task.examples.get("test", 0),
        "sacrebleu": task.metric_signatures,
        "test_signature": task.test_signature,
        "paper": [
            {"source": SOURCE, "table": table.name, "unpruned": table.unpruned} for table in paper
        ],
    }


def _line_values(line: Line | None) -> dict[str, Any] | None:
    if line is None:
        return None
    row, cell, before = line.row, line.cell, line.before
    return {
        "label": row.label,
        "kind": row.kind,
        "percent": row.percent,
        "heads_kept": row.heads_kept,
        **({} if row.kept_between is None else {"kept_between": row.kept_between}),
        "counts": row.counts,
        "parameters": cell.parameters,
        "bleu": asdict(line.bleu),
        "chrf": None if line.chrf is None else asdict(line.chrf),
        "values": cell.values,
        "seeds": cell.seeds,
        "delta": cell.delta,
        **({} if cell.pairs is None else {"pairs": cell.pairs}),
        "p_values": cell.p_values,
        "before": None if before is None else asdict(before.value),
        "before_values": () if before is None else before.values,
        "paper_delta": cell.paper_delta,
        "signature": row.signature,
        "constant": cell.constant,
    }
