"""Penalties that close learned gates: a fixed weight of the L0 norm, or a target with a multiplier.

With p_u = P(z_u > 0) the probability that the gate of unit u is open, the loss of the task grows by

    lambda sum over u of p_u                                        (Louizos et al. 2018)
    lambda (s - t) + rho (s - t)^2                                  (Xia et al. 2022, CoFi)

with s the expected share that is open (of units, parameters or FLOPs) and t the target. The
multiplier lambda rises by gradient ascent while more is open than the target says, and falls while
less is. CoFi learns rho too, with Adam; there it grows without limit, and the share oscillates
about the target. Here rho is fixed and lambda rises in proportion to s - t.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from headprune.budget import Budget
from headprune.components import LAYERS, layers_of
from headprune.cost import Sizes, unit_cost
from headprune.errors import UsageError
from headprune.gates.learned import LearnedGates
from headprune.plan import PruningPlan

Probabilities = Mapping[str, Sequence[Tensor]]
"""P(z > 0) of each unit, (U',), by component and layer."""


class Penalty(Protocol):
    """A term of the loss that closes gates."""

    def __call__(self, gates: LearnedGates, *, update: int) -> Tensor:
        """Compute the penalty, a scalar; in training mode, move the multiplier.

        Args:
            update: the number of updates before this one.
        """


@dataclass(frozen=True)
class L0Penalty:
    """``weight`` times the expected number of open units of all components.

    Raises:
        UsageError: a weight that is negative or not finite.
    """

    weight: float

    def __post_init__(self) -> None:
        if not 0 <= self.weight < math.inf:
            raise UsageError(f"the L0 weight (lambda) is {self.weight}, it has to be 0 or more")

    def __call__(self, gates: LearnedGates, *, update: int) -> Tensor:
        """Compute the penalty; see ``Penalty``."""
        return self.weight * torch.stack(list(gates.expected_open().values())).sum()


@dataclass(frozen=True)
class ExpectedShare:
    """The expected share of a cost that units with open gates have.

    The gates of a layer and of the units in it are independent: a unit counts with the product of
    both probabilities.

    Attributes:
        unit_costs: the cost of one unit in each component of heads and neurons.
        layer_costs: the cost of each layer's remaining parts, for components of layers.
        total: the cost of all units of the unpruned model.
    """

    unit_costs: Mapping[str, float]
    layer_costs: Mapping[str, Sequence[float]]
    total: float

    @classmethod
    def of_units(cls, plan: PruningPlan) -> ExpectedShare:
        """Count units: each head, neuron or layer is one."""
        return cls(
            unit_costs={name: 1.0 for name in plan.units if name not in LAYERS},
            layer_costs={
                name: [1.0] * len(plan.units[name]) for name in LAYERS if name in plan.units
            },
            total=float(plan.total),
        )

    @classmethod
    def of_cost(cls, plan: PruningPlan, cost: Callable[[PruningPlan], int]) -> ExpectedShare:
        """Count parameters or FLOPs.

        Args:
            plan: the units with gates.
            cost: function that computes the cost of a plan of these components; the sum of the
                costs of its units, where those of dropped layers cost nothing.
        """
        full = PruningPlan.full(plan.units)
        total = cost(full)
        unit_costs = {
            name: float(total - cost(_without(full, name, 0, one=True)))
            for name in plan.units
            if name not in LAYERS
        }
        layer_costs = {}
        for name in LAYERS:
            if name in plan.units:
                layer_costs[name] = [
                    total
                    - cost(_without(full, name, layer))
                    - sum(
                        unit_costs[inner] * plan.units[inner][layer]
                        for inner in unit_costs
                        if layers_of(inner) == name
                    )
                    for layer in range(len(plan.units[name]))
                ]
        return cls(unit_costs=unit_costs, layer_costs=layer_costs, total=float(total))

    def of_plan(self, plan: PruningPlan) -> float:
        """Compute the share that a plan keeps."""
        return float(
            self({c: [torch.ones(len(u)) for u in layers] for c, layers in plan.kept.items()})
        )

    def __call__(self, probabilities: Probabilities) -> Tensor:
        """Compute the expected share, a scalar from 0 to 1 that is differentiable."""
        terms = []
        for name, cost in self.unit_costs.items():
            layers = probabilities.get(layers_of(name))
            for layer, units in enumerate(probabilities[name]):
                term = cost * units.sum()
                terms.append(term if layers is None else term * layers[layer].sum())
        for name, costs in self.layer_costs.items():
            terms += [
                cost * layer.sum() for cost, layer in zip(costs, probabilities[name], strict=True)
            ]
        return torch.stack(terms).sum() / self.total


def _without(plan: PruningPlan, component: str, layer: int, *, one: bool = False) -> PruningPlan:
    """The plan without the units of one layer, or without ``one`` of them."""
    kept = {name: list(layers) for name, layers in plan.kept.items()}
    kept[component][layer] = kept[component][layer][1:] if one else ()
    return PruningPlan(kept=kept, units=plan.units)


def expected_share(
    plan: PruningPlan, budget: Budget, *, sizes: Callable[[], Sizes]
) -> ExpectedShare:
    """The expected share in the measure of a budget.

    Args:
        plan: the units with gates.
        sizes: function that returns the widths of the model; not called for shares of units.

    Raises:
        UsageError: the plan prunes more already than the budget.
    """
    if budget.of == "units":
        share = ExpectedShare.of_units(plan)
    else:
        share = ExpectedShare.of_cost(plan, unit_cost(budget.of, sizes=sizes(), shape=plan.units))
    kept = share.of_plan(plan)
    if 1 - kept > budget.percent / 100 + 1e-6:
        raise UsageError(
            f"the target of {budget} cannot be met: {100 * (1 - kept):.1f}% are pruned already, "
            "and gates only close"
        )
    return share


def require_warmup(updates: int) -> None:
    """Check the number of warm-up updates.

    Raises:
        UsageError: it is negative.
    """
    if updates < 0:
        raise UsageError(f"the warm-up of the target is {updates} updates, it has to be 0 or more")


STIFFNESS = 100.0
"""rho: an excess of 0.05 weighs as much as a multiplier of 10."""

ASCENT = 0.1
"""The step of the multiplier's gradient ascent."""


@dataclass(frozen=True)
class TargetPenalty:
    """The penalty that steers the gates to a target.

    Attributes:
        budget: the share to prune.
        share: the expected share that is kept, in the measure of the budget.
        warmup: updates during which the target rises evenly from ``start``.
        start: the share, 0 to 1, that is pruned before the training.

    Raises:
        UsageError: a negative number of warm-up updates.
    """

    budget: Budget
    share: ExpectedShare
    warmup: int = 0
    start: float = 0.0

    def __post_init__(self) -> None:
        require_warmup(self.warmup)

    @classmethod
    def of_plan(
        cls, plan: PruningPlan, budget: Budget, *, warmup: int, sizes: Callable[[], Sizes]
    ) -> TargetPenalty:
        """The penalty for gates on the units that a plan keeps.

        Args:
            sizes: see ``expected_share``.

        Raises:
            UsageError: the plan prunes more already than the budget.
        """
        share = expected_share(plan, budget, sizes=sizes)
        return cls(budget, share, warmup, start=1 - share.of_plan(plan))

    def kept_share(self, update: int) -> float:
        """The share to keep after ``update`` updates."""
        progress = min(1.0, update / self.warmup) if self.warmup else 1.0
        return 1 - (self.start + progress * (self.budget.percent / 100 - self.start))

    def __call__(self, gates: LearnedGates, *, update: int) -> Tensor:
        """Compute the penalty; see ``Penalty``."""
        excess = self.share(gates.probabilities()) - self.kept_share(update)
        if gates.training:
            gates.raise_multiplier(ASCENT * float(excess.detach()), update=update)
        penalty: Tensor = gates.multiplier * excess + STIFFNESS * excess**2
        return penalty
