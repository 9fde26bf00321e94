"""The method ``adversarial``: prune the units that a score holds most important."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from headprune.errors import UsageError
from headprune.methods.method import AnyRequest, Outcome, Request, SpeedRequest
from headprune.plan import PruningPlan
from headprune.scores.names import keep_of
from headprune.select.score import by_score

if TYPE_CHECKING:  # it imports torch
    from headprune.scores.head_scores import HeadScores

_OPPOSITE = {"high": "low", "low": "high"}


@dataclass(frozen=True)
class Adversarial:
    """Prune the highest of a score, where others prune the lowest.

    If random choice is as good as a score, but this is worse, importance exists and random choice
    misses little of it; if this is as good too, units of any importance can go.
    """

    name: str = "adversarial"
    meaning: str = "prune the highest gradient: the control of whether importance matters"
    needs_model: bool = True
    draws: bool = False
    score: str = "gradient"

    @property
    def needs_scores(self) -> tuple[str, ...]:
        """The score."""
        return (self.score,)

    def run(self, request: Request) -> Outcome:
        """Rank the units, from the other end."""
        plan = by_score(
            self._scores(request),
            budget=request.budget,
            cost=request.cost,
            keep=_OPPOSITE[keep_of(self.score)],
            at_least=request.at_least,
            within=request.plan,
        )
        return self._outcome(plan)

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Choose the units of the highest scores."""
        from headprune.select.speed import by_speed

        plan = by_speed(
            self._scores(request),
            request.latency,
            request.speedup,
            components=[*request.plan.units],
            keep=_OPPOSITE[keep_of(self.score)],
            at_least=1 if request.at_least is None else request.at_least,
        )
        return self._outcome(plan)

    def _scores(self, request: AnyRequest) -> HeadScores:
        if self.score not in request.scores:
            raise UsageError(f"{self.name}: the scores of {self.score} are missing")
        return request.scores[self.score]

    def _outcome(self, plan: PruningPlan) -> Outcome:
        assert plan.origin is not None
        return Outcome(plan=plan.with_origin(replace(plan.origin, method=self.name)))
