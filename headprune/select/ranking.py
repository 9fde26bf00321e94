"""Keep the units that come first in an order, up to a number or a budget."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

from headprune.budget import Budget
from headprune.components import LAYERS, layers_of, require_components, unit_name, unit_names
from headprune.counts import parse_counts
from headprune.errors import UsageError
from headprune.plan import PruningPlan, Shape, is_whole, validate_shape

Unit = tuple[str, int, int]
"""Component, layer, number of the unit in the layer."""

Order = Callable[[Unit], Any]
"""The key that units are sorted by; those with the smallest come first."""

Cost = Callable[[PruningPlan], int]
"""The parameters or FLOPs of a model with the units of a plan."""

Keep = Mapping[str, int | str | Sequence[int]]
"""For each component: a number of units, or one number a layer (``"888444"`` or a list)."""


def budget_of(percent: float | None, budget: Budget | None) -> Budget | None:
    """The budget, for which ``percent`` is short where it is one of units."""
    return budget if percent is None else Budget(percent)


def keep_first(
    shape: Shape,
    *,
    order: Order,
    percent: float | None = None,
    keep: Keep | None = None,
    budget: Budget | None = None,
    cost: Cost | None = None,
    at_least: int | None = 0,
    within: PruningPlan | None = None,
) -> PruningPlan:
    """Keep the units that come first in ``order``. Give one of ``percent``, ``keep``, ``budget``.

    Args:
        shape: for each component whose units compete, the number of units of each layer of the
            unpruned model.
        order: no two units may be equal in it.
        percent: share of all the units to prune, 0 to 100, as the nearest whole number of units
            (halves are pruned). Table 1 of the paper.
        keep: units to keep in a component, as one number over all its layers (table 3) or one
            number a layer (table 2). A component that is not named keeps all its units.
        budget: a share of units, which is the same as ``percent``, or of parameters or FLOPs: as
            few units are pruned as bring the cost down to what the budget leaves.
        cost: function that computes a plan's parameters or FLOPs, for budgets in these.
        at_least: units that every layer keeps regardless of the order; None: one, if it has any,
            where layers compete for a percentage or a component's number, else 0. Components of
            whole layers have none of it, nor do layers that ``within`` drops.
        within: choose among the units that this plan keeps; for pruning in steps. Shares stay
            those of the unpruned model.

    Raises:
        UsageError: the request cannot be met; the message says where and why.
    """
    shape = validate_shape(shape)
    if budget is not None and (percent is not None or keep is not None):
        raise UsageError("give one of a percentage, a budget and the units to keep")
    if budget is None and (percent is None) == (keep is None):
        raise UsageError(
            f"give either a percentage or the {unit_names(shape)} to keep, one of the two"
        )
    if at_least is not None and (not is_whole(at_least) or at_least < 0):
        raise UsageError(f"at_least is {at_least!r}, it has to be a whole number from 0")
    least_alone = at_least or 0  # where layers do not compete
    pool = PruningPlan.full(shape) if within is None else _part(within, shape)
    pool.require_shape(shape)
    budget = budget_of(percent, budget)
    if budget is not None and budget.of != "units":
        if cost is None:
            raise UsageError(f"a budget of {budget} needs the sizes of the model")
        chosen = _choose_by_cost(
            pool, tuple(shape), budget, order=order, at_least=at_least, cost=cost
        )
    elif budget is not None:
        number = budget.number_kept(pool.total)
        if number > pool.total_kept:
            raise UsageError(
                f"{float(budget.percent):g}% pruned keeps {number} {unit_names(shape)}, only "
                f"{pool.total_kept} are left"
            )
        chosen = _choose(pool, tuple(shape), number, order=order, at_least=at_least)
    else:
        if not isinstance(keep, Mapping):
            raise UsageError(f"give the {unit_names(shape)} to keep by component, not {keep!r}")
        require_components(keep, shape)
        chosen = set()
        for name in shape:
            wanted = keep.get(name, len(_units(pool, name)))
            if is_whole(wanted):
                least = at_least if name in keep else least_alone
                chosen |= _choose(pool, (name,), wanted, order=order, at_least=least)
            else:
                chosen |= _choose_per_layer(pool, name, wanted, order=order, at_least=least_alone)
    return plan_of(shape, chosen)


def _part(within: PruningPlan, shape: Shape) -> PruningPlan:
    """Restrict a plan to the components of ``shape``; units of dropped layers are left out."""
    return within.units_left(shape).part(shape) or within


def plan_of(shape: Shape, chosen: Iterable[Unit]) -> PruningPlan:
    """The plan that keeps the chosen units."""
    kept: dict[str, list[list[int]]] = {
        name: [[] for _ in layers] for name, layers in shape.items()
    }
    for name, layer, unit in chosen:
        kept[name][layer].append(unit)
    return PruningPlan(kept=kept, units=shape)


def unit_costs(pool: PruningPlan, cost: Cost) -> dict[str, int]:
    """The cost of one unit of each component that has any."""
    whole = cost(pool)
    return {
        name: whole - cost(_without_one(pool, name))
        for name, layers in pool.kept.items()
        if any(layers)
    }


def _without_one(pool: PruningPlan, component: str) -> PruningPlan:
    """The plan without one unit of a component."""
    kept = {name: list(layers) for name, layers in pool.kept.items()}
    layer = next(number for number, units in enumerate(kept[component]) if units)
    kept[component][layer] = kept[component][layer][1:]
    return PruningPlan(kept=kept, units=pool.units)


def _units(pool: PruningPlan, component: str) -> list[Unit]:
    return [
        (component, layer, unit) for layer, kept in enumerate(pool.kept[component]) for unit in kept
    ]


def _choose_by_cost(
    pool: PruningPlan,
    components: Sequence[str],
    budget: Budget,
    *,
    order: Order,
    at_least: int | None,
    cost: Cost,
) -> set[Unit]:
    """Select as many of the first units in ``order`` as the budget allows."""
    candidates = _by_priority(pool, components, order=order, at_least=at_least)
    target = budget.kept_share(cost(PruningPlan.full(pool.units)))

    def costs_too_much(number: int) -> bool:
        return cost(plan_of(pool.units, candidates.units[:number])) > target

    # The cost grows with the number of units kept.
    number = bisect_left(range(1, len(candidates.units) + 1), True, key=costs_too_much)
    if number < candidates.protected or costs_too_much(number):
        raise UsageError(
            f"{budget} pruned cannot be reached: at_least keeps {candidates.protected} "
            f"{unit_names(components)}, which cost more than is left"
        )
    return set(candidates.units[:number])


def _choose(
    pool: PruningPlan, components: Sequence[str], number: int, *, order: Order, at_least: int | None
) -> set[Unit]:
    """The ``number`` units of ``components`` that come first, ``at_least`` in each layer.

    None: one in each layer that has any.
    """
    where = components[0] if len(components) == 1 else "all components"
    names = unit_names(components)
    total = sum(len(_units(pool, name)) for name in components)
    if not 0 <= number <= total:
        have = "the model has" if pool.is_full else "the plan leaves"
        raise UsageError(f"{where}: {number} {names} asked for, {have} {total}")
    candidates = _by_priority(pool, components, order=order, at_least=at_least)
    protected = candidates.protected
    if protected > number and at_least is None:
        raise UsageError(
            f"{where}: one {names[:-1]} in every layer makes {protected}, but only {number} are to "
            f"stay; at_least 0 allows layers without {names}"
        )
    if protected > number:
        raise UsageError(
            f"{where}: at_least={at_least} keeps {protected} {names}, but only {number} are to "
            f"stay; at_least 0 allows layers without {names}"
        )
    return set(candidates.units[:number])


@dataclass(frozen=True)
class _Candidates:
    """Units in the order in which they are kept.

    Attributes:
        units: those that ``at_least`` protects first.
        protected: the number of these.
    """

    units: list[Unit]
    protected: int


def _by_priority(
    pool: PruningPlan, components: Sequence[str], *, order: Order, at_least: int | None
) -> _Candidates:
    by_layer: dict[tuple[str, int], list[Unit]] = {}
    ordered = sorted(chain.from_iterable(_units(pool, name) for name in components), key=order)
    for unit in ordered:
        by_layer.setdefault(unit[:2], []).append(unit)
    protected: set[Unit] = set()
    for name in components:
        if name in LAYERS:
            continue
        for layer, kept in enumerate(pool.kept[name]):
            least = min(1, len(kept)) if at_least is None else at_least
            if layers_of(name) in pool.kept and not pool.kept[layers_of(name)][layer]:
                least = 0  # dropped before, with all its units
            if least > len(kept):
                raise UsageError(
                    f"{name}: layer {layer} has {len(kept)} {unit_name(name)}s, at_least asks for "
                    f"{least}"
                )
            protected.update(by_layer.get((name, layer), [])[:least])
    first = [unit for unit in ordered if unit in protected]
    return _Candidates(first + [unit for unit in ordered if unit not in protected], len(first))


def _choose_per_layer(
    pool: PruningPlan, name: str, wanted: int | str | Sequence[int], *, order: Order, at_least: int
) -> set[Unit]:
    names = f"{unit_name(name)}s"
    counts = parse_counts(wanted, component=name) if isinstance(wanted, str) else wanted
    if not isinstance(counts, Sequence):
        raise UsageError(f"{name}: {counts!r} is no number of {names}, and not one a layer")
    if len(counts) != len(pool.kept[name]):
        raise UsageError(
            f"{name}: {unit_name(name)} counts for {len(counts)} layers, the model has "
            f"{len(pool.kept[name])}"
        )
    chosen: set[Unit] = set()
    for layer, (count, kept) in enumerate(zip(counts, pool.kept[name], strict=True)):
        if not is_whole(count) or not 0 <= count <= len(kept):
            have = "the model has" if pool.is_full else "the plan leaves"
            raise UsageError(f"{name}: layer {layer} asks for {count} {names}, {have} {len(kept)}")
        if count < at_least:
            raise UsageError(
                f"{name}: layer {layer} asks for {count} {names}, at_least for {at_least}"
            )
        layer_units: list[Unit] = [(name, layer, unit) for unit in kept]
        chosen.update(sorted(layer_units, key=order)[:count])
    return chosen
