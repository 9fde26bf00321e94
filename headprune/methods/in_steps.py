"""The method ``iterate``: prune a few units, score again, prune further."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING

from headprune.budget import Budget, Goal, Speedup
from headprune.components import LAYERS, kinds_of_units
from headprune.errors import UsageError
from headprune.folders import scratch_folder
from headprune.methods.method import (
    AnyRequest,
    Outcome,
    Request,
    SpeedRequest,
    heads_and_neurons,
)
from headprune.origin import Origin
from headprune.plan import PruningPlan
from headprune.scores.names import keep_of
from headprune.select.in_order import first_at_speed
from headprune.select.ranking import Order, Unit
from headprune.select.score import by_score
from headprune.select.steps import budgets_of_steps, percent_of_budget

if TYPE_CHECKING:  # it imports torch
    from headprune.scores.head_scores import HeadScores
    from headprune.speed.latency import Latency

Step = Callable[["HeadScores", PruningPlan], PruningPlan]
"""From the scores and the units before a step to the units after it."""

_LAYERS_ALONE = "iterate prunes heads and neurons to a speed, not layers alone"


@dataclass(frozen=True)
class InSteps:
    """Prune in equal steps without training; scores are recomputed (Michel et al. 2019).

    ``headprune iterate`` also fine-tunes between the steps. Heads alone and neurons alone
    are pruned by ``gradient``, as in the paper; layers, and units of several kinds, by ``fisher``,
    which has them on one scale.
    """

    name: str = "iterate"
    meaning: str = (
        "scored anew in five steps without training, by gradient (Michel et al. 2019); heads and "
        "neurons together by fisher"
    )
    needs_scores: tuple[str, ...] = ()
    needs_model: bool = True
    draws: bool = False
    steps: int = 5

    def run(self, request: Request) -> Outcome:
        """Score and prune, step by step."""
        goal = request.budget
        start = percent_of_budget(request.plan, of=goal.of, cost=request.cost)

        def to(budget: Budget) -> Step:
            return lambda scores, plan: by_score(
                scores,
                budget=budget,
                cost=request.cost,
                keep=keep_of(scores.name),
                at_least=request.at_least,
            )

        steps = [to(budget) for budget in budgets_of_steps(start, goal, steps=self.steps)]
        return self._pruned(request, request.plan, steps, goal=goal)

    def require_speed(self, request: SpeedRequest) -> None:
        """Check before anything is computed that the speed can be reached without dropped layers.

        Raises:
            UsageError: it cannot; the message names the highest that can.
        """
        _to_speed(
            request,
            request.speedup,
            lambda unit: unit,
            heads_and_neurons(request.plan, message=_LAYERS_ALONE),
        )

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Score and prune heads and neurons in equal steps of time; layers are not dropped.

        In each step go the units with the lowest score for the time that they take.
        """
        self.require_speed(request)
        saved = 1 - 1 / request.speedup.times

        def to(speedup: Speedup) -> Step:
            return lambda scores, plan: _to_speed(
                request, speedup, _by_time(scores, request.latency), plan
            )

        speeds = [Speedup(1 / (1 - saved * step / self.steps)) for step in range(1, self.steps)]
        steps = [to(speedup) for speedup in (*speeds, request.speedup)]
        return self._pruned(
            request,
            heads_and_neurons(request.plan, message=_LAYERS_ALONE),
            steps,
            goal=request.speedup,
        )

    def _pruned(
        self, request: AnyRequest, plan: PruningPlan, steps: Sequence[Step], *, goal: Goal
    ) -> Outcome:
        """The units that the steps leave."""
        if request.model is None or request.folder is None:
            raise UsageError(f"{self.name} scores the model between its steps; it needs a model")
        model = request.model
        components = [*plan.units]
        name = _score_of(components)
        fingerprint = None
        with ExitStack() as folders:
            for number, step in enumerate(steps, 1):
                scores = model.scores([name], seed=request.seed, components=components)[name]
                fingerprint = scores.fingerprint or None
                plan = step(scores, plan)
                if number < len(steps):
                    parent = request.folder / f"step{number}"
                    model = request.model.pruned(
                        plan, folders.enter_context(scratch_folder(parent))
                    )
        origin = Origin(
            method=self.name,
            budget=str(goal),
            scores=fingerprint,
            at_least=request.at_least,
        )
        return Outcome(plan=plan.with_origin(origin))


def _score_of(components: Sequence[str]) -> str:
    """The score of the units of these components."""
    several = len(kinds_of_units(components)) > 1
    return "fisher" if several or {*components} & {*LAYERS} else "gradient"


def _by_time(scores: HeadScores, latency: Latency) -> Order:
    """The order of units by score for each second; those that are kept come first."""
    # Mean over the units of a layer: of one alone, little but noise is measured.
    seconds = {
        name: latency.saving(name, 0) / max(latency.shape[name]) or latency.seconds * 1e-9
        for name in scores.values
    }
    sign = -1 if keep_of(scores.name) == "high" else 1

    def order(unit: Unit) -> tuple[float, Unit]:
        name, layer, number = unit
        value = scores.values[name][layer][number]
        assert value is not None  # it is a unit of the model that was scored
        return sign * value / seconds[name], unit

    return order


def _to_speed(
    request: SpeedRequest, speedup: Speedup, order: Order, plan: PruningPlan
) -> PruningPlan:
    return first_at_speed(
        plan,
        order=order,
        speedup=speedup,
        latency=request.latency,
        at_least=request.kept_at_least,
    )
