"""The method ``random``."""

from __future__ import annotations

from dataclasses import dataclass

from headprune.methods.method import Outcome, Request, SpeedRequest
from headprune.origin import Origin
from headprune.select.in_order import first_at_speed
from headprune.select.random import at_random, lot


@dataclass(frozen=True)
class Random:
    """Keep units that are drawn at random (Budhraja et al. 2020)."""

    name: str = "random"
    meaning: str = "units drawn at random: the baseline (Budhraja et al. 2020)"
    needs_scores: tuple[str, ...] = ()
    needs_model: bool = False
    draws: bool = True

    def run(self, request: Request) -> Outcome:
        """Draw the units to keep."""
        return Outcome(
            plan=at_random(
                request.plan.units,
                seed=request.seed,
                budget=request.budget,
                cost=request.cost,
                at_least=request.at_least or 0,
                within=request.plan,
            )
        )

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Prune units in a random order of all, of every kind, until the speed is reached."""
        plan = first_at_speed(
            request.plan,
            order=lambda unit: lot(request.seed, unit),
            speedup=request.speedup,
            latency=request.latency,
            at_least=request.at_least or 0,
        )
        origin = Origin(
            method=self.name,
            seed=request.seed,
            budget=str(request.speedup),
            at_least=request.at_least,
        )
        return Outcome(plan=plan.with_origin(origin))
