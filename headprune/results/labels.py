"""Labels of a record that follow from its plan and the plan's origin."""

from __future__ import annotations

from headprune.budget import Budget, Speedup
from headprune.errors import UsageError
from headprune.plan import PruningPlan

UNTRAINED = {"before-finetune": ", not fine-tuned", "refitted": ", re-fitted"}
"""For kinds of records of pruned models that were not trained, the end of their labels."""


def kind_of(plan: PruningPlan, *, finetune: str) -> str:
    """The kind of the record of a model: the baseline or control where nothing is pruned."""
    if not plan.is_full:
        return "pruned"
    return "baseline" if finetune == "none" else "control"


def method_of(plan: PruningPlan, *, default: str) -> str:
    """The method that chose the units, as signatures write it; ``none`` where none is pruned.

    Args:
        default: the label of a plan without an origin, such as those of older files.
    """
    if plan.is_full:
        return "none"
    return default if plan.origin is None else plan.origin.method


def is_draw(method: str) -> bool:
    """True if a method draws units at random, such as ``random-by-component``."""
    return method.split("-")[0] == "random"


def row_of(plan: PruningPlan, *, default: str) -> str:
    """The label of the table's row: the requested budget, if any."""
    asked = None if plan.is_full or plan.origin is None else plan.origin.budget
    return asked or default


def requested_percent_of(plan: PruningPlan) -> float | None:
    """The requested percentage of units; None if it is not known, or a speed was requested.

    A method from outside may write its budget in its own words.
    """
    if plan.origin is None or plan.origin.budget is None:
        return None
    try:
        if Speedup.parse(plan.origin.budget):
            return None
        budget = Budget.parse(plan.origin.budget)
    except UsageError:
        return None
    return budget.percent if budget.of == "units" else None
