"""Rows whose units were chosen by a score, and their differences to other rows."""

from __future__ import annotations

from statistics import fmean

from headprune.claims.claim import Part
from headprune.claims.contrasts import Contrast, contrast
from headprune.claims.estimate import balanced, one_more_draw
from headprune.claims.rows import is_share_of_all_heads, random_percent
from headprune.claims.runs import Row, Runs, method_in
from headprune.methods.adversarial import IMPORTANT_FIRST
from headprune.results.record import Record


def rows_by_score(runs: Runs, task: str, method: str, *, kind: str) -> dict[float, Row]:
    """The rows of a method that pruned heads alone, by their requested percentage of the heads."""

    def matches(record: Record) -> bool:
        return method_in(record) == method and is_share_of_all_heads(record)

    rows: dict[float, Row] = {}
    for row in runs.matching(task, matches, kind=kind).values():
        percent = next(iter(row.values()))[1].requested_percent
        if percent is not None:
            rows.setdefault(percent, row)
    return rows


def against_random(runs: Runs, method: str, *, kind: str) -> Part | None:
    """A score less random choice, mean over percentages and tasks.

    A score gives one plan, so its mean over fine-tunings is one value, which is compared with the
    values of the random plans. Those of one seed are nested, so that their mean over percentages
    and tasks is one draw.
    """
    values: list[float] = []
    draws: list[dict[int, float]] = []
    for task in runs.tasks():
        for percent, row in rows_by_score(runs, task, method, kind=kind).items():
            drawn = runs.row(task, random_percent(percent), kind=kind, label=f"{percent:g}%")
            if drawn:
                values.append(fmean(record.value for _, record in row.values()))
                draws.append({seed: record.value for seed, (_, record) in drawn.items()})
    if not values:
        return None
    seeds, used = balanced(draws)
    estimate = one_more_draw(
        fmean(values[number] for number in used) if used else 0.0,
        [fmean(draws[number][seed] for number in used) for seed in seeds],
    )
    effects = [value - fmean(each.values()) for value, each in zip(values, draws, strict=True)]
    return Part(
        name=f"{method} - random",
        effect=fmean(effects) if estimate is None else estimate.effect,
        estimate=estimate,
    )


def against_important_first(runs: Runs, task: str, method: str) -> dict[float, Contrast]:
    """Fine-tuned models without the least important heads less those without the most important."""
    least = rows_by_score(runs, task, method, kind="pruned")
    most = rows_by_score(runs, task, method + IMPORTANT_FIRST, kind="pruned")
    contrasts = {
        percent: contrast([least[percent]], [most[percent]]) for percent in least if percent in most
    }
    return {percent: each for percent, each in contrasts.items() if each is not None}
