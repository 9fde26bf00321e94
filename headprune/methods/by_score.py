"""Methods that keep the units with the best scores."""

from __future__ import annotations

from dataclasses import dataclass

from headprune.errors import UsageError
from headprune.methods.method import Outcome, Request
from headprune.scores.names import keep_of
from headprune.scores.registry import score_named
from headprune.select.score import by_score


@dataclass(frozen=True)
class ByScore:
    """Keep the units with the best numbers of a registered score."""

    name: str
    needs_model: bool = True
    draws: bool = False

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
        if self.name not in request.scores:
            raise UsageError(f"{self.name}: the scores are missing; compute them first")
        return Outcome(
            plan=by_score(
                request.scores[self.name],
                budget=request.budget,
                cost=request.cost,
                keep=keep_of(self.name),
                at_least=request.at_least,
                within=request.plan,
            )
        )
