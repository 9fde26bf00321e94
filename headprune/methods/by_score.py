"""Methods that keep the units with the best scores."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from headprune.errors import UsageError
from headprune.methods.method import AnyRequest, Outcome, Request, SpeedRequest
from headprune.scores.names import keep_of
from headprune.scores.registry import score_named
from headprune.select.score import by_score

if TYPE_CHECKING:  # it imports torch
    from headprune.scores.head_scores import HeadScores

_OPPOSITE = {"high": "low", "low": "high"}


@dataclass(frozen=True)
class ByScore:
    """Keep the units with the best numbers of a registered score.

    Attributes:
        name: the score.
        opposite: keep those with the worst.
    """

    name: str
    needs_model: bool = True
    draws: bool = False
    opposite: bool = False

    @property
    def meaning(self) -> str:
        """One line for help texts."""
        return score_named(self.name).meaning

    @property
    def needs_scores(self) -> tuple[str, ...]:
        """The score."""
        return (self.name,)

    def run(self, request: Request) -> Outcome:
        """Rank the units."""
        return Outcome(
            plan=by_score(
                self._scores(request),
                budget=request.budget,
                cost=request.cost,
                keep=self._keep,
                at_least=request.at_least,
                within=request.plan,
            )
        )

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Choose the units of the least sum of scores."""
        from headprune.select.speed import by_speed

        return Outcome(
            plan=by_speed(
                self._scores(request),
                request.latency,
                request.speedup,
                components=[*request.plan.units],
                keep=self._keep,
                at_least=request.kept_at_least,
            )
        )

    @property
    def _keep(self) -> str:
        """The units that are kept: those with `high` or those with `low` scores."""
        keep = keep_of(self.name)
        return _OPPOSITE[keep] if self.opposite else keep

    def _scores(self, request: AnyRequest) -> HeadScores:
        if self.name not in request.scores:
            raise UsageError(f"{self.name}: the scores are missing; compute them first")
        return request.scores[self.name]
