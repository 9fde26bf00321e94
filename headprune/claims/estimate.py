"""Estimates of an effect over seeds, with intervals, one-sided p-values and power."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Protocol

import numpy as np
from scipy.optimize import brentq
from scipy.special import (
    bdtr,
    bdtrc,
    betaincinv,
    chdtr,
    chdtrc,
    chdtri,
    nctdtr,
    ndtr,
    stdtr,
    stdtrit,
)

POWER = 0.8
"""The probability with which the smallest detectable effect is found."""

_ERRORS, _BISECTIONS = 2000, 80
"""Numbers of measured errors, and of steps to a critical value, in the power of two tails."""

_LARGE = 1e4
"""The critical value from which the spread of a mean is negligible in its power."""


class Estimate(Protocol):
    """An effect that was estimated from `n` independent observations."""

    @property
    def effect(self) -> float:
        """The estimated effect."""

    @property
    def n(self) -> int:
        """The number of observations."""

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The two-sided confidence interval."""

    def p_above(self, bound: float) -> float:
        """The p-value of the hypothesis that the true effect is not above the bound."""

    def p_below(self, bound: float) -> float:
        """The p-value of the hypothesis that the true effect is not below the bound."""

    def detectable(self, bound: float, level: float) -> float:
        """The smallest distance of the true effect to the bound that a one-sided test of this
        level finds with probability ``POWER``, if the spread is as it was measured."""


@dataclass(frozen=True, kw_only=True)
class MeanDifference:
    """A mean of differences that are distributed normally.

    Attributes:
        effect: the mean.
        error: its standard error, above 0.
        freedom: the degrees of freedom of the standard error.
        n: the number of differences.
    """

    effect: float
    error: float
    freedom: float
    n: int

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The t-interval."""
        half = float(stdtrit(self.freedom, (1 + confidence) / 2)) * self.error
        return self.effect - half, self.effect + half

    def p_above(self, bound: float) -> float:
        """The one-sided t-test against effects up to the bound."""
        return float(stdtr(self.freedom, (bound - self.effect) / self.error))

    def p_below(self, bound: float) -> float:
        """The one-sided t-test against effects from the bound upwards."""
        return float(stdtr(self.freedom, (self.effect - bound) / self.error))

    def detectable(self, bound: float, level: float) -> float:
        """The distance at which the non-central t-distribution has the power.

        Its distribution function fails at very large critical values, of one degree of freedom
        and a very small level. There the spread of the mean is negligible beside that of its
        estimated error, and the distance is the critical value times a quantile of the error.
        """
        critical = float(stdtrit(self.freedom, 1 - level))
        if critical > _LARGE:
            quantile = float(chdtri(self.freedom, 1 - POWER))
            return critical * math.sqrt(quantile / self.freedom) * self.error

        def power_deficit(shift: float) -> float:
            return 1 - float(nctdtr(self.freedom, shift, critical)) - POWER

        high = critical + 1
        while power_deficit(high) < 0:
            high *= 2
        return float(brentq(power_deficit, 0, high)) * self.error

    def detectable_outside(self, low: float, high: float, level: float) -> float:
        """The distance from a region with two bounds at which ``Region.p_outside`` has the power.

        That p-value has two tails, so its critical value depends on the measured error. The power
        is therefore a mean over the errors that may be measured where this one is the true one.
        """
        width = (high - low) / self.error
        quantiles = (np.arange(_ERRORS) + 0.5) / _ERRORS
        errors = np.sqrt(chdtri(self.freedom, quantiles) / self.freedom)  # in units of the true one
        # The distances to the bound, in measured errors, between which the p-value is the level.
        near = -width / 2 / errors
        far = np.full(_ERRORS, stdtrit(self.freedom, 1 - level / 2))
        for _ in range(_BISECTIONS):
            middle = (near + far) / 2
            p_value = stdtr(self.freedom, -middle) + stdtr(self.freedom, -middle - width / errors)
            near, far = (
                np.where(p_value > level, middle, near),
                np.where(p_value > level, far, middle),
            )
        critical = far * errors

        def power_excess(shift: float) -> float:
            other_side = ndtr(-shift - width - critical)
            return float(np.mean(ndtr(shift - critical) + other_side)) - POWER

        return float(brentq(power_excess, 0, float(critical.max()) + 10)) * self.error


def balanced(strata: Sequence[Mapping[int, float]]) -> tuple[list[int], list[int]]:
    """The seeds and the strata that are used where not every stratum has every seed.

    Of the sets of two seeds or more that some stratum has, it is the one that uses the most values.

    Args:
        strata: the values of each stratum by seed.

    Returns:
        Seeds and numbers of strata such that each of the strata has all of the seeds; empty if no
        stratum has two seeds.
    """
    best: tuple[list[int], list[int]] = ([], [])
    for seeds in {frozenset(stratum) for stratum in strata}:
        complete_strata = [number for number, stratum in enumerate(strata) if seeds <= set(stratum)]
        values, most = len(seeds) * len(complete_strata), len(best[0]) * len(best[1])
        if len(seeds) > 1 and (values, len(seeds)) > (most, len(best[0])):
            best = (sorted(seeds), complete_strata)
    return best


def mean_difference(strata: Sequence[Mapping[int, float]]) -> MeanDifference | None:
    """The mean of several strata's differences over seeds, each stratum with the same weight.

    A seed draws one lot for each head, so the plans of one seed are nested and its results are not
    independent between rows, nor between tasks. The mean over the strata is therefore taken first,
    seed by seed, and the seeds are the observations of a t-test.

    Args:
        strata: for each stratum (a pair of rows, a task), the differences by seed. Strata that lack
            a seed that most of the others have are left out.

    Returns:
        None if there are no two seeds, or if the seeds do not differ: an interval without width
        would be claimed otherwise.
    """
    seeds, used = balanced(strata)
    means = [fmean(strata[number][seed] for number in used) for seed in seeds]
    values = [strata[number][seed] for number in used for seed in seeds]
    if not _varies(means, scale=max(1.0, _largest(values))):
        return None
    return MeanDifference(
        effect=fmean(means),
        error=math.sqrt(_variance(means) / len(means)),
        freedom=len(means) - 1,
        n=len(means),
    )


def one_more_draw(value: float, draws: Sequence[float]) -> MeanDifference | None:
    """A value less the mean of draws, if the value may be one more draw.

    The error is that of the difference between a new draw and the mean of the others, so that a
    lucky draw is not significant (see ``headprune/compare/against_random.py``). None if the draws
    have no spread.
    """
    if not _varies(draws, scale=max(1.0, _largest(draws))):
        return None
    return MeanDifference(
        effect=value - fmean(draws),
        error=math.sqrt(_variance(draws) * (1 + 1 / len(draws))),
        freedom=len(draws) - 1,
        n=len(draws),
    )


def relative_difference(one: Sequence[float], other: Sequence[float]) -> MeanDifference | None:
    """The excess of the larger of two means over the smaller, in percent.

    The error is that of a ratio of two independent means, to the first order. None if a group has
    less than two values, or neither has a spread, or the smaller mean is not above 0.
    """
    low, high = sorted((one, other), key=fmean) if one and other else ((), ())
    if min(len(low), len(high)) < 2 or fmean(low) <= 0:
        return None
    if not any(_varies(group, scale=_largest(group)) for group in (low, high)):
        return None
    ratio = fmean(high) / fmean(low)
    variances = [_variance(group) / len(group) / fmean(group) ** 2 for group in (low, high)]
    fourth = sum(v**2 / (len(g) - 1) for v, g in zip(variances, (low, high), strict=True))
    return MeanDifference(
        effect=100 * (ratio - 1),
        error=100 * ratio * math.sqrt(sum(variances)),
        freedom=sum(variances) ** 2 / fourth,
        n=len(low) + len(high),
    )


@dataclass(frozen=True, kw_only=True)
class Largest:
    """The largest of several effects.

    It is above a bound if one of them is, with Bonferroni's correction, and below if all are.

    Attributes:
        estimates: the effects.
        n: the number of observations of all effects.
        complete: False if some of the effects have no estimate. They may be of any size: then the
            largest effect can be shown to be above a bound, and never below.
    """

    estimates: Sequence[MeanDifference]
    n: int
    complete: bool = True

    @property
    def effect(self) -> float:
        """The largest estimate."""
        return max(each.effect for each in self.estimates)

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The bounds of the two tests; infinity if effects have no estimate."""
        corrected = 1 - (1 - confidence) / len(self.estimates)
        low = max(each.interval(corrected)[0] for each in self.estimates)
        high = max(each.interval(confidence)[1] for each in self.estimates)
        return low, high if self.complete else math.inf

    def p_above(self, bound: float) -> float:
        """The smallest p-value, corrected."""
        return min(1.0, len(self.estimates) * min(each.p_above(bound) for each in self.estimates))

    def p_below(self, bound: float) -> float:
        """The largest p-value; 1 if effects have no estimate."""
        if not self.complete:
            return 1.0
        return max(each.p_below(bound) for each in self.estimates)

    def detectable(self, bound: float, level: float) -> float:
        """The distance at which the least certain of the effects has the power."""
        corrected = level / len(self.estimates)
        return max(each.detectable(bound, corrected) for each in self.estimates)


@dataclass(frozen=True, kw_only=True)
class Deviation:
    """A standard deviation, pooled over groups.

    Attributes:
        effect: the root of the mean variance.
        freedom: its degrees of freedom.
        n: the number of values in all groups.
    """

    effect: float
    freedom: float
    n: int

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The interval from the chi-squared distribution."""
        tail = (1 - confidence) / 2
        low, high = chdtri(self.freedom, tail), chdtri(self.freedom, 1 - tail)
        sum_of_squares = self.freedom * self.effect**2
        return math.sqrt(sum_of_squares / low), math.sqrt(sum_of_squares / high)

    def p_above(self, bound: float) -> float:
        """The one-sided chi-squared test against deviations up to the bound."""
        return float(chdtrc(self.freedom, self._ratio(bound)))

    def p_below(self, bound: float) -> float:
        """The one-sided chi-squared test against deviations from the bound upwards."""
        return float(chdtr(self.freedom, self._ratio(bound)))

    def detectable(self, bound: float, level: float) -> float:
        """The distance above the bound at which the chi-squared test has the power."""
        critical, needed = chdtri(self.freedom, level), chdtri(self.freedom, POWER)
        return bound * (math.sqrt(critical / needed) - 1)

    def _ratio(self, bound: float) -> float:
        """The sum of squares in units of the variance at the bound."""
        if bound <= 0:
            return math.inf
        return self.freedom * (self.effect / bound) ** 2


@dataclass(frozen=True, kw_only=True)
class Share:
    """The share of cases with a property, in percent.

    Attributes:
        having: the number of cases that have the property.
        n: the number of cases.
    """

    having: int
    n: int

    @property
    def effect(self) -> float:
        """The share."""
        return 100 * self.having / self.n

    def interval(self, confidence: float = 0.95) -> tuple[float, float]:
        """The exact interval from the binomial distribution (Clopper and Pearson 1934)."""
        tail = (1 - confidence) / 2
        having, others = self.having, self.n - self.having
        low = float(betaincinv(having, others + 1, tail)) if having else 0.0
        high = float(betaincinv(having + 1, others, 1 - tail)) if others else 1.0
        return 100 * low, 100 * high

    def p_above(self, bound: float) -> float:
        """The exact one-sided binomial test against shares up to the bound."""
        return float(bdtrc(self.having - 1, self.n, bound / 100)) if self.having else 1.0

    def p_below(self, bound: float) -> float:
        """The exact one-sided binomial test against shares from the bound upwards."""
        return float(bdtr(self.having, self.n, bound / 100))

    def detectable(self, bound: float, level: float) -> float:
        """The distance below the bound at which the binomial test has the power.

        It is infinite where no number of cases would be significant.
        """
        significant = [k for k in range(self.n + 1) if bdtr(k, self.n, bound / 100) < level]
        if not significant:
            return math.inf
        most = significant[-1]
        share = brentq(lambda p: bdtr(most, self.n, p) - POWER, 0, bound / 100)
        return bound - 100 * float(share)


def relative_deviation(rows: Sequence[Mapping[int, float]]) -> Deviation | None:
    """The standard deviation over seeds, in percent of the mean, pooled over rows.

    The rows of one seed are not independent. The degrees of freedom are those of Satterthwaite for
    correlated rows, (n - 1) tr(S)^2 / tr(S^2) with S the covariance between rows: n - 1 if all rows
    rise and fall together.

    Args:
        rows: the values of each row by seed; rows that lack a seed that most have are left out.

    Returns:
        None if there are no two seeds, or if no row has a spread.
    """
    seeds, used = balanced(rows)
    relative, any_varies = [], False  # rows x seeds
    for number in used:
        values = [rows[number][seed] for seed in seeds]
        if fmean(values) > 0:
            relative.append([100 * (value / fmean(values) - 1) for value in values])
            any_varies |= _varies(values, scale=_largest(values))
    if not any_varies:
        return None
    # The matrix of products between seeds has the traces of the covariance between rows.
    deviations = np.array(relative)
    products = deviations.T @ deviations  # seeds x seeds
    trace = float(products.trace())
    squares = float((products**2).sum())
    degrees_of_freedom = len(seeds) - 1
    return Deviation(
        effect=math.sqrt(trace / degrees_of_freedom / len(relative)),
        freedom=degrees_of_freedom * trace**2 / squares,
        n=len(seeds) * len(relative),
    )


def _varies(values: Sequence[float], *, scale: float) -> bool:
    """Check for a spread that is no rounding error of values of this size."""
    return len(values) > 1 and max(values) - min(values) > 1e-9 * scale


def _largest(values: Sequence[float]) -> float:
    """The largest absolute value; 0 if there are none."""
    return max(map(abs, values), default=0.0)


def _variance(values: Sequence[float]) -> float:
    """The sample variance; `statistics.variance` computes it in fractions, which is slow."""
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)
