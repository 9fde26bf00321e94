"""Close learned gates: units whose deterministic gate is 0 are pruned, others keep its value."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from headprune.gates.learned import LearnedGates
from headprune.model import PrunableModel
from headprune.origin import Origin
from headprune.plan import PruningPlan

METHOD = "l0-gates"
"""The method's name in the origin of plans."""


class GatedModel(PrunableModel, Protocol):
    """The file or folder of a model that may have learned gates."""

    @property
    def gates(self) -> LearnedGates | None:
        """The gates; None where the model has none."""

    @property
    def gate_target(self) -> str | None:
        """The target that the gates were trained to, such as ``60%``; None without one."""

    def with_gates_closed(self) -> PrunableModel:
        """The pruned model, whose weights contain the values of open gates.

        Raises:
            UsageError: the model has no gates.
        """


def plan_of_gates(gates: LearnedGates, *, target: str | None = None) -> PruningPlan:
    """The plan that keeps the units with open deterministic gates.

    Args:
        target: the share that the training was to prune.
    """
    plan = gates.plan
    kept = {
        component: [
            [unit for unit, value in zip(units, gates_of_layer, strict=True) if value > 0]
            for units, gates_of_layer in zip(plan.kept[component], layers, strict=True)
        ]
        for component, layers in gates.values().items()
    }
    return PruningPlan(kept=kept, units=plan.units, origin=Origin(method=METHOD, budget=target))


def folded(weight: Tensor, values: Sequence[float]) -> Tensor:
    """Multiply the columns of each unit in an output projection by the unit's gate.

    Args:
        weight: C x U'd, the units' columns side by side.
        values: the gates, U' numbers.
    """
    factors = torch.tensor(values, dtype=torch.float32)  # U'
    columns = weight.size(1) // max(1, len(factors))
    return (weight * factors.repeat_interleave(columns).to(weight.device)).to(weight.dtype)
