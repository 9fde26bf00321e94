"""Random numbers as a score: the baseline that every other score has to beat."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headprune.model import RunnableModel
from headprune.plan import PruningPlan
from headprune.scores.head_scores import Values
from headprune.scores.registry import Computed, Scoring
from headprune.scores.units import parts_of
from headprune.select.random import lot


def random_values(plan: PruningPlan, *, seed: int) -> Values:
    """Random numbers from 0 to 1; ``select.at_random`` keeps the units with the highest."""
    return {
        name: [
            [
                1 - lot(seed, (name, layer, unit)) / 2**256 if unit in kept else None
                for unit in range(plan.units[name][layer])
            ]
            for layer, kept in enumerate(map(frozenset, layers))
        ]
        for name, layers in plan.kept.items()
    }


def plan_of(model: RunnableModel, components: Sequence[str]) -> PruningPlan:
    """The units that the model keeps, of some of its components."""
    parts = parts_of(model, components)
    return PruningPlan(
        kept={name: [part.kept for part in layers] for name, layers in parts.items()},
        units={name: [part.units for part in layers] for name, layers in parts.items()},
    )


def compute(scoring: Scoring, names: Sequence[str]) -> Mapping[str, Computed]:
    """The score ``random``."""
    plan = plan_of(scoring.model, scoring.components)
    values = random_values(plan, seed=scoring.seed)
    return {name: Computed(values=values, settings={"seed": scoring.seed}) for name in names}
