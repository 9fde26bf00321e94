"""The method ``subnetwork``: heads and whole MLPs pruned in steps, as in Prasanna et al. (2020)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import count, product

from headprune.budget import Goal
from headprune.components import HEADS, LAYERS, NEURONS
from headprune.errors import UsageError
from headprune.methods.method import (
    AnyRequest,
    Outcome,
    Request,
    SpeedRequest,
    heads_and_neurons,
)
from headprune.origin import Origin
from headprune.plan import PruningPlan
from headprune.select.in_order import require_reachable

_LAYERS_ALONE = "subnetwork chooses heads and MLPs, not only layers"


@dataclass(frozen=True)
class Subnetwork:
    """Keep the sub-network that step after step leaves (Prasanna et al. 2020, section 4).

    A step prunes a tenth of the heads and of the MLPs, at least one of each: those with the lowest
    gradients of their gates, which are computed again after each step. Where Prasanna et al. stop
    at a share of the metric, the last step here prunes as much as the budget or the speed asks for;
    ``headprune subnetworks`` stops at the metric. An MLP is kept or pruned as a whole, also where
    ``at_least`` asks for neurons: that is the least number of heads alone.
    """

    name: str = "subnetwork"
    meaning: str = (
        "heads and whole MLPs by gradient, scored anew after each step of a tenth (Prasanna et al. "
        "2020)"
    )
    needs_scores: tuple[str, ...] = ()
    needs_model: bool = True
    draws: bool = False
    score: str = "gradient"
    step: float = 10.0

    def require_components(self, components: Sequence[str], *, measure: str) -> None:
        """Check that heads and MLPs alone compete, and not by the number of heads and neurons.

        Raises:
            UsageError: layers, or shares of heads and neurons together.
        """
        wrong = [name for name in components if name in LAYERS]
        if wrong:
            raise UsageError(f"{self.name} chooses heads and MLPs, not {', '.join(wrong)}")
        if measure == "units" and {*components} & {*HEADS} and {*components} & {*NEURONS}:
            raise UsageError(
                f"{self.name}: an MLP is not one unit beside heads; give a budget of flops or of "
                "parameters"
            )

    def require_speed(self, request: SpeedRequest) -> None:
        """Check before anything is computed that the speed can be reached without dropped layers.

        Raises:
            UsageError: it cannot; the message names the highest that can.
        """
        pool, latency = heads_and_neurons(request.plan, message=_LAYERS_ALONE), request.latency
        latency.require_components([*pool.units])
        require_reachable(
            _smallest(pool, request.kept_at_least),
            request.speedup,
            latency,
            pruned=f"heads and whole MLPs ({', '.join(pool.units)})",
        )

    def run(self, request: Request) -> Outcome:
        """Prune step by step to the budget.

        Raises:
            UsageError: no model, other components, or a budget that cannot be reached.
        """
        pool, budget = request.plan, request.budget
        self.require_components([*pool.units], measure=budget.of)
        cost = request.cost or (lambda plan: plan.total_kept)
        full = cost(PruningPlan.full(pool.units))
        most: Fraction | int = budget.kept_share(full)
        if budget.of == "units":
            most = budget.number_kept(full)
        if cost(_smallest(pool, request.at_least or 0)) > most:
            raise UsageError(f"{self.name}: {budget} pruned cannot be reached; give --at-least 0")
        return self._chosen(request, pool, lambda plan: cost(plan) <= most, cost=cost, goal=budget)

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Prune step by step to the speed; layers are not dropped.

        Raises:
            UsageError: no model, or a speed that cannot be reached.
        """
        self.require_speed(request)
        latency = request.latency

        def is_fast_enough(plan: PruningPlan) -> bool:
            return request.speedup.is_reached(latency.speedup_of(plan))

        pool = heads_and_neurons(request.plan, message=_LAYERS_ALONE)
        return self._chosen(
            replace(request, at_least=request.kept_at_least),
            pool,
            is_fast_enough,
            cost=latency.seconds_of,
            goal=request.speedup,
        )

    def _chosen(
        self,
        request: AnyRequest,
        pool: PruningPlan,
        is_enough: Callable[[PruningPlan], bool],
        *,
        cost: Callable[[PruningPlan], float],
        goal: Goal,
    ) -> Outcome:
        """The units that are kept after the steps.

        Args:
            is_enough: function that says if a plan prunes as much as is asked for; true of the
                smallest plan.
            cost: function that computes the cost of a plan; the last step prunes no more than
                is needed.
            goal: the budget or speed.
        """
        from headprune.subnetworks.elements import elements_of, kinds_of, of_kind, plan_of_elements
        from headprune.subnetworks.ranking import Ranking, best_elements, size_of_step

        if request.model is None or request.folder is None:
            raise UsageError(f"{self.name} scores the model between its steps; it needs a model")
        ranking = Ranking(
            model=request.model,
            pool=pool,
            score=self.score,
            seed=request.seed,
            folder=request.folder / self.name,
        )
        elements = elements_of(pool)

        def outcome(plan: PruningPlan) -> Outcome:
            origin = Origin(method=self.name, budget=str(goal), at_least=request.at_least)
            return Outcome(plan=plan.with_origin(origin), seconds=seconds)

        seconds = 0.0
        for step in count():
            if is_enough(plan := plan_of_elements(elements, pool)):
                return outcome(plan)
            # For each kind: the elements that are kept if the step prunes 0, 1, 2, ... of them.
            choices = []
            for kind in kinds_of(elements):
                kept = of_kind(elements, kind)
                at_least = request.at_least or 0 if kind == "heads" else 0
                protected = sum(
                    min(at_least, len(units)) for layers in kept.kept.values() for units in layers
                )
                size = min(size_of_step(kept, self.step), kept.total_kept - protected)
                if not size:
                    continue
                scores = ranking.scores(elements, [kind], step=step)[kind]
                seconds += ranking.seconds(kind, step=step)
                choices.append(
                    [
                        best_elements(kept, scores, kept.total_kept - number, at_least=at_least)
                        for number in range(size + 1)
                    ]
                )
            steps = [_together(elements, parts) for parts in product(*choices)]
            whole = steps[-1]
            if is_enough(plan_of_elements(whole, pool)):
                plans = [plan_of_elements(each, pool) for each in steps]
                return outcome(max(filter(is_enough, plans), key=cost))
            elements = whole
        raise AssertionError("unreachable")


def _together(elements: PruningPlan, parts: Sequence[PruningPlan]) -> PruningPlan:
    """The elements with those of each kind replaced."""
    for part in parts:
        elements = elements.replaced_by(part)
    return replace(elements, origin=None)


def _smallest(pool: PruningPlan, at_least: int) -> PruningPlan:
    """The plan with as few units as can be: ``at_least`` heads in each layer, and no neurons."""
    return PruningPlan(
        kept={
            name: [() if name in NEURONS else units[:at_least] for units in layers]
            for name, layers in pool.kept.items()
        },
        units=pool.units,
    )
