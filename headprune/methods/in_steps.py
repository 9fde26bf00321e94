"""The method ``iterate``: prune a few units, score again, prune further."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from headprune.errors import UsageError
from headprune.folders import scratch_folder
from headprune.methods.method import Outcome, Request
from headprune.origin import Origin
from headprune.scores.names import keep_of
from headprune.scores.registry import score_named
from headprune.select.score import by_score
from headprune.select.steps import budgets_of_steps, percent_of_budget


@dataclass(frozen=True)
class InSteps:
    """Prune in equal steps without training; scores are recomputed (Michel et al. 2019).

    ``headprune iterate`` also fine-tunes between the steps.
    """

    name: str = "iterate"
    meaning: str = "gradient, scored anew in five steps without training (Michel et al. 2019)"
    needs_scores: tuple[str, ...] = ()
    needs_model: bool = True
    draws: bool = False
    score: str = "gradient"
    steps: int = 5

    def require_components(self, components: Sequence[str], *, measure: str) -> None:
        """Check that the score is one of these components' units.

        Raises:
            UsageError: it is not.
        """
        lacking = [name for name in components if name not in score_named(self.score).components]
        if lacking:
            raise UsageError(f"{self.name}: {self.score} is no score of {', '.join(lacking)}")

    def run(self, request: Request) -> Outcome:
        """Score and prune, step by step."""
        if request.model is None or request.folder is None:
            raise UsageError(f"{self.name} scores the model between its steps; it needs a model")
        plan, model, goal = request.plan, request.model, request.budget
        components = list(plan.units)
        start = percent_of_budget(plan, of=goal.of, cost=request.cost)
        with ExitStack() as folders:
            for step, budget in enumerate(budgets_of_steps(start, goal, steps=self.steps), 1):
                scores = model.scores([self.score], seed=request.seed, components=components)
                plan = by_score(
                    scores[self.score],
                    budget=budget,
                    cost=request.cost,
                    keep=keep_of(self.score),
                    at_least=request.at_least,
                )
                if step < self.steps:
                    parent = request.folder / f"step{step}"
                    model = request.model.pruned(
                        plan, folders.enter_context(scratch_folder(parent))
                    )
        origin = Origin(
            method=self.name,
            budget=str(request.budget),
            scores=None if plan.origin is None else plan.origin.scores,
        )
        return Outcome(plan=plan.with_origin(origin))
