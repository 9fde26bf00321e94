"""The outcome of claims on a set of runs, corrected for the number of claims."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path

from headprune.claims.claim import Claim, Measurement, Part
from headprune.claims.estimate import Estimate
from headprune.claims.examples import ExampleTests, compare_on_examples
from headprune.claims.region import Region
from headprune.claims.runs import Runs, grouped
from headprune.results.changes import Changes
from headprune.results.control_tests import Located
from headprune.results.significance import SIGNIFICANCE_LEVEL, holm
from headprune.scores.head_scores import HeadScores

# For all claims together, Holm's method bounds the probability of a wrong rejection at
# SIGNIFICANCE_LEVEL; that of a wrong direction is checked by simulation (docs/claims.md).


class Outcome(StrEnum):
    """The answer that a set of runs gives on a claim."""

    HOLDS = "holds"
    FAILS = "does not hold"
    UNKNOWN = "these runs cannot tell"
    NOT_RUN = "not run here"


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """The p-values of a claim, before correction.

    Attributes:
        against_outside: of the hypothesis that the claim is false. The claim holds if every part
            lies in its region, so this is the largest p-value of the parts.
        against_inside: of the hypothesis that the claim is true. One part outside its region
            refutes it, so this is the smallest p-value, times the number of parts.
    """

    against_outside: float
    against_inside: float

    @property
    def p_value(self) -> float:
        """The smaller of the two."""
        return min(self.against_outside, self.against_inside)

    def outcome(self, adjusted: float) -> Outcome:
        """The outcome, given the p-value after correction."""
        if adjusted >= SIGNIFICANCE_LEVEL:
            return Outcome.UNKNOWN
        return Outcome.HOLDS if self.against_outside < self.against_inside else Outcome.FAILS


def evidence_on(region: Region, estimates: Sequence[Estimate | None]) -> Evidence:
    """Test whether all effects lie in the region, and whether any lies outside.

    Effects without an estimate may be of any size: then the claim can be refuted by the others,
    and not be shown to hold.
    """
    outside = min(1.0 if each is None else region.p_outside(each) for each in estimates)
    return Evidence(
        against_outside=max(1.0 if each is None else region.p_inside(each) for each in estimates),
        against_inside=min(1.0, len(estimates) * outside),
    )


@dataclass(frozen=True, kw_only=True)
class Assessed:
    """A claim on one set of runs.

    Attributes:
        runs: the runs; None where no runs have the rows.
        measurement: the effects; None where no runs have the rows.
        evidence: the p-values; None where no interval can be given.
        adjusted: the p-value after Holm's correction for all claims that were tested.
        detectable: the smallest distance of the true effect from the claimed region that these
            runs would have found with a probability of 80%, if it had been the clearest of all;
            None where they could not have found any.
        tests: for each part and detail by name, the tests of its models on examples.
    """

    claim: Claim
    outcome: Outcome
    runs: Runs | None = None
    measurement: Measurement | None = None
    evidence: Evidence | None = None
    adjusted: float | None = None
    detectable: float | None = None
    tests: dict[str, ExampleTests]

    @property
    def weakest(self) -> Part | None:
        """The effect that is farthest from the region in units of its error.

        It is the one part of most claims. Parts without an estimate come last. None where nothing
        was measured.
        """
        if self.measurement is None:
            return None
        region = self.claim.region
        return min(
            self.measurement.parts,
            key=lambda part: 2.0 if part.estimate is None else region.p_outside(part.estimate),
        )


def runs_of(
    results: Sequence[Located],
    *,
    changes: Sequence[Changes] = (),
    scores: Sequence[HeadScores] = (),
) -> list[Runs]:
    """The sets of runs on which claims are decided; changes and scores of heads are their own.

    Args:
        results: records and their files.
        changes: changes of heads in fine-tuning, of one study.
        scores: scores of heads; runs of the scored model have them too.

    Raises:
        DataError: see ``grouped``.
    """
    all_runs = [
        replace(runs, scores=[each for each in scores if each.fingerprint in runs.fingerprints])
        for runs in grouped(results)
    ]
    if changes:
        all_runs.append(Runs(name="changes of heads", form="none", rows={}, changes=changes))
    return [*all_runs, *_scored_models(scores)]


def _scored_models(scores: Sequence[HeadScores]) -> list[Runs]:
    """The scores of each model."""
    by_model: dict[str, list[HeadScores]] = {}
    for each in scores:
        by_model.setdefault(each.fingerprint, []).append(each)
    names = [Path(of_model[0].model).name for of_model in by_model.values()]
    return [
        Runs(
            name=f"scores of {name}" + (f" ({fingerprint[:12]})" if names.count(name) > 1 else ""),
            form="none",
            rows={},
            scores=of_model,
        )
        for name, (fingerprint, of_model) in zip(names, by_model.items(), strict=True)
    ]


def assess_runs(
    claims: Sequence[Claim], all_runs: Sequence[Runs], *, test: bool = True
) -> list[Assessed]:
    """Decide on every claim in every set of runs that has its rows.

    Raises:
        DataError: outputs that cannot be read.
    """
    measured = [
        (claim, runs, measurement)
        for claim in claims
        for runs in all_runs
        if (measurement := claim.measure(runs)) is not None
    ]
    evidence = [_evidence(claim, measurement) for claim, _, measurement in measured]
    tested = [each for each in evidence if each is not None]
    adjusted = iter(holm([each.p_value for each in tested]))
    assessed: dict[str, list[Assessed]] = {}
    for (claim, runs, measurement), p_values in zip(measured, evidence, strict=True):
        p_value = None if p_values is None else next(adjusted)
        each = Assessed(
            claim=claim,
            outcome=_outcome(p_values, p_value),
            runs=runs,
            measurement=measurement,
            evidence=p_values,
            adjusted=p_value,
            tests=compare_on_examples(measurement) if test else {},
        )
        detectable = _detectable(each, SIGNIFICANCE_LEVEL / max(1, len(tested)))
        assessed.setdefault(claim.name, []).append(replace(each, detectable=detectable))
    return [
        each
        for claim in claims
        for each in assessed.get(
            claim.name, [Assessed(claim=claim, outcome=Outcome.NOT_RUN, tests={})]
        )
    ]


def _outcome(evidence: Evidence | None, adjusted: float | None) -> Outcome:
    if evidence is None or adjusted is None:
        return Outcome.UNKNOWN
    return evidence.outcome(adjusted)


def _evidence(claim: Claim, measurement: Measurement) -> Evidence | None:
    """The p-values; None if none of the parts that decide has an estimate."""
    estimates = [part.estimate for part in measurement.parts]
    return (
        evidence_on(claim.region, estimates)
        if any(each is not None for each in estimates)
        else None
    )


def _detectable(each: Assessed, level: float) -> float | None:
    part = each.weakest
    if each.evidence is None or part is None or part.estimate is None or not each.measurement:
        return None
    detectable = each.claim.region.detectable(part.estimate, level / len(each.measurement.parts))
    return None if math.isinf(detectable) else detectable
