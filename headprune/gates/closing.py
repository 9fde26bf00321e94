"""Close learned gates: units whose deterministic gate is 0 are pruned, others keep its value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from headprune.model import PrunableModel
from headprune.origin import Origin
from headprune.plan import PruningPlan

METHOD = "l0-gates"
"""The method's name in the origin of plans."""

GateValues = Mapping[str, Sequence[Sequence[float]]]
"""Deterministic gates of the units that a model keeps, by component and layer."""


@runtime_checkable
class GatedModel(PrunableModel, Protocol):
    """The file or folder of a model that may have learned gates."""

    @property
    def gate_values(self) -> GateValues | None:
        """The deterministic gates; None where the model has none."""

    @property
    def gate_target(self) -> str | None:
        """The target that the gates were trained to, such as ``60%``; None without one."""

    def with_gates_closed(self) -> PrunableModel:
        """The pruned model, whose weights contain the values of open gates.

        Raises:
            UsageError: the model has no gates.
        """


def plan_of_gates(
    values: GateValues, plan: PruningPlan, *, target: str | None = None
) -> PruningPlan:
    """The plan that keeps the units with open gates.

    Args:
        values: the gates of the units that ``plan`` keeps, in the order of the plan.
        plan: the units that the model keeps, of the components with gates at least.
        target: the share that training was to prune.
    """
    kept = {
        component: [
            [unit for unit, value in zip(units, gates, strict=True) if value > 0]
            for units, gates in zip(plan.kept[component], layers, strict=True)
        ]
        for component, layers in values.items()
    }
    origin = Origin(method=METHOD, budget=target)
    return PruningPlan(
        kept=kept, units={component: plan.units[component] for component in values}, origin=origin
    )


def folded(weight: Tensor, values: Sequence[float]) -> Tensor:
    """Multiply the columns of each unit in an output projection by the unit's gate.

    Args:
        weight: C x U'd, the units' columns side by side.
        values: the gates, U' numbers.
    """
    factors = torch.tensor(values, dtype=torch.float32)  # U'
    columns = weight.size(1) // max(1, len(factors))
    return (weight * factors.repeat_interleave(columns).to(weight.device)).to(weight.dtype)
