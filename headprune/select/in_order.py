"""Units pruned one after the other until the model is predicted to be fast enough."""

from __future__ import annotations

from bisect import bisect_left
from itertools import chain

from headprune.budget import Speedup
from headprune.components import LAYERS
from headprune.errors import UsageError
from headprune.plan import PruningPlan
from headprune.select.ranking import Order, Unit, plan_of
from headprune.speed.latency import Latency


def require_reachable(
    smallest: PruningPlan, speedup: Speedup, latency: Latency, *, pruned: str
) -> None:
    """Check that a speed is reached by the plan that prunes most.

    Args:
        pruned: what is pruned, for the message.

    Raises:
        UsageError: it is not; the message names the highest that can be reached.
    """
    highest = latency.speedup_of(smallest)
    if not speedup.is_reached(highest):
        raise UsageError(
            f"{speedup}: cannot be reached by pruning {pruned}; the best is "
            f"{int(100 * highest) / 100:g}x"
        )


def first_at_speed(
    pool: PruningPlan,
    *,
    order: Order,
    speedup: Speedup,
    latency: Latency,
    at_least: int = 0,
) -> PruningPlan:
    """Prune the units that come last in an order, as few as reach a predicted speed.

    Times of numbers of units that were not measured are interpolated.

    Args:
        pool: the units that compete. It has all units of each of its components.
        order: no two units may be equal in it.
        speedup: the speed that is asked for.
        latency: the time that units save.
        at_least: heads and neurons that every layer keeps. Unless it is 0, one layer of each side
            is kept too, as not every library runs a side without layers.

    Raises:
        UsageError: a component that was not measured, or a speed that cannot be reached; the
            message names the highest that can.
    """
    latency.require_components([*pool.units])
    units: list[Unit] = sorted(
        chain.from_iterable(
            ((name, layer, unit) for unit in kept)
            for name, layers in pool.kept.items()
            for layer, kept in enumerate(layers)
        ),
        key=order,
    )
    protected: list[Unit] = []
    others: list[Unit] = []
    numbers: dict[object, int] = {}
    for unit in units:
        name, layer, _ = unit
        place = name if name in LAYERS else (name, layer)
        numbers[place] = numbers.get(place, 0) + 1
        most = min(1, at_least) if name in LAYERS else at_least
        (protected if numbers[place] <= most else others).append(unit)

    def plan_with(pruned: int) -> PruningPlan:
        kept = plan_of(pool.units, [*protected, *others[: len(others) - pruned]])
        return kept.without_units_of_dropped_layers()

    def is_fast_enough(pruned: int) -> bool:
        return speedup.is_reached(latency.speedup_of(plan_with(pruned)))

    require_reachable(plan_with(len(others)), speedup, latency, pruned=", ".join(pool.units))
    # With each further unit the time falls or stays: savings rise (see ``falling``), and those of a
    # dropped layer are not below those of its sub-layers without units (see ``layer_saving``).
    return plan_with(bisect_left(range(len(others)), True, key=is_fast_enough))
