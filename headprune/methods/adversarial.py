"""The method ``adversarial``: prune the units that a score holds most important."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headprune.errors import UsageError
from headprune.methods.method import Outcome, Request
from headprune.scores.names import keep_of
from headprune.select.score import by_score

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
        if self.score not in request.scores:
            raise UsageError(f"{self.name}: the scores of {self.score} are missing")
        plan = by_score(
            request.scores[self.score],
            budget=request.budget,
            cost=request.cost,
            keep=_OPPOSITE[keep_of(self.score)],
            at_least=request.at_least,
            within=request.plan,
        )
        assert plan.origin is not None
        return Outcome(plan=plan.with_origin(replace(plan.origin, method=self.name)))
