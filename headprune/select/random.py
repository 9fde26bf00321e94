"""Units kept at random: the baseline that every notion of importance has to beat."""

from __future__ import annotations

import hashlib

from headprune.budget import Budget
from headprune.errors import UsageError
from headprune.origin import Origin
from headprune.plan import PruningPlan, Shape, is_whole
from headprune.select.ranking import Cost, Keep, Unit, budget_of, keep_first


def at_random(
    shape: Shape,
    *,
    seed: int,
    percent: float | None = None,
    keep: Keep | None = None,
    budget: Budget | None = None,
    cost: Cost | None = None,
    at_least: int = 0,
    within: PruningPlan | None = None,
) -> PruningPlan:
    """Choose units uniformly at random (Budhraja et al. 2020, section 3).

    Give one of ``percent``, ``keep`` and ``budget``. Every unit draws a lot from the seed and its
    own place in the model, and the units with the smallest lots are kept; so the same seed gives
    the same plan on every machine and version, and a higher ``percent`` (or a smaller ``keep`` of
    the same kind) with one seed only takes away further units.
    Plans of different seeds are independent.

    Args:
        seed: the draw.
        shape, percent, keep, budget, cost, at_least, within: see ``keep_first``.

    Raises:
        UsageError: the request cannot be met; the message says where and why.
    """
    if not is_whole(seed):  # 1.0 and "1" would draw other lots than 1
        raise UsageError(f"seed is {seed!r}, it has to be a whole number")
    plan = keep_first(
        shape,
        order=lambda unit: lot(seed, unit),
        percent=percent,
        keep=keep,
        budget=budget,
        cost=cost,
        at_least=at_least,
        within=within,
    )
    asked = budget_of(percent, budget)
    return plan.with_origin(
        Origin(
            method="random",
            seed=seed,
            budget=None if asked is None else str(asked),
            at_least=at_least,
        )
    )


def lot(seed: int, unit: Unit) -> int:
    """A random number for a unit: 256 bits that depend only on the seed and the unit's place."""
    component, layer, number = unit
    text = f"headprune:{seed}:{component}:{layer}:{number}"
    return int.from_bytes(hashlib.sha256(text.encode("ascii")).digest(), "big")
