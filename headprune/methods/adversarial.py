"""The method ``adversarial``: prune the units that a score holds most important."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headprune.methods.by_score import ByScore
from headprune.methods.method import Outcome, Request, SpeedRequest


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
        return self._named(self._by_score.run(request))

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Choose the units of the highest scores."""
        return self._named(self._by_score.at_speed(request))

    @property
    def _by_score(self) -> ByScore:
        return ByScore(self.score, opposite=True)

    def _named(self, outcome: Outcome) -> Outcome:
        """The plan with this method as its origin."""
        assert outcome.plan.origin is not None
        origin = replace(outcome.plan.origin, method=self.name)
        return Outcome(plan=outcome.plan.with_origin(origin))
