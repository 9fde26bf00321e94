"""Methods that prune the units that a score holds most important."""

from __future__ import annotations

from dataclasses import dataclass, replace

from headprune.methods.by_score import ByScore
from headprune.methods.method import AnyRequest, Outcome, Request, SpeedRequest
from headprune.select.score import require_one_scale

IMPORTANT_FIRST = "-important-first"
"""The end of the method's name for each score, as in ``taylor-important-first``."""

_COMPARABLE = "gradient-raw"


def other_method(name: str) -> str:
    """The advice to take a method whose score compares heads and neurons, for error messages."""
    return f"take {_COMPARABLE}{IMPORTANT_FIRST} in the place of {name}"


@dataclass(frozen=True)
class Adversarial:
    """Prune the units that a score holds most important, where others prune the least important.

    Compare three models: pruned by the score, at random, and by this method. If only this method is
    worse, importance matters, and random choice rarely prunes the important units. If all three are
    equally good, importance does not matter.

    Attributes:
        score: the score.
    """

    name: str = "adversarial"
    score: str = "gradient"
    needs_model: bool = True
    draws: bool = False

    @classmethod
    def of(cls, score: str) -> Adversarial:
        """The method of a score under the score's own name."""
        return cls(name=score + IMPORTANT_FIRST, score=score)

    @property
    def meaning(self) -> str:
        """One line for help texts."""
        return f"prune what {self.score} holds most important: the control of importance"

    @property
    def needs_scores(self) -> tuple[str, ...]:
        """The score."""
        return (self.score,)

    def run(self, request: Request) -> Outcome:
        """Rank the units, from the other end."""
        self._require_one_scale(request)
        return self._named(self._by_score.run(request))

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Choose the units that lose the most."""
        self._require_one_scale(request)
        return self._named(self._by_score.at_speed(request))

    @property
    def _by_score(self) -> ByScore:
        return ByScore(self.score, opposite=True)

    def _require_one_scale(self, request: AnyRequest) -> None:
        if self.score not in request.scores:
            return  # the choice itself says so
        require_one_scale(
            self.score,
            request.plan.units,
            normalised=request.scores[self.score].is_normalised,
            advice=other_method(self.name),
        )

    def _named(self, outcome: Outcome) -> Outcome:
        """The plan with this method as its origin."""
        assert outcome.plan.origin is not None
        origin = replace(outcome.plan.origin, method=self.name)
        return Outcome(plan=outcome.plan.with_origin(origin))
