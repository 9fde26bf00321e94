"""From GLUE result files to a table: one row for each way to prune, one column for each task."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headprune.errors import DataError
from headprune.report.glue_results import GlueResult
from headprune.report.markdown import (
    SIGNIFICANCE_LEVEL,
    markdown_rows,
    mean_and_sd,
    signed,
    significant,
)
from headprune.report.marks import CONSTANT_MARK, constant_note, constant_seeds
from headprune.report.paper import BERT_LAYERS, SOURCE, PaperGlueTable
from headprune.report.predictions import mcnemar, read_correct
from headprune.report.signature import common_part
from headprune.stats import Spread, spread

ACCURACY = "accuracy"
_CSV_COLUMNS = (
    *("row", "form", "kind", "task", "metric", "percent_pruned", "heads_kept", "counts"),
    *("parameters", "mean", "sd", "seeds", "delta", "paper_delta", "p_values", "signature"),
    "constant_predictions",
)

Found = tuple[Path, GlueResult]


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One way to prune on one task, over its seeds.

    Attributes:
        value: the task's first metric, over the seeds; `values` are each seed's.
        metrics: all metrics of the task.
        parameters: mean number of weights of the models.
        delta: mean value less that of the control.
        p_values: of each seed's model against that seed's control; empty where not tested.
        paper_delta: the paper's difference in accuracy to its unpruned model.
        signature: what the figures are of, with `*` where the seeds differ.
        constant: number of seeds whose model predicts the same for every example.
    """

    value: Spread
    values: tuple[float, ...]
    metrics: Mapping[str, Spread]
    seeds: tuple[int, ...]
    parameters: float | None
    delta: float | None
    p_values: tuple[float, ...]
    paper_delta: float | None
    signature: str
    constant: int = 0


@dataclass(frozen=True, kw_only=True)
class Row:
    """One way to prune, over its tasks.

    Attributes:
        form: how the heads are pruned: `remove`, `mask`, `uniform`; `none` where none is.
        percent: share of heads pruned.
        requested_percent: the percentage that was asked for; None where layers or heads were.
        heads_kept, counts: of the plans; None where they differ between seeds.
        cells: by task.
        signature: what the figures are of, with `*` where seeds or tasks differ.
    """

    label: str
    kind: str
    form: str
    percent: float
    requested_percent: float | None
    heads_kept: int | None
    counts: str | None
    cells: Mapping[str, Cell]
    signature: str

    @property
    def name(self) -> str:
        """The label, for a model that was not fine-tuned with a word on that."""
        return f"{self.label}, not fine-tuned" if self.kind == "before-finetune" else self.label


@dataclass(frozen=True, kw_only=True)
class Task:
    """What is the same in all results of a task.

    Attributes:
        metric: the one that is reported.
        settings: of the fine-tuning, in words.
        signature: what the task's figures are of, with `*` where its models differ.
        paper_unpruned: accuracy of the paper's unpruned BERT, where it is set beside ours.
    """

    metric: str
    settings: str
    signature: str
    paper_unpruned: float | None


@dataclass(frozen=True, kw_only=True)
class GlueTable:
    """A study's outcome on GLUE.

    Attributes:
        model: the pretrained model that all models come from.
        control: the unpruned model, fine-tuned.
        rows: the pruned models, percentages first and fewest pruned first, else in the order in
            which they were given.
        heads: heads of the unpruned model.
        layers: its number of layers.
        paper: names of the paper's tables that `paper_delta` is taken from, if any.
    """

    title: str
    model: str
    control: Row | None
    rows: tuple[Row, ...]
    tasks: Mapping[str, Task]
    heads: int
    layers: int
    paper: tuple[str, ...]

    @property
    def lines(self) -> tuple[Row, ...]:
        """The control, if there is one, and the other rows."""
        return (*([self.control] if self.control else []), *self.rows)


def summarise(
    results: Sequence[Found],
    *,
    title: str,
    paper: Sequence[PaperGlueTable] = (),
    test: bool = True,
) -> GlueTable:
    """Gather results into a table.

    Args:
        results: result files and their content.
        title: what stands above the table.
        paper: the paper's tables to set beside it; the first that has a row's like is taken.
        test: test each model against the control of the same task and seed.

    Raises:
        DataError: results that cannot stand in one table, or one seed twice in a row.
    """
    if not results:
        raise DataError("no result to report")
    _require_comparable(results)
    by_row: dict[tuple[str, str, str], dict[str, list[Found]]] = {}
    for path, result in results:
        key = (result.kind, result.row, result.form)
        same = by_row.setdefault(key, {}).setdefault(result.task, [])
        if any(other.seed == result.seed for _, other in same):
            raise DataError(
                f"{path}: {result.task}: seed {result.seed} of {result.row!r} is there twice"
            )
        same.append((path, result))

    controls = [cells for (kind, _, _), cells in by_row.items() if kind == "control"]
    if len(controls) > 1:
        raise DataError("more than one control row: only one can be compared with")
    control = controls[0] if controls else {}
    rows = {
        key: _row(cells, control={} if key[0] == "control" else control, paper=paper, test=test)
        for key, cells in by_row.items()
    }
    first = results[0][1].head_plan
    tasks = list(dict.fromkeys(result.task for _, result in results))
    return GlueTable(
        title=title,
        model=results[0][1].model,
        control=next((row for row in rows.values() if row.kind == "control"), None),
        rows=tuple(
            sorted(
                (row for row in rows.values() if row.kind != "control"),
                key=lambda row: (row.requested_percent is None, row.percent),
            )
        ),
        tasks={task: _task(task, results, paper=paper) for task in tasks},
        heads=first.total,
        layers=max(len(layers) for layers in first.heads.values()),
        paper=tuple(table.name for table in paper),
    )


def to_markdown(table: GlueTable) -> str:
    """The table for reading: Markdown, with what it is of and how it was measured below it."""
    parts = [f"# {table.title}", "", *markdown_rows(_values(table)), ""]
    differences = _differences(table)
    if differences:
        parts += ["Differences to the control:", "", *markdown_rows(differences), ""]
    signatures = [
        *(f"{name}|{task.signature}" for name, task in table.tasks.items()),
        *(f"{row.name}|{row.signature}" for row in table.lines),
    ]
    return "\n".join([*parts, *_notes(table), "", "Signatures:", "", "```", *signatures, "```", ""])


def to_csv(table: GlueTable) -> str:
    """The table for spreadsheets: one line for each row and task, empty where there is no value."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_CSV_COLUMNS)
    for row in table.lines:
        for task, cell in row.cells.items():
            writer.writerow(
                [
                    row.label,
                    row.form,
                    row.kind,
                    task,
                    table.tasks[task].metric,
                    f"{row.percent:.4f}",
                    row.heads_kept,
                    row.counts,
                    None if cell.parameters is None else round(cell.parameters),
                    *mean_and_sd(cell.value),
                    " ".join(map(str, cell.seeds)),
                    None if cell.delta is None else f"{cell.delta:.4f}",
                    None if cell.paper_delta is None else f"{cell.paper_delta:.2f}",
                    " ".join(f"{p:.4f}" for p in cell.p_values),
                    cell.signature,
                    cell.constant,
                ]
            )
    return out.getvalue()


def to_json(table: GlueTable) -> str:
    """The table for programs: all of it, each seed's value included."""
    content = {
        "format": "headprune.glue-table",
        "version": 1,
        **asdict(table),
        "paper": {"source": SOURCE, "tables": table.paper} if table.paper else None,
    }
    return json.dumps(content, indent=1, ensure_ascii=False) + "\n"


def _require_comparable(results: Sequence[Found]) -> None:
    first_path, first = results[0]
    of_task: dict[str, Found] = {}
    of_split: dict[tuple[str, str], tuple[Path, int]] = {}
    for path, result in results:
        task_path, same_task = of_task.setdefault(result.task, (path, result))
        same: list[tuple[str, object, object, Path]] = [
            ("study", first.study, result.study, first_path),
            ("model", first.model, result.model, first_path),
            (f"the metric of {result.task}", same_task.metric, result.metric, task_path),
        ]
        # A model that is measured as it is has no training set.
        for split, number in result.examples.items():
            other, known = of_split.setdefault((result.task, split), (path, number))
            same.append((f"number of {split} examples of {result.task}", known, number, other))
        for what, mine, theirs, other in same:
            if mine != theirs:
                raise DataError(
                    f"{path}: {what} is {theirs!r}, but {mine!r} in {other}: not for one table"
                )
        if result.head_plan.heads != first.head_plan.heads:
            raise DataError(f"{path}: of a model of another shape than {first_path}")


def _row(
    cells: Mapping[str, list[Found]],
    *,
    control: Mapping[str, list[Found]],
    paper: Sequence[PaperGlueTable],
    test: bool,
) -> Row:
    results = [result for found in cells.values() for _, result in found]
    kept, counts = {r.heads_kept for r in results}, {r.counts for r in results}
    first = results[0]
    return Row(
        label=first.row,
        kind=first.kind,
        form=first.form,
        percent=spread([result.percent for result in results]).mean,
        requested_percent=first.requested_percent,
        heads_kept=kept.pop() if len(kept) == 1 else None,
        counts=counts.pop() if len(counts) == 1 else None,
        cells={
            task: _cell(
                sorted(found, key=lambda item: item[1].seed),
                control=control.get(task, []),
                paper=paper,
                test=test,
            )
            for task, found in cells.items()
        },
        signature=common_part([result.signature for result in results]),
    )


def _cell(
    found: Sequence[Found],
    *,
    control: Sequence[Found],
    paper: Sequence[PaperGlueTable],
    test: bool,
) -> Cell:
    results = [result for _, result in found]
    first = results[0]
    values = tuple(result.value for result in results)
    value = spread(values)
    sizes = [result.parameters for result in results if result.parameters is not None]
    tested = test and first.metric == ACCURACY
    return Cell(
        value=value,
        values=values,
        metrics={name: spread([r.metrics[name] for r in results]) for name in first.metrics},
        seeds=tuple(result.seed for result in results),
        parameters=spread(sizes).mean if len(sizes) == len(results) else None,
        delta=value.mean - spread([r.value for _, r in control]).mean if control else None,
        p_values=tuple(_p_values(found, control)) if tested else (),
        paper_delta=_paper_delta(first, paper) if first.kind == "pruned" else None,
        signature=common_part([result.signature for result in results]),
        constant=constant_seeds(results),
    )


def _p_values(found: Sequence[Found], control: Sequence[Found]) -> Iterable[float]:
    """Each model's test against the control of its seed; without one it is not tested."""
    controls = {result.seed: (path, result) for path, result in control}
    for path, result in found:
        if result.seed not in controls:
            continue
        control_path, base = controls[result.seed]
        try:
            yield mcnemar(
                read_correct(control_path.parent / base.predictions),
                read_correct(path.parent / result.predictions),
            )
        except DataError as problem:
            raise DataError(f"{path} against {control_path}: {problem}") from None


def _paper_delta(result: GlueResult, tables: Sequence[PaperGlueTable]) -> float | None:
    if result.metric != ACCURACY:
        return None
    deltas = (
        table.delta(result.task, percent=result.requested_percent, plan=result.head_plan)
        for table in tables
    )
    return next((delta for delta in deltas if delta is not None), None)


def _task(name: str, results: Sequence[Found], *, paper: Sequence[PaperGlueTable]) -> Task:
    mine = [result for _, result in results if result.task == name]
    tuned = [result for result in mine if result.kind != "before-finetune"]
    examples = max((result.examples for result in mine), key=len)

    def varying(what: str, read: Callable[[GlueResult], float]) -> list[str]:
        values = sorted({read(result) for result in tuned})
        return [f"{what} {' or '.join(f'{value:g}' for value in values)}"] if values else []

    return Task(
        metric=mine[0].metric,
        settings=", ".join(
            [
                *(f"{split} {number:,}" for split, number in examples.items()),
                *varying("epochs", lambda result: result.epochs),
                *varying("batch size", lambda result: result.batch_size),
                *varying("learning rate", lambda result: result.learning_rate),
                *varying("max length", lambda result: result.max_length),
                *(["computed in bfloat16"] if any(_in_bfloat16(r) for r in tuned) else []),
            ]
        ),
        signature=common_part([result.signature for result in mine]),
        paper_unpruned=next(
            (
                table.unpruned(name)
                for table in paper
                if any(_paper_delta(result, [table]) is not None for result in mine)
            ),
            None,
        ),
    )


def _in_bfloat16(result: GlueResult) -> bool:
    settings = result.training.get("settings")
    return isinstance(settings, dict) and bool(settings.get("bf16"))


def _marked(cell: Cell) -> str:
    """The mean and deviation, with a mark where a model predicts one thing only."""
    return f"{cell.value} {CONSTANT_MARK}" if cell.constant else str(cell.value)


def _values(table: GlueTable) -> list[list[str]]:
    """The cells of the table of values, its header first."""
    tasks = [f"{name} ({task.metric})" for name, task in table.tasks.items()]
    cells = [["model", "form", "heads kept", "parameters", *tasks, "n"]]
    for row in table.lines:
        sizes = [cell.parameters for cell in row.cells.values() if cell.parameters is not None]
        numbers = {cell.value.n for cell in row.cells.values()}
        cells.append(
            [
                row.name,
                "" if row.form == "none" else row.form,
                "varies" if row.heads_kept is None else f"{row.heads_kept} of {table.heads}",
                # Classifiers of several tasks differ by some weights, which the CSV file has.
                f"{spread(sizes).mean / 1e6:.2f}M" if sizes else "",
                *(_marked(row.cells[task]) if task in row.cells else "" for task in table.tasks),
                " to ".join(map(str, sorted({min(numbers), max(numbers)}))),
            ]
        )
    return cells


def _differences(table: GlueTable) -> list[list[str]]:
    """The cells of the table of differences; empty where there is none."""
    optional: dict[str, Callable[[Cell], str]] = {
        "Δ": lambda cell: signed(cell.delta),
        f"p < {SIGNIFICANCE_LEVEL:g}": lambda cell: significant(cell.p_values),
        "paper's Δ": lambda cell: signed(cell.paper_delta),
    }
    shown = [
        (task, name, text)
        for task in table.tasks
        for name, text in optional.items()
        if any(text(row.cells[task]) for row in table.rows if task in row.cells)
    ]
    if not shown:
        return []
    return [
        ["model", "form", *(f"{task} {name}" for task, name, _ in shown)],
        *(
            [
                row.name,
                row.form,
                *(text(row.cells[task]) if task in row.cells else "" for task, _, text in shown),
            ]
            for row in table.rows
        ),
    ]


def _notes(table: GlueTable) -> list[str]:
    notes = [
        f"{table.model}; on each task's development set, times 100; mean ± sample standard "
        "deviation over n seeds. A seed draws the heads, where they are drawn at random, and the "
        "fine-tuning's chances; named layers are the same heads for every seed.",
        *(f"{name}: {task.settings}." for name, task in table.tasks.items()),
    ]
    cells = [cell for row in table.rows for cell in row.cells.values()]
    if any(row.form != "none" for row in table.rows):
        notes.append(
            "form: `remove`, the heads' weights are gone; `mask`, their outputs are times 0, "
            "which gives the same outputs; `uniform`, their attention scores are times 0 before "
            "the softmax, so that they still average the values of all tokens."
        )
    notes += constant_note([cell.constant for row in table.lines for cell in row.cells.values()])
    if table.control:
        notes.append(
            "control: the unpruned model, fine-tuned in the same way. Δ: mean less the control's."
        )
    if any(cell.p_values for cell in cells):
        notes.append(
            f"p < {SIGNIFICANCE_LEVEL:g}: seeds whose model differs from the control of the same "
            "seed by McNemar's exact test on the development set (not corrected for the number of "
            "tests). Tasks with a metric other than accuracy are not tested."
        )
    if any(cell.paper_delta is not None for cell in cells):
        unpruned = ", ".join(
            f"{name} {task.paper_unpruned:.2f}"
            for name, task in table.tasks.items()
            if task.paper_unpruned is not None
        )
        notes.append(
            f"paper's Δ: {SOURCE}, {', '.join(table.paper)}: accuracy less that of its unpruned "
            f"BERT-base ({unpruned}), after 10 epochs of fine-tuning. The paper's "
            "equation 2 prunes in forms `remove` and `mask`. Its released code exists in two "
            "versions: that of October 2020 prunes in form `uniform`, that of November 2021 by "
            "equation 2; which of them its numbers come from is not said."
        )
        by_layers = any(row.requested_percent is None for row in table.rows)
        if by_layers and table.layers != BERT_LAYERS:
            notes.append(
                f"The paper's sets of layers are of {BERT_LAYERS} layers; this model has "
                f"{table.layers}, and its sets are scaled to that: none of the paper's numbers "
                "stands beside them."
            )
    return [f"- {note}" for note in notes]
