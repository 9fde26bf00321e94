"""The rules keep their level on simulated data, and find large effects.

The effects lie just at the edge of the claimed region, where a wrong outcome is most likely.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from headprune.claims.region import Region
from headprune.results.significance import SIGNIFICANCE_LEVEL
from tests.claims.calibration import (
    ABOVE,
    EQUAL,
    EVEN,
    NO_LOSS,
    UNEVEN,
    most,
    shares_of_deviations,
    shares_of_means,
    wrong_after_holm,
)

EDGES = [
    (NO_LOSS, -0.15, (0.8,), 1),
    (EQUAL, -0.5, EVEN, 1),
    (EQUAL, 0.5, UNEVEN, 1),
    (EQUAL, -0.5, (0.8,) * 4, 3),
    (ABOVE, 0.0, (0.8,) * 16, 1),
]


def check_level(
    region: Region, mean: float, deviations: Sequence[float], parts: int, simulated: int
) -> None:
    """Neither outcome is wrong in more than the level's share of studies.

    The rows of one seed are independent, or have half or all of their variance in common.
    """
    allowed = most(SIGNIFICANCE_LEVEL, simulated)
    for common in (0.0, 0.5, 1.0):
        shares = shares_of_means(
            region,
            mean=mean,
            deviations=deviations,
            parts=parts,
            common=common,
            simulated=simulated,
        )
        assert shares.holds <= allowed, "an effect just outside"
        assert shares.fails <= allowed, "an effect just inside"


@pytest.mark.parametrize(("region", "mean", "deviations", "parts"), EDGES)
def test_the_level_at_the_edge(
    region: Region, mean: float, deviations: Sequence[float], parts: int
) -> None:
    check_level(region, mean, deviations, parts, simulated=500)


@pytest.mark.slow
@pytest.mark.parametrize(("region", "mean", "deviations", "parts"), EDGES)
def test_the_level_at_the_edge_exactly(
    region: Region, mean: float, deviations: Sequence[float], parts: int
) -> None:
    check_level(region, mean, deviations, parts, simulated=10_000)


def test_a_single_row_spends_its_level() -> None:
    """The test is not conservative: it is wrong about as often as it may be."""
    shares = shares_of_means(NO_LOSS, mean=-0.15, deviations=(0.8,), simulated=2000)
    assert shares.fails == pytest.approx(SIGNIFICANCE_LEVEL, abs=0.015)
    assert shares.holds == pytest.approx(SIGNIFICANCE_LEVEL, abs=0.015)


def test_equal_rows_are_not_called_equal_without_evidence() -> None:
    """One pair of three seeds that differ by nothing cannot be shown to be equal."""
    shares = shares_of_means(EQUAL, mean=0.0, deviations=(0.8,), simulated=600)
    assert shares.unknown > 0.85


def test_five_pairs_find_what_one_pair_does_not() -> None:
    one = shares_of_means(EQUAL, mean=-1.5, deviations=(0.8,), simulated=600)
    five = shares_of_means(EQUAL, mean=-1.5, deviations=EVEN, simulated=600)
    assert one.fails < 0.5 and five.fails > 0.75


def test_a_clear_loss_is_found() -> None:
    assert shares_of_means(NO_LOSS, mean=-8.0, deviations=(0.8,), simulated=300).fails > 0.95


QUICKLY_AND_EXACTLY = pytest.mark.parametrize(
    "simulated", [500, pytest.param(10_000, marks=pytest.mark.slow)]
)
"""With 500 studies a level of up to 8% passes, with 10,000 of up to 5.7%."""


@QUICKLY_AND_EXACTLY
@pytest.mark.parametrize("common", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("relative", [(0.668,) * 8, (0.3, 0.5, 0.7, 0.9, 1.0)])
def test_the_level_of_a_deviation(relative: Sequence[float], common: float, simulated: int) -> None:
    bound = (sum(value**2 for value in relative) / len(relative)) ** 0.5
    shares = shares_of_deviations(
        relative=relative, bound=bound, common=common, simulated=simulated
    )
    assert max(shares.holds, shares.fails) <= most(SIGNIFICANCE_LEVEL, simulated)


@QUICKLY_AND_EXACTLY
@pytest.mark.parametrize("common", [0.0, 0.5])
@pytest.mark.parametrize(
    "means", [(0.0,) * 8, (0.0,) * 4 + (-20.0,) * 4, (0.0,) * 4 + (-1e-9,) * 4]
)
def test_all_claims_together_keep_the_level(
    means: Sequence[float], common: float, simulated: int
) -> None:
    assert wrong_after_holm(means=means, common=common, simulated=simulated) <= most(
        SIGNIFICANCE_LEVEL, simulated
    )
