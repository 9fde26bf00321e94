"""The units that compete with one another in a comparison."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headprune.budget import SPEED, Budget
from headprune.components import HEADS, LAYERS
from headprune.cost import unit_cost
from headprune.errors import UsageError
from headprune.methods.adversarial import IMPORTANT_FIRST, other_method
from headprune.model import PrunableModel, require_no_uniform_heads
from headprune.plan import PruningPlan
from headprune.scores.names import COMBINATION
from headprune.scores.registry import score_named
from headprune.select.random import at_random
from headprune.select.ranking import Cost
from headprune.select.score import OTHER_SCORE, require_one_scale


@dataclass(frozen=True, kw_only=True)
class Competition:
    """The units that compete, and the quantity that budgets are shares of.

    Attributes:
        full: the plan of the model as it was given, with all units of the components.
        pool: the part of it with the units that compete.
        cost: see ``unit_cost``; None for shares of units.
    """

    full: PruningPlan
    pool: PruningPlan
    measure: str
    cost: Cost | None
    at_least: int

    @classmethod
    def of(
        cls, model: PrunableModel, components: Sequence[str] | None, *, measure: str, at_least: int
    ) -> Competition:
        """The competition of the units of some components of a model; None: all attention.

        Raises:
            UsageError: the model lacks a component, there is no such measure, or heads are of the
                form uniform.
        """
        require_no_uniform_heads(model)
        names = [*model.plan.heads] if components is None else components
        for name in names:
            if name not in model.shape:
                raise UsageError(f"{model.path} has no {name}; it has {', '.join(model.shape)}")
        if measure == "units" and {*names} & {*LAYERS} and {*names} - {*LAYERS}:
            # The heads of a dropped layer go with it, so shares of units would differ in size.
            raise UsageError(
                "a layer costs more than a head or a neuron; give a budget of flops or of "
                "parameters, or a speed"
            )
        full = model.plan.units_left({name: model.shape[name] for name in names})
        pool = full.part(names)
        assert pool is not None
        cost = None
        if measure != SPEED:
            Budget(0, measure)  # refuses other measures
            if measure != "units":
                cost = unit_cost(measure, sizes=model.sizes, shape=pool.units)
        elif not full.is_full:
            raise UsageError(f"{model.path}: is pruned already; --speedup takes an unpruned model")
        return cls(full=full, pool=pool, measure=measure, cost=cost, at_least=at_least)

    @property
    def components(self) -> tuple[str, ...]:
        """The components, in canonical order."""
        return tuple(self.pool.units)

    @property
    def scored_components(self) -> tuple[str, ...] | None:
        """The components to compute scores of; None, which is all attention, for heads.

        Folders of older versions hold the scores of all heads. For a speed, a layer counts as all
        of its units, and is not scored itself beside heads and neurons.
        """
        if set(self.components) <= {*HEADS}:
            return None
        parts = tuple(name for name in self.components if name not in LAYERS)
        return parts if parts and self.measure == SPEED else self.components

    def percent_pruned(self, plan: PruningPlan) -> float:
        """The share of heads that a plan prunes; or of the units that compete, if not heads."""
        part = plan.part(HEADS if set(self.components) <= {*HEADS} else self.components)
        assert part is not None
        return part.percent_pruned

    def require_possible(self, scores: Mapping[str, str], percents: Sequence[float]) -> None:
        """Raise a UsageError for invalid settings at the start rather than after hours.

        Args:
            scores: the method that needs each score.
            percents: the shares to prune, or the speeds.
        """
        for name, method in scores.items():
            if name == COMBINATION:
                continue
            score = score_named(name)
            needed = self.scored_components or self.components
            lacking = [c for c in needed if c not in score.components]
            if lacking:
                if method == name:
                    raise UsageError(
                        f"{name} is no score of {', '.join(lacking)}; compare it with --components"
                    )
                raise UsageError(
                    f"{method} chooses by {name}, which is no score of {', '.join(lacking)}; give "
                    f"another method, such as fisher{IMPORTANT_FIRST}"
                )
            require_one_scale(
                name,
                self.components,
                normalised=score.normalised,
                advice=OTHER_SCORE if method == name else other_method(method),
            )
        for percent in percents if self.measure != SPEED else ():
            at_random(
                self.pool.units,
                seed=1,
                budget=Budget(percent, self.measure),
                cost=self.cost,
                at_least=self.at_least,
                within=self.pool,
            )


def component_settings(components: Sequence[str] | None) -> dict[str, Any]:
    """The settings of a folder that name what is pruned; older folders name one component."""
    if components is None:
        return {}
    return {"component": components[0]} if len(components) == 1 else {"components": [*components]}
