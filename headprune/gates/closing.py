"""Close learned gates: some units are pruned, the others keep the value of their gate."""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from headprune.budget import Budget
from headprune.components import LAYERS
from headprune.cost import Sizes, unit_cost
from headprune.errors import UsageError
from headprune.gates.learned import LearnedGates
from headprune.gates.penalty import expected_share
from headprune.model import PrunableModel
from headprune.origin import Origin
from headprune.plan import PruningPlan, Shape
from headprune.recovery.variant import L0_GATES
from headprune.select.ranking import Cost, Unit, plan_of

LEAST_OPEN = 0.01
"""The value of a gate that a target leaves open although its deterministic value is 0: a unit at
exactly 0 could not learn in fine-tuning."""


class GatedModel(PrunableModel, Protocol):
    """The file or folder of a model that may have learned gates."""

    @property
    def gates(self) -> LearnedGates | None:
        """The gates; None where the model has none."""

    @property
    def gate_target(self) -> Budget | None:
        """The target that the gates were trained to; None without one."""

    def with_gates_closed(self) -> PrunableModel:
        """The pruned model, whose weights contain the values of open gates.

        Raises:
            UsageError: the model has no gates.
        """


def line_on_closed(plan: PruningPlan, *, target: Budget | None) -> str | None:
    """Name the components of which every gate is closed, in a line; None if there is none.

    Args:
        plan: the units with open gates.
        target: the target of the gates' training; None without one.
    """
    empty = plan.empty_components
    if not empty:
        return None
    hint = "a lower penalty" if target is None else "a lower --l0-target"
    return f"every gate of {', '.join(empty)} is closed; {hint} keeps some open"


@dataclass(frozen=True)
class ClosedGates:
    """Gates after their closing.

    Attributes:
        plan: the units with open gates.
        values: the gates of the units that the model had before, by component and layer: 0 for
            closed ones.
    """

    plan: PruningPlan
    values: Mapping[str, Sequence[Sequence[float]]]


def gates_not_closed(path: Path) -> UsageError:
    """The error for a model with learned gates where one without them is needed."""
    return UsageError(
        f"{path}: has learned gates; close them first: headprune gates {path} -o plan.json "
        "--model OUT"
    )


def closed(
    gates: LearnedGates, *, target: Budget | None, sizes: Callable[[], Sizes]
) -> ClosedGates:
    """Close learned gates: for good, and to the target where they were trained to one.

    Without a target, units whose deterministic gate is 0 are closed. The expected share of open
    units meets a target, the share of such units need not: so with a target the units with the
    lowest log alpha are closed until the share is as near to it as it can be, as in CoFi (Xia et
    al. 2022, section 3.1).

    Args:
        target: the share of the unpruned model's units, parameters or FLOPs to prune.
        sizes: function that returns the widths of the model; not called for shares of units.
    """
    values = gates.values()
    if target is None:
        is_open = {
            (component, layer, unit)
            for component, layers in values.items()
            for layer, numbers in enumerate(layers)
            for unit, value in zip(gates.plan.kept[component][layer], numbers, strict=True)
            if value > 0
        }
    else:
        is_open = set(_open_units(gates, target, sizes))
    result = {
        component: [
            [
                _open_value(component, value) if (component, layer, unit) in is_open else 0.0
                for unit, value in zip(gates.plan.kept[component][layer], numbers, strict=True)
            ]
            for layer, numbers in enumerate(layers)
        ]
        for component, layers in values.items()
    }
    budget = None if target is None else str(target)
    plan = _plan_with(gates.plan.units, is_open).with_origin(Origin(method=L0_GATES, budget=budget))
    return ClosedGates(plan, result)


NEAR_TARGET = 5.0
"""The distance from a target, in percentage points, within which gates count as having met it."""


def warn_of_open_gates(
    gates: LearnedGates, *, target: Budget | None, sizes: Callable[[], Sizes], where: str
) -> None:
    """Warn if gates that were trained to a target are still too far open when they are closed.

    The units to prune are then chosen among gates that hardly differ.

    Args:
        target, sizes: see ``closed``.
        where: the model, for the message.
    """
    if target is None:
        return
    with torch.no_grad():
        kept = expected_share(gates.plan, target, sizes=sizes)(gates.probabilities())
    pruned = 100 * (1 - float(kept))
    if pruned < target.percent - NEAR_TARGET:
        print(
            f"warning: {where}: its gates were closed to {pruned:.1f}%, of a target of {target}; "
            "the other units are chosen among gates that hardly differ: train longer",
            file=sys.stderr,
        )


def _open_value(component: str, value: float) -> float:
    return 1.0 if component in LAYERS else value or LEAST_OPEN


def _open_units(gates: LearnedGates, target: Budget, sizes: Callable[[], Sizes]) -> list[Unit]:
    """The units with the highest log alpha that the target leaves."""
    log_alpha = {
        (component, layer, unit): number
        for component, layers in gates.plan.kept.items()
        for layer, units in enumerate(layers)
        for unit, number in zip(
            units, gates.log_alpha(component, layer).detach().tolist(), strict=True
        )
    }
    units = sorted(log_alpha, key=lambda unit: -log_alpha[unit])
    shape = gates.plan.units
    cost: Cost = (
        _number_of_units
        if target.of == "units"
        else unit_cost(target.of, sizes=sizes(), shape=shape)
    )
    goal = target.kept_share(cost(PruningPlan.full(shape)))

    def cost_of(number: int) -> int:
        return cost(_plan_with(shape, units[:number]))

    # The cost grows with the number of open units. The first number that costs more than the goal
    # is `above`; the one before it is as near or nearer, or not.
    above = bisect_left(range(len(units) + 1), True, key=lambda number: cost_of(number) > goal)
    if above > len(units):
        return units
    if above and goal - cost_of(above - 1) <= cost_of(above) - goal:
        above -= 1
    return units[:above]


def _number_of_units(plan: PruningPlan) -> int:
    return plan.total_kept


def _plan_with(shape: Shape, units: Iterable[Unit]) -> PruningPlan:
    """The plan that keeps these units, but none in a dropped layer."""
    return plan_of(shape, units).without_units_of_dropped_layers()


def folded(weight: Tensor, values: Sequence[float]) -> Tensor:
    """Multiply the columns of each unit in an output projection by the unit's gate.

    Args:
        weight: C x U'd, the units' columns side by side.
        values: the gates, U' numbers.
    """
    factors = torch.tensor(values, dtype=torch.float32)  # U'
    columns = weight.size(1) // max(1, len(factors))
    return (weight * factors.repeat_interleave(columns).to(weight.device)).to(weight.dtype)
