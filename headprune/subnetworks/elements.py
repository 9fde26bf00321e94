"""Heads and MLPs as the elements of sub-networks.

The elements of a model are a plan in which each feed-forward sub-layer has one unit: the whole MLP.
An MLP without neurons passes on the bias of its output projection alone.
"""

from __future__ import annotations

from collections.abc import Iterable

from headprune.components import HEADS, NEURONS
from headprune.errors import UsageError
from headprune.plan import PruningPlan
from headprune.select.ranking import Unit

KINDS = {"heads": HEADS, "MLPs": NEURONS}
"""The components of each kind of element."""


def require_elements(components: Iterable[str]) -> None:
    """Refuse components whose units are neither heads nor neurons.

    Raises:
        UsageError: whole layers are among them.
    """
    for name in components:
        if name not in (*HEADS, *NEURONS):
            raise UsageError(
                f"--components {name}: sub-networks consist of heads and MLPs; give some of "
                f"{', '.join((*HEADS, *NEURONS))}"
            )


def kinds_of(plan: PruningPlan) -> list[str]:
    """The kinds of elements that a plan decides on."""
    return [kind for kind, names in KINDS.items() if plan.part(names) is not None]


def elements_of(plan: PruningPlan) -> PruningPlan:
    """The elements that a plan of heads and neurons keeps: an MLP with any neuron is kept."""
    return PruningPlan(
        kept={
            name: [(0,) if units else () for units in layers] if name in NEURONS else layers
            for name, layers in plan.kept.items()
        },
        units={
            name: (1,) * len(layers) if name in NEURONS else layers
            for name, layers in plan.units.items()
        },
    )


def plan_of_elements(elements: PruningPlan, pool: PruningPlan) -> PruningPlan:
    """The plan of heads and neurons with the units of ``pool`` that belong to ``elements``."""
    return PruningPlan(
        kept={
            name: [
                units if elements.kept[name][layer] else ()
                for layer, units in enumerate(pool.kept[name])
            ]
            if name in NEURONS
            else layers
            for name, layers in elements.kept.items()
        },
        units={name: pool.units[name] for name in elements.units},
    )


def units_of(plan: PruningPlan) -> frozenset[Unit]:
    """The kept units as a set."""
    return frozenset(
        (name, layer, unit)
        for name, layers in plan.kept.items()
        for layer, units in enumerate(layers)
        for unit in units
    )


def of_kind(plan: PruningPlan, kind: str) -> PruningPlan:
    """The elements of one kind that a plan keeps."""
    part = plan.part(KINDS[kind])
    assert part is not None
    return part
