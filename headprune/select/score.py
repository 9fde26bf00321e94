"""Heads kept by a ranking of scores."""

from __future__ import annotations

from headprune.errors import UsageError
from headprune.plan import HeadPlan, is_whole
from headprune.scores.head_scores import HeadScores
from headprune.select.ranking import Head, Keep, keep_first

BEST = ("high", "low")


def by_score(
    scores: HeadScores,
    *,
    percent: float | None = None,
    per_layer: int | Keep | None = None,
    keep: str = "high",
    at_least: int | None = None,
    within: HeadPlan | None = None,
) -> HeadPlan:
    """Keep the heads with the best scores. Give one of ``percent`` and ``per_layer``.

    Heads with the same score stay in the order of components, layers and head numbers, so that
    the same file always gives the same plan.

    Args:
        scores: of all heads, or of those that a pruned model has left.
        percent: share of all the unpruned model's heads to prune; heads of all layers and
            components compete with one another.
        per_layer: heads that stay in each layer, in which heads compete with those of their layer
            alone; or for each component heads in all its layers or in each, as in ``at_random``.
        keep: ``high``: high scores are good; ``low``: low ones are.
        at_least: heads that every layer keeps whatever its scores are (default: 1, or what is
            asked for in a layer).
        within: choose among the heads that this plan keeps (default: the heads that are scored).

    Raises:
        UsageError: what is asked for cannot be had; the message says where and why.
    """
    if keep not in BEST:
        raise UsageError(f"keep is {keep!r}, it is one of {', '.join(BEST)}")
    pool = scores.scored if within is None else within
    pool.require_shape(scores.heads, of=f"the score {scores.name}")
    if not pool.is_within(scores.scored):
        raise UsageError(f"the score {scores.name} has no number for some of the heads to rank")
    sign = -1.0 if keep == "high" else 1.0
    components = list(scores.heads)

    def order(head: Head) -> tuple[float, int, int, int]:
        component, layer, number = head
        value = scores.values[component][layer][number]
        assert value is not None  # it is within what is scored
        return sign * value, components.index(component), layer, number

    wanted: Keep | None
    if per_layer is None or not is_whole(per_layer):
        wanted = per_layer  # type: ignore[assignment]
    else:
        wanted = {name: [per_layer] * len(layers) for name, layers in scores.heads.items()}
    return keep_first(
        scores.heads,
        order=order,
        percent=percent,
        keep=wanted,
        at_least=at_least,
        within=pool,
    )
