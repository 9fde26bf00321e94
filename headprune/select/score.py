"""Units kept by a ranking of scores."""

from __future__ import annotations

from collections.abc import Iterable

from headprune.budget import Budget
from headprune.components import kinds_of_units, unit_names
from headprune.errors import UsageError
from headprune.origin import Origin
from headprune.plan import PruningPlan, is_whole
from headprune.scores.head_scores import HeadScores
from headprune.scores.names import keep_of
from headprune.select.ranking import Cost, Keep, Unit, budget_of, keep_first, unit_costs

BEST = ("high", "low")


OTHER_SCORE = "give one that is not, such as gradient-raw or taylor"
"""The advice to take a score that compares heads, neurons and layers, for error messages."""


def require_one_scale(
    score: str,
    names: Iterable[str],
    *,
    normalised: bool,
    advice: str = OTHER_SCORE,
) -> None:
    """Check that heads, neurons and layers can be compared by a score.

    Args:
        score: the name of the score.
        names: the components.
        normalised: whether the score is divided by the norm of each layer.
        advice: what to do, for the message.

    Raises:
        UsageError: several kinds of units, and a score that is divided so.
    """
    if len(kinds_of_units(names)) > 1 and normalised:
        raise UsageError(
            f"the score {score} is divided by the norm of each layer, so heads, neurons and "
            f"layers are not on one scale; {advice}"
        )


def counts_from(
    scores: HeadScores, threshold: float, *, at_least: int = 1, within: PruningPlan | None = None
) -> dict[str, list[int]]:
    """The numbers of units with scores of ``threshold`` or more in each layer, for ``by_score``.

    Held and Yang (2023) prune the heads with a negative Shapley value, a threshold of 0.

    Args:
        scores: a score of which high values are good.
        threshold: units with lower scores are not counted.
        at_least: the smallest number of a layer that has as many units.
        within: count the units that this plan keeps (default: the units that are scored).

    Raises:
        UsageError: low values of the score are good.
    """
    if keep_of(scores.name) == "low":
        raise UsageError(f"the score {scores.name} is best where it is low; give --percent")
    pool = scores.scored if within is None else within
    counts = {}
    for name, layers in pool.kept.items():
        values = [[scores.values[name][n][unit] for unit in kept] for n, kept in enumerate(layers)]
        counts[name] = [
            max(
                sum(value is not None and value >= threshold for value in of_layer),
                min(at_least, len(of_layer)),
            )
            for of_layer in values
        ]
    return counts


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

    Under a budget of parameters or FLOPs, heads, neurons and layers compete by their score for each
    unit of cost, where high scores are good: otherwise the cheap units would go first, whose scores
    are small as their number is large.

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
        raise UsageError(
            f"the score {scores.name} has no number for some of the {unit_names(scores.units)} to "
            "rank"
        )
    sign = -1.0 if keep == "high" else 1.0
    components = list(scores.units)
    costs = dict.fromkeys(components, 1)
    if len(kinds_of_units(components)) > 1:
        require_one_scale(scores.name, components, normalised=scores.is_normalised)
        if cost is not None and keep == "high":
            costs |= unit_costs(pool, cost)

    def order(unit: Unit) -> tuple[float, int, int, int]:
        component, layer, number = unit
        value = scores.values[component][layer][number]
        assert value is not None  # it is within what is scored
        return sign * value / costs[component], components.index(component), layer, number

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
            at_least=at_least,
        )
    )
