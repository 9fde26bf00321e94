"""Effects of the sub-networks that `headprune subnetworks` found, by Prasanna et al. 2020."""

from __future__ import annotations

from itertools import combinations
from statistics import fmean

from headprune.claims.claim import Measurement, Part
from headprune.claims.contrasts import contrast, part
from headprune.claims.runs import Row, Runs, method_in
from headprune.subnetworks.choices import GOOD, RANDOM, method_name
from headprune.subnetworks.elements import of_kind, units_of
from headprune.subnetworks.overlap import overlap_of


def sub_networks(runs: Runs, task: str, name: str, *, kind: str) -> Row:
    """The sub-networks of one name by model; empty where there are none, or none prunes heads."""
    row = runs.row(task, lambda record: method_in(record) == method_name(name), kind=kind)
    kept = (of_kind(record.plan, "heads") for _, record in row.values())
    return row if any(heads.total_kept < heads.total for heads in kept) else {}


def sub_networks_of_heads(runs: Runs, task: str, name: str, *, kind: str) -> Row:
    """The sub-networks of ``sub_networks``; empty where MLPs are pruned too.

    What a metric loses could then not be ascribed to the heads.
    """
    row = sub_networks(runs, task, name, kind=kind)
    plans = [(record.plan, of_kind(record.plan, "heads")) for _, record in row.values()]
    is_of_heads = all(
        plan.total - plan.total_kept == heads.total - heads.total_kept for plan, heads in plans
    )
    return row if is_of_heads else {}


def good_against_random(runs: Runs) -> Part | None:
    """Good sub-networks less random ones of the same model, not fine-tuned, mean over tasks."""
    strata = []
    for task in runs.tasks():
        rows = [
            sub_networks_of_heads(runs, task, name, kind="before-finetune")
            for name in (GOOD, RANDOM)
        ]
        if all(rows) and (difference := contrast(rows[:1], rows[1:])) is not None:
            strata.append(difference)
    return part("good - random sub-networks", strata) if strata else None


def overlap_of_survivors(runs: Runs) -> Measurement | None:
    """The mean overlap of the heads that survive in two models, over pairs and tasks.

    There is no interval, since pairs share models.
    """
    overlaps: list[float] = []
    models = 0
    for task in runs.tasks():
        row = sub_networks(runs, task, GOOD, kind="before-finetune")
        heads = [of_kind(record.plan, "heads") for _, record in row.values()]
        models += len(heads)
        overlaps += [
            overlap_of(units_of(first), units_of(other), of=first.total).value
            for first, other in combinations(heads, 2)
        ]
    if not overlaps:
        return None
    effect = Part(
        name=f"overlap of survivors, {models} models",
        effect=fmean(overlaps),
        estimate=None,
        needed="pairs of models that share none",
    )
    return Measurement(parts=[effect])
