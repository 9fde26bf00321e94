"""Rates of wrong decisions of the rules on simulated data; prints the table of docs/claims.md.

python -m tests.claims.calibration
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

import numpy as np

from headprune.claims.estimate import Estimate, mean_difference, relative_deviation
from headprune.claims.outcome import Outcome, evidence_on
from headprune.claims.region import Region
from headprune.results.significance import SIGNIFICANCE_LEVEL, holm

SIMULATED = 5_000


@dataclass(frozen=True, kw_only=True)
class Shares:
    """The share of each outcome."""

    holds: float
    fails: float
    unknown: float


def strata(
    random: np.random.Generator,
    *,
    mean: float,
    deviations: Sequence[float],
    seeds: int,
    common: float = 0.0,
) -> list[dict[int, float]]:
    """Values of some strata by seed, distributed normally.

    Args:
        common: the share of the variance that all strata of a seed have in common.
    """
    own = random.standard_normal((len(deviations), seeds))
    shared = random.standard_normal(seeds)
    noise = math.sqrt(1 - common) * own + math.sqrt(common) * shared
    values = mean + np.array(deviations)[:, None] * noise
    return [dict(enumerate(row)) for row in values.tolist()]


def shares_of_means(
    region: Region,
    *,
    mean: float,
    deviations: Sequence[float],
    common: float = 0.0,
    seeds: int = 3,
    parts: int = 1,
    simulated: int = SIMULATED,
) -> Shares:
    """Outcomes of a claim on mean differences whose true value is `mean` in every part."""
    random = np.random.default_rng(1)
    outcomes = []
    for _ in range(simulated):
        estimates: list[Estimate] = []
        for _ in range(parts):
            each = mean_difference(
                strata(random, mean=mean, deviations=deviations, seeds=seeds, common=common)
            )
            assert each is not None
            estimates.append(each)
        evidence = evidence_on(region, estimates)
        outcomes.append(evidence.outcome(evidence.p_value))
    return _shares(outcomes)


def shares_of_deviations(
    *,
    relative: Sequence[float],
    bound: float,
    common: float = 0.0,
    seeds: int = 3,
    simulated: int = SIMULATED,
) -> Shares:
    """Outcomes of a claim on a deviation of at most `bound`, with these deviations of rows."""
    random = np.random.default_rng(1)
    outcomes = []
    for _ in range(simulated):
        rows = strata(random, mean=100, deviations=relative, seeds=seeds, common=common)
        estimate = relative_deviation(rows)
        assert estimate is not None
        evidence = evidence_on(Region(high=bound), [estimate])
        outcomes.append(evidence.outcome(evidence.p_value))
    return _shares(outcomes)


def wrong_after_holm(
    *, means: Sequence[float], seeds: int = 3, common: float = 0.0, simulated: int = SIMULATED
) -> float:
    """The share of studies in which any claim of several is decided wrongly.

    Each claim says that the mean is 0 or more.

    Args:
        means: the true mean of each claim.
        common: the share of the variance that all claims of a seed have in common.
    """
    random = np.random.default_rng(1)
    region, wrong = Region(low=0), 0
    for _ in range(simulated):
        own = random.standard_normal((len(means), seeds))
        shared = random.standard_normal(seeds)
        values = math.sqrt(1 - common) * own + math.sqrt(common) * shared
        evidence = []
        for mean, row in zip(means, values, strict=True):
            estimate = mean_difference([dict(enumerate((mean + row).tolist()))])
            assert estimate is not None
            evidence.append(evidence_on(region, [estimate]))
        adjusted = holm([each.p_value for each in evidence])
        false = (Outcome.FAILS if mean >= 0 else Outcome.HOLDS for mean in means)
        wrong += any(
            each.outcome(p_value) is outcome
            for each, p_value, outcome in zip(evidence, adjusted, false, strict=True)
        )
    return wrong / simulated


def _shares(outcomes: Sequence[Outcome]) -> Shares:
    return Shares(
        holds=outcomes.count(Outcome.HOLDS) / len(outcomes),
        fails=outcomes.count(Outcome.FAILS) / len(outcomes),
        unknown=outcomes.count(Outcome.UNKNOWN) / len(outcomes),
    )


def most(share: float, simulated: int) -> float:
    """A share that is exceeded with probability 0.001 only where the true one is `share`."""
    z = NormalDist().inv_cdf(0.999)
    return share + z * math.sqrt(share * (1 - share) / simulated)


EVEN = (0.8,) * 5
UNEVEN = (0.3, 0.5, 0.8, 1.2, 1.6)
NO_LOSS, EQUAL, ABOVE = Region(low=-0.15), Region(low=-0.5, high=0.5), Region(low=0)


def main() -> None:
    """Print the table."""
    print("| rule, three seeds | shared | true effect | holds | does not hold | cannot tell |")
    print("| --- | --: | --: | --: | --: | --: |")
    for name, region, deviations, parts, means in (
        ("loss of at most 0.15, one row", NO_LOSS, (0.8,), 1, (-0.15, 0.0, -1.15, -3.0)),
        ("within ±0.5, 5 pairs", EQUAL, EVEN, 1, (-0.5, 0.0, -1.0, -1.5, -2.0)),
        ("within ±0.5, 5 uneven pairs", EQUAL, UNEVEN, 1, (-0.5, 0.0, -2.0)),
        ("within ±0.5, 3 parts of 4 triples", EQUAL, (0.8,) * 4, 3, (-0.5, 0.0, -2.0)),
        ("above 0, 16 cells", ABOVE, (0.8,) * 16, 1, (0.0, 0.5, 1.0)),
    ):
        for common in (0.0, 0.5) if len(deviations) > 1 else (0.0,):
            for mean in means:
                shares = shares_of_means(
                    region, mean=mean, deviations=deviations, parts=parts, common=common
                )
                _print_row(name, common, f"{mean:+g}", shares)
    for common in (0.0, 0.5, 1.0):
        for deviation in (0.668, 0.334, 1.336):
            shares = shares_of_deviations(relative=(deviation,) * 8, bound=0.668, common=common)
            _print_row("deviation of at most 0.668%, 8 rows", common, f"{deviation}%", shares)
    print("\n| true effects | shared | wrong |\n| --- | --: | --: |")
    for name, means in (
        ("8 claims just true", (0.0,) * 8),
        ("4 just true, 4 clearly false", (0.0,) * 4 + (-20.0,) * 4),
        ("4 just true, 4 just false", (0.0,) * 4 + (-1e-9,) * 4),
    ):
        for common in (0.0, 0.5):
            share = wrong_after_holm(means=means, common=common)
            print(f"| {name} | {common:.0%} | {share:.1%} |", flush=True)
    print(f"\nlevel {SIGNIFICANCE_LEVEL:.0%}, {SIMULATED:,} simulated studies each")


def _print_row(name: str, common: float, effect: str, shares: Shares) -> None:
    print(
        f"| {name} | {common:.0%} | {effect} | {shares.holds:.1%} | {shares.fails:.1%} "
        f"| {shares.unknown:.1%} |",
        flush=True,
    )


if __name__ == "__main__":
    main()
