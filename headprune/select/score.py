"""Units kept by a ranking of scores."""

from __future__ import annotations

from headprune.budget import Budget
from headprune.errors import UsageError
from headprune.origin import Origin
from headprune.plan import PruningPlan, is_whole
from headprune.scores.head_scores import HeadScores
from headprune.select.ranking import Cost, Keep, Unit, budget_of, keep_first

BEST = ("high", "low")


def by_score(
    scores: HeadScores,
    *,
    percent: float | None = None,
    per_layer: int | Keep | None = None,
    budget: Budget | None = None,
    cost: Cost | None = None,
    keep: str = "high",
    at_least: int | None = None,
    within: PruningPlan | None = None,
) -> PruningPlan:
    """Keep the units with the best scores. Give one of ``percent``, ``per_layer`` and ``budget``.

    Ties are resolved in favour of the first components, layers and numbers, so that the same file
    always gives the same plan.

    Args:
        scores: of all units that compete, or of those that a pruned model keeps.
        percent: share of all the scored units of the unpruned model to prune; units of all layers
            and components compete with one another.
        per_layer: units kept in each layer, in which units compete with those of their layer
            alone; or for each component units in all its layers or in each, as in ``at_random``.
        budget, cost: see ``keep_first``.
        keep: ``high``: high scores are good; ``low``: low ones are.
        at_least: units that every layer keeps regardless of its scores (default: 1, or the number
            asked for in a layer).
        within: choose among the units that this plan keeps (default: the units that are scored).

    Raises:
        UsageError: the request cannot be met; the message says where and why.
    """
    if keep not in BEST:
        raise UsageError(f"keep is {keep!r}, it is one of {', '.join(BEST)}")
    pool = scores.scored if within is None else within
    pool.require_shape(scores.units, of=f"the score {scores.name}")
    if not pool.is_within(scores.scored):
        raise UsageError(f"the score {scores.name} has no number for some of the heads to rank")
    sign = -1.0 if keep == "high" else 1.0
    components = list(scores.units)

    def order(unit: Unit) -> tuple[float, int, int, int]:
        component, layer, number = unit
        value = scores.values[component][layer][number]
        assert value is not None  # it is within what is scored
        return sign * value, components.index(component), layer, number

    wanted: Keep | None
    if per_layer is None or not is_whole(per_layer):
        wanted = per_layer  # type: ignore[assignment]
    else:
        wanted = {name: [per_layer] * len(layers) for name, layers in scores.units.items()}
    plan = keep_first(
        scores.units,
        order=order,
        percent=percent,
        keep=wanted,
        budget=budget,
        cost=cost,
        at_least=at_least,
        within=pool,
    )
    asked = budget_of(percent, budget)
    return plan.with_origin(
        Origin(
            method=scores.name,
            budget=None if asked is None else str(asked),
            scores=scores.fingerprint or None,
        )
    )
