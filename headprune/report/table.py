"""From result files to a table: one row for each way to prune, over all its seeds."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headprune.errors import DataError
from headprune.plan import HeadPlan
from headprune.report.bleu import read_lines
from headprune.report.markdown import (
    SIGNIFICANCE_LEVEL,
    markdown_rows,
    mean_and_sd,
    signed,
    significant,
)
from headprune.report.marks import CONSTANT_MARK, constant_note, constant_seeds
from headprune.report.paper import SOURCE, PaperTable
from headprune.report.results import Result
from headprune.report.signature import common_part
from headprune.stats import PairedTest, Spread, paired_randomisation, spread

_CSV_COLUMNS = (
    *("row", "kind", "percent_pruned", "heads_kept", "counts", "parameters"),
    *("bleu_mean", "bleu_sd", "chrf_mean", "chrf_sd", "seeds", "delta"),
    *("before_mean", "before_sd", "paper_delta", "p_values", "signature", "constant_translations"),
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to prune, over its seeds.

    Attributes:
        percent: share of heads pruned.
        heads_kept, counts: of the plans; None where they differ between seeds.
        parameters: mean number of weights of the models.
        bleu, chrf: over the seeds, fine-tuned; `values` are each seed's BLEU.
        delta: mean BLEU less that of the row that the table compares with.
        p_values: of each seed's model against that seed's control; empty where not tested.
        before: BLEU right after pruning, before any fine-tuning.
        paper_delta: the paper's difference in BLEU to its unpruned model.
        signature: what the figures are of, with `*` where the seeds differ.
        constant: number of seeds whose fine-tuned model translates every sentence alike.
    """

    label: str
    kind: str
    percent: float
    heads_kept: int | None
    counts: str | None
    parameters: float | None
    bleu: Spread
    chrf: Spread
    values: tuple[float, ...]
    seeds: tuple[int, ...]
    delta: float | None
    p_values: tuple[float, ...]
    before: Spread | None
    before_values: tuple[float, ...]
    paper_delta: float | None
    signature: str
    constant: int = 0


@dataclass(frozen=True, kw_only=True)
class Table:
    """A study's outcome.

    Attributes:
        baseline: the unpruned model as first trained.
        control: the unpruned model fine-tuned for as long as the pruned ones.
        rows: the pruned models, in the order in which they were given, fewest pruned first.
        heads: heads of the unpruned model.
        sacrebleu: sacreBLEU's signature of each metric.
        test_signature: sacreBLEU's signature of the significance test, if there was one.
        paper: the paper's tables that `paper_delta` is taken from, if any.
    """

    title: str
    baseline: Row | None
    control: Row | None
    rows: tuple[Row, ...]
    heads: int
    sentences: int
    sacrebleu: Mapping[str, str]
    test_signature: str | None
    paper: tuple[PaperTable, ...]

    @property
    def compared_with(self) -> Row | None:
        """The row that differences are taken to: the control, or else the baseline."""
        return self.control or self.baseline


def summarise(
    results: Sequence[tuple[Path, Result]],
    *,
    title: str,
    paper: Sequence[PaperTable] = (),
    test: bool = True,
) -> Table:
    """Gather results into a table.

    Args:
        results: result files and their content.
        title: what stands above the table.
        paper: the paper's tables to set beside it; the first that has a row's like is taken.
        test: test each pruned model against the control of the same seed.

    Raises:
        DataError: results that cannot stand in one table, or one seed twice in a row.
    """
    if not results:
        raise DataError("no result to report")
    _require_comparable(results)
    by_kind: dict[str, dict[str, list[tuple[Path, Result]]]] = {}
    for path, result in results:
        same_row = by_kind.setdefault(result.kind, {}).setdefault(result.row, [])
        if any(other.seed == result.seed for _, other in same_row):
            raise DataError(f"{path}: seed {result.seed} of {result.row!r} is there twice")
        same_row.append((path, result))
    for rows_of_kind in by_kind.values():
        for same_row in rows_of_kind.values():
            same_row.sort(key=lambda item: item[1].seed)

    controls = [item for items in by_kind.get("control", {}).values() for item in items]
    tests = _test_against(controls, by_kind.get("pruned", {})) if test and controls else {}
    baseline = _only_row(by_kind.get("baseline", {}))
    control = _only_row(by_kind.get("control", {}))
    compared_with = control or baseline

    tuned, untuned = by_kind.get("pruned", {}), by_kind.get("before-finetune", {})
    for label in untuned:
        if label not in tuned:
            raise DataError(f"row {label!r} has results before fine-tuning but none after it")
    rows = [
        _row(
            [result for _, result in items],
            compared_with=compared_with,
            p_values=tuple(tests[path].p_values[0] for path, _ in items if path in tests),
            before=tuple(result.bleu for _, result in untuned.get(label, [])),
            paper=paper,
        )
        for label, items in tuned.items()
    ]
    first = results[0][1]
    return Table(
        title=title,
        baseline=baseline,
        control=control,
        rows=tuple(sorted(rows, key=lambda row: row.percent)),
        heads=first.head_plan.total,
        sentences=first.sentences,
        sacrebleu=first.sacrebleu,
        test_signature=next((outcome.signature for outcome in tests.values()), None),
        paper=tuple(paper),
    )


def to_markdown(table: Table) -> str:
    """The table for reading: Markdown, with what it is of and how it was measured below it."""
    versus = "control" if table.control else "baseline"
    header = ["model", "heads kept", "parameters", "BLEU", "chrF", "n"]
    optional: dict[str, Callable[[Row], str]] = {
        f"Δ {versus}": lambda row: signed(row.delta),
        f"p < {SIGNIFICANCE_LEVEL:g}": lambda row: significant(row.p_values),
        "BLEU before fine-tuning": lambda row: str(row.before) if row.before else "",
        "paper's Δ": lambda row: signed(row.paper_delta),
    }
    lines = [row for row in (table.baseline, table.control, *table.rows) if row is not None]
    shown = {name: cell for name, cell in optional.items() if any(cell(row) for row in lines)}
    cells = [[*header, *shown]]
    for row in lines:
        kept = "varies" if row.heads_kept is None else f"{row.heads_kept} of {table.heads}"
        size = "" if row.parameters is None else f"{row.parameters:,.0f}"
        bleu = f"{row.bleu} {CONSTANT_MARK}" if row.constant else str(row.bleu)
        fixed = [row.label, kept, size, bleu, str(row.chrf), str(row.bleu.n)]
        cells.append([*fixed, *(cell(row) for cell in shown.values())])
    return "\n".join(
        [
            f"# {table.title}",
            "",
            *markdown_rows(cells),
            "",
            *_notes(table, versus=versus),
            "",
            "Signatures:",
            "",
            "```",
            *(f"BLEU|{table.sacrebleu['bleu']}", f"chrF|{table.sacrebleu['chrf']}"),
            *([f"test|{table.test_signature}"] if table.test_signature else []),
            *(row.signature for row in lines),
            "```",
            "",
        ]
    )


def to_csv(table: Table) -> str:
    """The table for spreadsheets: one line a row, empty where there is no value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for row in (table.baseline, table.control, *table.rows):
        if row is None:
            continue
        writer.writerow(
            [
                row.label,
                row.kind,
                f"{row.percent:.4f}",
                row.heads_kept,
                row.counts,
                None if row.parameters is None else round(row.parameters),
                *mean_and_sd(row.bleu),
                *mean_and_sd(row.chrf),
                " ".join(map(str, row.seeds)),
                None if row.delta is None else f"{row.delta:.4f}",
                *(mean_and_sd(row.before) if row.before else (None, None)),
                None if row.paper_delta is None else f"{row.paper_delta:.2f}",
                " ".join(f"{p:.4f}" for p in row.p_values),
                row.signature,
                row.constant,
            ]
        )
    return out.getvalue()


def to_json(table: Table) -> str:
    """The table for programs: all of it, each seed's value included."""
    content: dict[str, Any] = {
        "format": "headprune.table",
        "version": 1,
        **asdict(table),
        "paper": [
            {"source": SOURCE, "table": paper.name, "unpruned": paper.unpruned}
            for paper in table.paper
        ],
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _row(
    results: Sequence[Result],
    *,
    compared_with: Row | None = None,
    p_values: tuple[float, ...] = (),
    before: tuple[float, ...] = (),
    paper: Sequence[PaperTable] = (),
) -> Row:
    plans = [result.head_plan for result in results]
    sizes = [result.parameters for result in results if result.parameters is not None]
    kept = {plan.total_kept for plan in plans}
    counts = {str(plan) for plan in plans}
    values = tuple(result.bleu for result in results)
    bleu = spread(values)
    return Row(
        label=results[0].row,
        kind=results[0].kind,
        percent=spread([result.percent for result in results]).mean,
        heads_kept=kept.pop() if len(kept) == 1 else None,
        counts=counts.pop() if len(counts) == 1 else None,
        parameters=spread(sizes).mean if len(sizes) == len(results) else None,
        bleu=bleu,
        chrf=spread([result.chrf for result in results]),
        values=values,
        seeds=tuple(result.seed for result in results),
        delta=None if compared_with is None else bleu.mean - compared_with.bleu.mean,
        p_values=p_values,
        before=spread(before) if before else None,
        before_values=before,
        paper_delta=_paper_delta(
            paper, percent=results[0].requested_percent, counts=_common_counts(plans)
        ),
        signature=common_part([result.signature for result in results]),
        constant=constant_seeds(results),
    )


def _paper_delta(
    tables: Sequence[PaperTable], *, percent: float | None, counts: Mapping[str, tuple[int, ...]]
) -> float | None:
    deltas = (table.delta(percent=percent, counts=counts) for table in tables)
    return next((delta for delta in deltas if delta is not None), None)


def _only_row(rows: Mapping[str, list[tuple[Path, Result]]]) -> Row | None:
    if len(rows) > 1:
        raise DataError(f"more than one {'/'.join(rows)} row: only one can be compared with")
    return next((_row([result for _, result in items]) for items in rows.values()), None)


def _require_comparable(results: Sequence[tuple[Path, Result]]) -> None:
    first_path, first = results[0]
    for path, result in results[1:]:
        for what in ("study", "sacrebleu", "sentences"):
            mine, theirs = getattr(first, what), getattr(result, what)
            if mine != theirs:
                raise DataError(
                    f"{path}: {what} is {theirs!r}, but {mine!r} in {first_path}: not for one table"
                )
        if result.head_plan.heads != first.head_plan.heads:
            raise DataError(f"{path}: of a model of another shape than {first_path}")


def _test_against(
    controls: Sequence[tuple[Path, Result]],
    pruned: Mapping[str, list[tuple[Path, Result]]],
) -> dict[Path, PairedTest]:
    """Each pruned model's test against the control of its seed; without one it is not tested."""
    tests: dict[Path, PairedTest] = {}
    for control_path, control in controls:
        mine = [
            (path, result)
            for items in pruned.values()
            for path, result in items
            if result.seed == control.seed
        ]
        if not mine:
            continue
        outcome = paired_randomisation(
            read_lines(control_path.parent / control.hypotheses),
            [read_lines(path.parent / result.hypotheses) for path, result in mine],
            read_lines(control_path.parent / control.reference),
        )
        for number, (path, _) in enumerate(mine):
            tests[path] = PairedTest(
                base=outcome.base,
                scores=(outcome.scores[number],),
                p_values=(outcome.p_values[number],),
                signature=outcome.signature,
            )
    return tests


def _common_counts(plans: Sequence[HeadPlan]) -> dict[str, tuple[int, ...]]:
    """Heads kept by layer where the plans agree; where only the sums do, the sum in one layer."""
    counts: dict[str, tuple[int, ...]] = {}
    for name in plans[0].counts:
        by_layer = {plan.counts[name] for plan in plans}
        sums = {sum(c) for c in by_layer}
        if len(by_layer) == 1:
            counts[name] = by_layer.pop()
        elif len(sums) == 1:
            counts[name] = (sums.pop(),)
    return counts


def _notes(table: Table, *, versus: str) -> list[str]:
    notes = [
        f"BLEU and chrF: cased, detokenised, {table.sentences:,} sentences; mean ± sample standard "
        "deviation over n seeds. A seed draws the heads and the order of the fine-tuning data; all "
        "models are pruned from one baseline.",
    ]
    if table.control:
        notes.append(
            "control: the unpruned baseline, fine-tuned for as long and in the same way as the "
            "pruned models, so that more training is not taken for an effect of pruning."
        )
    lines = (table.baseline, table.control, *table.rows)
    notes += constant_note([row.constant for row in lines if row is not None])
    if table.compared_with:
        notes.append(f"Δ {versus}: mean BLEU less the mean BLEU of the {versus}.")
    if table.test_signature:
        notes.append(
            f"p < {SIGNIFICANCE_LEVEL:g}: seeds whose model differs from the control of the same "
            "seed, by paired approximate randomisation on this test set (not corrected for the "
            "number of tests)."
        )
    if any(row.paper_delta is not None for row in table.rows):
        tables = "; ".join(f"{paper.name}: {paper.unpruned:.2f}" for paper in table.paper)
        notes.append(
            f"paper's Δ: {SOURCE}: BLEU less that of its unpruned model ({tables}), on WMT'14 with "
            "Transformer-Base and 30 epochs of fine-tuning."
        )
    return [f"- {note}" for note in notes]
