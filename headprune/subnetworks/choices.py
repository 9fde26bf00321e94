"""Good, random and bad sub-networks of one size (Prasanna et al. 2020, section 5)."""

from __future__ import annotations

from collections.abc import Mapping

from headprune.budget import Budget
from headprune.plan import PruningPlan
from headprune.select.random import at_random
from headprune.select.ranking import Unit, plan_of
from headprune.subnetworks.elements import kinds_of, of_kind, units_of

FULL = "full"
"""The name of the unpruned model among the sub-networks."""

GOOD, RANDOM, BAD = "good", "random", "bad"
NAMES = (GOOD, RANDOM, BAD)

Importance = Mapping[Unit, float]
"""The importance of each element in the unpruned model; elements with high numbers are kept."""


def method_name(name: str) -> str:
    """The method of a sub-network in plans, signatures and records, such as ``subnetwork-good``."""
    return f"subnetwork-{name}"


def budget_keeping(number: int, total: int) -> Budget:
    """The share to prune so that ``number`` of ``total`` units are kept."""
    return Budget(100 * (total - number) / total)


def subnetworks(
    pool: PruningPlan, survivors: PruningPlan, importance: Importance, *, seed: int
) -> dict[str, PruningPlan]:
    """The elements of the three sub-networks, with the same number of each kind.

    - ``good``: the survivors.
    - ``random``: drawn from all elements.
    - ``bad``: elements that did not survive, the least important ones first; where there are too
      few, the least important survivors too.

    Args:
        pool: all elements of the model.
        survivors: those that survived.
        importance: of all elements of ``pool``.
        seed: the seed of the random sub-network.
    """
    drawn: set[Unit] = set()
    worst: set[Unit] = set()
    for kind in kinds_of(pool):
        elements, kept = of_kind(pool, kind), of_kind(survivors, kind)
        number = kept.total_kept
        drawn |= units_of(
            at_random(
                elements.units,
                seed=seed,
                budget=budget_keeping(number, elements.total),
                at_least=0,
                within=elements,
            )
        )
        good = units_of(kept)
        ranked = sorted(units_of(elements), key=lambda unit: (unit in good, importance[unit], unit))
        worst |= set(ranked[:number])
    return {GOOD: survivors, RANDOM: plan_of(pool.units, drawn), BAD: plan_of(pool.units, worst)}
