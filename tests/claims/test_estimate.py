"""Estimates agree with scipy's tests, and their power with simulations."""

from __future__ import annotations

import math
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from headprune.claims.estimate import (
    Deviation,
    MeanDifference,
    Share,
    balanced,
    mean_difference,
    one_more_draw,
    relative_deviation,
    relative_difference,
)
from headprune.claims.outcome import Outcome, evidence_on
from headprune.claims.region import Region

VALUES = [0.1, 0.5, -0.3]


def by_seed(*values: float) -> dict[int, float]:
    return dict(enumerate(values, start=1))


def test_one_stratum_is_the_t_test() -> None:
    estimate = mean_difference([by_seed(*VALUES)])
    assert estimate is not None
    assert (estimate.effect, estimate.freedom, estimate.n) == (pytest.approx(0.1), 2, 3)
    error = stats.sem(VALUES)
    assert estimate.interval() == pytest.approx(stats.t.interval(0.95, 2, loc=0.1, scale=error))
    less = stats.ttest_1samp(VALUES, -0.15, alternative="less").pvalue
    greater = stats.ttest_1samp(VALUES, -0.15, alternative="greater").pvalue
    assert estimate.p_below(-0.15) == pytest.approx(less)
    assert estimate.p_above(-0.15) == pytest.approx(greater)


def test_the_seeds_are_the_observations_of_several_strata() -> None:
    estimate = mean_difference([by_seed(1.0, 2.0, 4.0), by_seed(3.0, 3.5, 9.0)])
    assert estimate == mean_difference([by_seed(2.0, 2.75, 6.5)])


def test_strata_that_repeat_one_another_give_no_certainty() -> None:
    """Rows of one seed have nested plans: in the worst case they say the same."""
    assert mean_difference([by_seed(*VALUES)] * 16) == mean_difference([by_seed(*VALUES)])


def test_the_seeds_and_strata_that_use_most_values() -> None:
    three, two, one = by_seed(1, 2, 3), by_seed(1, 2), by_seed(1)
    assert balanced([three, three, one]) == ([1, 2, 3], [0, 1])
    assert balanced([three, two, two]) == ([1, 2], [0, 1, 2])
    assert balanced([three, {4: 1.0, 5: 2.0}]) == ([1, 2, 3], [0])
    assert balanced([one, one]) == ([], [])
    assert mean_difference([three, one]) == mean_difference([three])


@pytest.mark.parametrize(
    "strata",
    [[], [by_seed(1.0)], [by_seed(1.0, 1.0, 1.0)], [{1: 1.0}, {2: 2.0}]],
)
def test_no_interval_without_a_spread(strata: list[dict[int, float]]) -> None:
    assert mean_difference(strata) is None


def test_an_effect_of_the_detectable_size_is_found_in_four_of_five_studies() -> None:
    measured = mean_difference([by_seed(-1.0, 0.0, 1.0)])  # a standard deviation of 1
    assert measured is not None and measured.error == pytest.approx(1 / math.sqrt(3))
    noise = np.random.default_rng(1).standard_normal((2000, 3)) + measured.detectable(0, 0.05)
    estimates = [mean_difference([by_seed(*row)]) for row in noise.tolist()]
    found = [estimate is not None and estimate.p_above(0) < 0.05 for estimate in estimates]
    assert sum(found) / len(found) == pytest.approx(0.8, abs=0.03)


@pytest.mark.parametrize("deviation", [0.2, 0.55, 1.5])
def test_an_effect_outside_two_bounds_is_found_in_four_of_five_studies(deviation: float) -> None:
    region = Region(low=-0.5, high=0.5)
    measured = MeanDifference(effect=0.0, error=deviation / math.sqrt(3), freedom=2, n=3)
    true = 0.5 + region.detectable(measured, 0.05)
    noise = true + deviation * np.random.default_rng(1).standard_normal((4000, 3))
    estimates = [mean_difference([by_seed(*row)]) for row in noise.tolist()]
    evidence = [evidence_on(region, [estimate]) for estimate in estimates]
    found = [each.outcome(each.p_value) is Outcome.FAILS for each in evidence]
    assert sum(found) / len(found) == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize(("freedom", "level"), [(2, 0.05), (2, 1e-3), (1, 1e-3), (5, 0.01)])
def test_of_a_wide_region_only_the_near_bound_counts(freedom: int, level: float) -> None:
    estimate = MeanDifference(effect=0.0, error=1.0, freedom=freedom, n=freedom + 1)
    one_bound = estimate.detectable(0, level)
    assert estimate.detectable_outside(-1e6, 0, level) == pytest.approx(one_bound, rel=2e-3)


def test_fewer_claims_and_more_seeds_detect_smaller_effects() -> None:
    few, many = (mean_difference([by_seed(*VALUES * times)]) for times in (1, 3))
    assert few is not None and many is not None
    assert few.detectable(0, 0.05) < few.detectable(0, 0.005)
    assert many.detectable(0, 0.05) < few.detectable(0, 0.05)


@pytest.mark.parametrize("freedom", [1, 2, 3])
def test_effects_are_detectable_at_any_level(freedom: int) -> None:
    # Across the critical value from which an approximation stands in for the distribution.
    levels = [10.0**-power for power in range(2, 13)]
    estimate = MeanDifference(effect=0.0, error=1.0, freedom=freedom, n=freedom + 1)
    found = [estimate.detectable(0, level) for level in levels]
    rates = [math.log10(more / less) for less, more in pairwise(found)]
    assert all(math.isfinite(each) for each in found)
    # The tail of a t-distribution falls with this power.
    assert rates[5:] == pytest.approx([1 / freedom] * len(rates[5:]), rel=0.02)


def test_the_deviation_of_one_row() -> None:
    estimate = relative_deviation([by_seed(10.0, 11.0, 12.0)])
    assert estimate is not None
    assert estimate.effect == pytest.approx(100 / 11)
    assert (estimate.freedom, estimate.n) == (pytest.approx(2), 3)
    low, high = estimate.interval()
    squares = 2 * estimate.effect**2
    assert low == pytest.approx(math.sqrt(squares / stats.chi2.isf(0.025, 2)))
    assert high == pytest.approx(math.sqrt(squares / stats.chi2.isf(0.975, 2)))
    assert estimate.p_above(5) == pytest.approx(stats.chi2.sf(squares / 25, 2))
    assert estimate.p_below(5) == pytest.approx(stats.chi2.cdf(squares / 25, 2))


def test_rows_that_rise_and_fall_together_add_no_freedom() -> None:
    alike = relative_deviation([by_seed(10.0, 11.0, 12.0), by_seed(20.0, 22.0, 24.0)])
    assert alike is not None
    assert alike.effect == pytest.approx(100 / 11)
    assert alike.freedom == pytest.approx(2)
    apart = relative_deviation([by_seed(10.0, 11.0, 12.0), by_seed(11.5, 10.0, 11.5)])
    assert apart is not None and apart.freedom > 3.9


def test_the_detectable_deviation_has_the_power() -> None:
    estimate = Deviation(effect=1.0, freedom=6, n=9)
    true = 2.0 + estimate.detectable(2.0, 0.05)
    found = stats.chi2.sf(stats.chi2.isf(0.05, 6) * (2.0 / true) ** 2, 6)
    assert found == pytest.approx(0.8)


def test_a_share_is_tested_by_the_binomial_distribution() -> None:
    share = Share(having=5, n=6)
    exact = stats.binomtest(5, 6).proportion_ci(0.95, method="exact")
    assert share.interval() == pytest.approx((100 * exact.low, 100 * exact.high))
    assert share.p_above(50) == pytest.approx(7 / 64)
    assert share.p_below(50) == pytest.approx(63 / 64)
    assert (Share(having=0, n=6).interval()[0], Share(having=6, n=6).interval()[1]) == (0, 100)
    assert Share(having=0, n=6).p_above(50) == 1 == Share(having=6, n=6).p_below(50)


def test_the_detectable_share_has_the_power() -> None:
    distance = Share(having=9, n=18).detectable(50, 0.05)
    # Of 18 cases, 5 or fewer are significant.
    assert stats.binom.cdf(5, 18, 0.5) < 0.05 < stats.binom.cdf(6, 18, 0.5)
    assert stats.binom.cdf(5, 18, (50 - distance) / 100) == pytest.approx(0.8)
    assert math.isinf(Share(having=2, n=4).detectable(50, 0.05))


@pytest.mark.parametrize("rows", [[], [by_seed(1.0)], [by_seed(2.0, 2.0)], [by_seed(0.0, 0.0)]])
def test_no_deviation_without_a_spread(rows: list[dict[int, float]]) -> None:
    assert relative_deviation(rows) is None


@pytest.mark.parametrize("more", range(1, 60))
def test_rounding_errors_are_no_spread(more: int) -> None:
    """Accuracies on 277 examples, with the same true difference for three seeds."""
    right = {1: 150, 2: 161, 3: 187}
    differences = {s: 100 * (r + more) / 277 - 100 * r / 277 for s, r in right.items()}
    assert mean_difference([differences]) is None


@pytest.mark.parametrize("value", [33.1234567, 0.1, 1e-6 / 3])
@pytest.mark.parametrize("number", range(2, 12))
def test_equal_values_have_no_spread(value: float, number: int) -> None:
    values = [value] * number
    assert mean_difference([by_seed(*values)] * 3) is None
    assert one_more_draw(50.0, values) is None
    assert relative_deviation([by_seed(*values)]) is None
    assert relative_difference(values, [1.1 * value] * number) is None


def test_small_changes_of_weights_have_a_spread() -> None:
    estimate = relative_difference([1.0e-6, 1.1e-6, 1.2e-6], [2.0e-6, 2.1e-6, 2.3e-6])
    assert estimate is not None and estimate.error > 1
