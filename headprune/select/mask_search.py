"""Search for the units to keep by their Fisher information (Kwon et al. 2022)."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import accumulate

import torch
from torch import Tensor

from headprune.components import HEADS, NEURONS
from headprune.errors import UsageError
from headprune.plan import PruningPlan
from headprune.select.ranking import Unit

Importance = Mapping[Unit, float]
"""The importance of each unit that competes."""


def search_mask(
    importance: Importance,
    *,
    pool: PruningPlan,
    unit_cost: Callable[[str], int],
    most: Fraction | int,
    at_least: int = 0,
) -> PruningPlan:
    """Keep the heads and neurons with the largest sum of importance that a cost allows.

    For each number of heads, the most important heads are kept, and the most important neurons that
    the rest of the cost allows; the number with the largest sum wins (Kwon et al. 2022, algorithm
    1). Where units of one kind differ in cost, as heads of encoder and decoder can, they are ranked
    by importance per cost.

    Args:
        importance: see ``Importance``.
        pool: the units that compete.
        unit_cost: function from a component to the cost of one of its units.
        most: the largest cost of all kept units.
        at_least: units that every layer keeps.

    Raises:
        UsageError: the cost is too low for ``at_least``.
    """
    costs = {name: unit_cost(name) for name in pool.units}
    heads, neurons = (
        _ranked(importance, pool, [name for name in pool.units if name in kind], costs, at_least)
        for kind in (HEADS, NEURONS)
    )
    head_costs, head_values = _sums(heads.units, importance, costs)
    neuron_costs, neuron_values = _sums(neurons.units, importance, costs)
    best: tuple[float, int, int] | None = None
    for number in range(heads.protected, len(heads.units) + 1):
        # The last number of neurons that still fits.
        fitting = bisect_right(neuron_costs, most - head_costs[number]) - 1
        if fitting < neurons.protected:
            break  # more heads leave less
        value = head_values[number] + neuron_values[fitting]
        if best is None or value > best[0]:
            best = value, number, fitting
    if best is None:
        raise UsageError(
            f"at_least={at_least} keeps {heads.protected + neurons.protected} units, which cost "
            "more than the budget leaves"
        )
    _, number, fitting = best
    kept: dict[str, list[list[int]]] = {
        name: [[] for _ in layers] for name, layers in pool.units.items()
    }
    for name, layer, unit in (*heads.units[:number], *neurons.units[:fitting]):
        kept[name][layer].append(unit)
    return PruningPlan(kept=kept, units=pool.units)


def rearrange(kept: Sequence[int], units: Sequence[int], fisher: Tensor) -> tuple[int, ...]:
    """Swap kept and pruned units of one layer, so that the pruned ones matter less together.

    The kept units are visited from the least important on; each is swapped with the pruned unit for
    which sum over i, j pruned of F_ij falls most, if it falls (Kwon et al. 2022, section 4.2).

    Args:
        kept: the units that are kept, by their numbers.
        units: the units of F, by their numbers.
        fisher: F, U' x U'.

    Returns:
        As many units, for which the sum is not larger.
    """
    matrix = fisher.double()
    diagonal = matrix.diagonal()
    chosen = frozenset(kept)
    is_kept = torch.tensor([unit in chosen for unit in units])
    if bool(is_kept.all()) or not bool(is_kept.any()):
        return tuple(kept)
    order = diagonal.argsort(stable=True)
    with_pruned = matrix[:, ~is_kept].sum(1)  # U': sum over j pruned of F_ij
    for place in order[is_kept[order]].tolist():
        # The rise of the sum if ``place`` is pruned and another comes back.
        rises = (
            2 * (with_pruned[place] - with_pruned)
            + (diagonal[place] + diagonal)
            - 2 * matrix[place]
        )  # U'
        rises[is_kept] = torch.inf
        other = int(rises.argmin())
        if rises[other] < 0:
            is_kept[place], is_kept[other] = False, True
            with_pruned += matrix[:, place] - matrix[:, other]
    return tuple(sorted(unit for unit, stays in zip(units, is_kept.tolist(), strict=True) if stays))


@dataclass(frozen=True)
class _Ranked:
    """Units in the order in which they are kept; the first ``protected`` always are."""

    units: Sequence[Unit]
    protected: int


def _ranked(
    importance: Importance,
    pool: PruningPlan,
    components: Sequence[str],
    costs: Mapping[str, int],
    at_least: int,
) -> _Ranked:
    def order(unit: Unit) -> tuple[float, Unit]:
        return -importance[unit] / costs[unit[0]], unit

    protected: list[Unit] = []
    others: list[Unit] = []
    for name in components:
        for layer, kept in enumerate(pool.kept[name]):
            units = sorted(((name, layer, unit) for unit in kept), key=order)
            protected += units[:at_least]
            others += units[at_least:]
    return _Ranked([*protected, *sorted(others, key=order)], len(protected))


def _sums(
    units: Sequence[Unit], importance: Importance, costs: Mapping[str, int]
) -> tuple[list[int], list[float]]:
    """Costs and importance of the first 0, 1, ... units."""
    return (
        [0, *accumulate(costs[name] for name, _, _ in units)],
        [0.0, *accumulate(importance[unit] for unit in units)],
    )
