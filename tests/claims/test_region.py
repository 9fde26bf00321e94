"""Regions of effects, and the tests for and against them."""

from __future__ import annotations

import pytest

from headprune.claims.estimate import MeanDifference
from headprune.claims.region import Region


def estimate(effect: float, error: float = 0.1) -> MeanDifference:
    return MeanDifference(effect=effect, error=error, freedom=4, n=5)


def test_one_bound_has_two_opposite_p_values() -> None:
    region = Region(low=-0.15)
    for effect in (-1.0, -0.15, 0.3):
        inside, outside = (
            region.p_inside(estimate(effect)),
            region.p_outside(estimate(effect)),
        )
        assert inside + outside == pytest.approx(1)
    assert region.p_inside(estimate(0.3)) < 0.01
    assert region.p_outside(estimate(-1.0)) < 0.001
    assert region.p_inside(estimate(-0.15)) == pytest.approx(0.5)


def test_equivalence_takes_both_one_sided_tests() -> None:
    region = Region(low=-0.5, high=0.5)
    assert region.p_inside(estimate(0.0)) == pytest.approx(estimate(0.0).p_below(0.5))
    assert region.p_inside(estimate(0.4)) == pytest.approx(estimate(0.4).p_below(0.5))
    assert region.p_inside(estimate(0.0, error=2.0)) > 0.3  # not significant is not equal


def test_a_region_of_one_point_is_refuted_by_the_two_sided_test() -> None:
    region = Region(low=0.0, high=0.0)
    assert region.p_outside(estimate(0.25)) == pytest.approx(2 * estimate(0.25).p_above(0))
    assert region.p_outside(estimate(-0.25)) == pytest.approx(2 * estimate(-0.25).p_below(0))


def test_a_wide_region_is_refuted_by_the_one_sided_test() -> None:
    region = Region(low=-100.0, high=0.5)
    assert region.p_outside(estimate(0.8)) == pytest.approx(estimate(0.8).p_above(0.5))
    assert region.p_outside(estimate(0.0)) > 0.5


def test_regions_in_words() -> None:
    assert Region(low=-0.15).text("BLEU") == "-0.15 BLEU or more"
    assert Region(high=0.668).text("%") == "0.668% or less"
    assert Region(low=-0.5, high=0.5).text("BLEU") == "-0.5 to 0.5 BLEU"
    assert Region(low=0).text("points") == "above 0 points"
