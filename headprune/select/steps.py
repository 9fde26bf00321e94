"""Budgets of pruning in steps."""

from __future__ import annotations

from headprune.budget import Budget
from headprune.plan import PruningPlan
from headprune.select.ranking import Cost


def percent_of_budget(plan: PruningPlan, *, of: str = "units", cost: Cost | None = None) -> float:
    """The share that a plan prunes, in percent.

    Args:
        of: the measure of the share; see ``Budget``.
        cost: function that computes a plan's parameters or FLOPs, for shares of these.
    """
    if of == "units":
        return plan.percent_pruned
    assert cost is not None
    return 100 * (1 - cost(plan) / cost(PruningPlan.full(plan.units)))


def budgets_of_steps(start: float, goal: Budget, *, steps: int) -> list[Budget]:
    """The budgets of equal steps to a goal, from a percentage that is pruned already.

    The last one is the goal itself, without a rounding of its number.
    """
    between = [
        Budget(start + (goal.percent - start) * number / steps, goal.of)
        for number in range(1, steps)
    ]
    return [*between, goal]
