"""The figures of one plan and one seed."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from statistics import mean
from typing import Any

from headprune.compare.measured import Measured
from headprune.plan import PruningPlan
from headprune.recovery.kinds import BEFORE, Recovery
from headprune.results.environment import Environment

CONTROL = "control"
"""The score of rows in which nothing is pruned, and the model only fine-tuned."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One plan and one seed.

    Attributes:
        score: the score that ranked the units, or ``control``.
        percent: the requested percentage; for a speed, the multiple of the unpruned model's.
        pruned: the percentage of units that are pruned.
        seed: of the fine-tuning, and of the draw where the score is ``random``.
        plan: the units kept, as JSON.
        before: the metric right after pruning.
        after: the metric after the recovery; None without one.
        recovery: the name of the recovery of ``after``; None without one.
        trained: whether the method trained the model, for as long as a fine-tuning.
        parameters, flops: of the pruned model; None for FLOPs that are not known.
        resumed: whether the fine-tuning was interrupted and resumed; None where it is not known.
        constant: whether the model of the last figure (``after``, or ``before`` without one)
            gives the same output for every example; None where it is not known.
        constant_before: the same of ``before``.
        environment_before, environment_after: where the two were measured; None where it is not
            known, or there was no recovery.
        predicted_speedup: the speed that a latency file predicts; None without one.
        fingerprint_before, fingerprint_after: the fingerprints of the weights that were measured;
            None likewise.
        files_before, files_after: the files of the outputs; see ``Measured``.
        calibrated_on: see ``Measured``.
    """

    score: str
    percent: float
    pruned: float
    seed: int
    plan: dict[str, Any]
    before: float
    after: float | None
    parameters: int
    flops: int | None
    recovery: str | None = None
    trained: bool = False
    resumed: bool | None = None
    constant: bool | None = None
    constant_before: bool | None = None
    environment_before: Environment | None = None
    environment_after: Environment | None = None
    fingerprint_before: str | None = None
    fingerprint_after: str | None = None
    predicted_speedup: float | None = None
    files_before: Mapping[str, str] = field(default_factory=dict)
    files_after: Mapping[str, str] = field(default_factory=dict)
    calibrated_on: int | None = None

    @cached_property
    def head_plan(self) -> PruningPlan:
        """The plan, read."""
        return PruningPlan.from_json(json.dumps(self.plan), source=f"plan of {self.score}")

    def recovered(self, recovery: Recovery, measured: Measured) -> Row:
        """The row with the figures after a recovery."""
        return replace(
            self,
            recovery=str(recovery),
            after=measured.value,
            resumed=measured.resumed,
            constant=measured.constant,
            environment_after=measured.environment,
            fingerprint_after=measured.fingerprint,
            files_after=measured.files,
            calibrated_on=measured.calibrated_on,
        )

    def as_json(self) -> dict[str, Any]:
        """The figures as JSON values; all else is in the records alone."""
        values = {
            item.name: getattr(self, item.name)
            for item in fields(self)
            if not item.name.startswith(("environment", "fingerprint", "files"))
        }
        for name in ("predicted_speedup", "calibrated_on"):
            if values[name] is None:
                del values[name]
        return {**values, "plan": json.loads(self.head_plan.to_json(with_origin=False))}


def mean_seconds(rows: Sequence[Row]) -> dict[str, float]:
    """The mean seconds of a measurement right after pruning, and of each recovery with its own.

    Fine-tunings that were interrupted do not count, nor does a method's own training.
    """
    found: dict[str, list[float]] = {}
    for row in rows:
        moments = {BEFORE: None if row.trained else row.environment_before}
        if row.recovery is not None and not row.resumed and not row.trained:
            moments[row.recovery] = row.environment_after
        for moment, environment in moments.items():
            if environment is not None and environment.seconds is not None:
                found.setdefault(moment, []).append(environment.seconds)
    return {moment: mean(seconds) for moment, seconds in found.items()}
