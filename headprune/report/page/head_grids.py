"""Grids of the heads that the models of a study keep, and of their scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headprune.compare.rows import Row
from headprune.components import HEADS
from headprune.plan import PruningPlan
from headprune.recovery.kinds import BEFORE, words_for
from headprune.report.document import Block, HeadGrid, KeptHeads, Notes, ScoredHeads, Section
from headprune.report.page.material import ComparisonResult, StudyResult
from headprune.results.labels import UNTRAINED
from headprune.results.record import Record
from headprune.results.tasks import TRANSLATION
from headprune.scores import HeadScores

_TITLE = "Which heads stay"


def grid_of_study(study: StudyResult, scores: Sequence[HeadScores]) -> list[Block]:
    """A section with the heads of all pruned models; empty where no plan is known."""
    models: dict[tuple[str, str, int], list[Record]] = {}
    for _, record in study.results:
        if record.plan.heads and record.kind != "baseline":
            models.setdefault((_label(record), record.form, record.seed), []).append(record)
    several_forms = {form for _, form, _ in models if form != "none"}
    shape = _shape([record.plan for records in models.values() for record in records])
    kept = [
        KeptHeads(
            row=f"{label}, {form}" if len(several_forms) > 1 and form != "none" else label,
            seed=seed,
            kept=_heads(records[0].plan, shape),
            value=", ".join(map(_figure, records)),
        )
        for (label, form, seed), records in models.items()
    ]
    return _section(shape, kept, scores)


def grid_of_comparison(comparison: ComparisonResult, scores: Sequence[HeadScores]) -> list[Block]:
    """The same for the models of a comparison, with its scores and others of the same weights."""
    measured = comparison.report.comparison
    weights = {each.fingerprint for each in measured.scores.values() if each.fingerprint}
    others = [each for each in scores if each.fingerprint in weights]
    shape = _shape([row.head_plan for row in measured.rows])
    rows_of_models: dict[tuple[str, int], list[Row]] = {}
    for row in measured.rows:
        if row.head_plan.heads:
            label = (
                row.score
                if row.head_plan.is_full
                else f"{row.score} {measured.amount_text(row.percent)}"
            )
            rows_of_models.setdefault((label, row.seed), []).append(row)
    models = [
        KeptHeads(
            row=label,
            seed=seed,
            kept=_heads(rows[0].head_plan, shape),
            value=f"{measured.metric} {', '.join(_values(rows))}",
        )
        for (label, seed), rows in rows_of_models.items()
    ]
    return _section(shape, models, [*measured.scores.values(), *others])


def _values(rows: Sequence[Row]) -> list[str]:
    """The figures of one model right after pruning and after each recovery."""
    recovered = (
        f"{row.after:.2f} {words_for(row.recovery)}"
        for row in rows
        if row.after is not None and row.recovery is not None
    )
    return [f"{rows[0].before:.2f} {words_for(BEFORE)}", *recovered]


def _section(
    shape: Mapping[str, tuple[int, ...]],
    models: Sequence[KeptHeads],
    scores: Sequence[HeadScores],
) -> list[Block]:
    if not shape or not models:
        return []
    fitting = [
        each for each in scores if all(each.units.get(name) == shape[name] for name in shape)
    ]
    names = [each.name for each in fitting]
    grid = HeadGrid(
        heads=shape,
        models=models,
        scores=[
            ScoredHeads(
                name=each.name if names.count(each.name) == 1 else _long_name(each),
                values={name: each.values[name] for name in shape},
                p_values={name: each.p_values[name] for name in shape if name in each.p_values},
                adjusted={
                    name: values for name, values in each.adjusted_p_values.items() if name in shape
                },
                signature=each.signature,
            )
            for each in fitting
        ],
    )
    weights = {each.fingerprint[:12] for each in fitting if each.fingerprint}
    notes = []
    if fitting:
        notes.append(
            f"Scores are of the weights {', '.join(sorted(weights)) or '(unknown)'}; dark is low, "
            "bright is high. ablation: the drop without the head, with its p-value."
        )
    return [Section(title=_TITLE, blocks=[grid, *([Notes(notes)] if notes else [])])]


def _long_name(score: HeadScores) -> str:
    """The name of a score with its metric and data."""
    metric = score.settings.get("metric")
    return f"{score.name}, {metric}, {score.data}" if metric else f"{score.name}, {score.data}"


def _heads(
    plan: PruningPlan, shape: Mapping[str, tuple[int, ...]]
) -> dict[str, tuple[tuple[int, ...], ...]]:
    """The kept heads of every component; those that the plan does not decide on are whole."""
    return {
        name: tuple(map(tuple, plan.kept[name]))
        if name in plan.kept
        else tuple(tuple(range(heads)) for heads in layers)
        for name, layers in shape.items()
    }


def _shape(plans: Sequence[PruningPlan]) -> dict[str, tuple[int, ...]]:
    """The number of heads in each layer of each component that a plan decides on."""
    shape: dict[str, tuple[int, ...]] = {}
    for plan in plans:
        shape |= {name: tuple(units) for name, units in plan.heads.items()}
    return {name: shape[name] for name in HEADS if name in shape}


def _label(record: Record) -> str:
    return record.row + UNTRAINED.get(record.kind, "")


def _figure(record: Record) -> str:
    if record.task == TRANSLATION:
        return f"BLEU {record.value:.2f}" if record.metric == "bleu" else f"{record.value:.2f}"
    return f"{record.task} {record.value:.2f}"
