"""Tests of scores against random choice.

The question is whether a score chooses better heads than chance does. A score chooses one plan,
and random choice is known by a few plans, so under the null hypothesis the score's value is one
more draw from the distribution that random's values come from. A new draw differs from the mean of
n others by a t-distributed amount with n - 1 degrees of freedom and the scale sd * sqrt(1 + 1/n)
(the prediction interval), which is what is tested here, two-sided.

After fine-tuning a score's value is the mean over the seeds of its fine-tuning. All of them
fine-tune the same plan, so they do not count as further draws: a t-test that took them for such
would call good luck in one plan significant. The mean varies no more than a single fine-tuning
does, so the test holds its level there too, and is conservative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as t_distribution

from headprune.significance import holm
from headprune.stats import Spread

LEVEL = 0.05
"""Probability of calling any score of a cell different from random if none is."""


@dataclass(frozen=True)
class ScoreTest:
    """One score against random choice.

    Attributes:
        difference: its value less the mean of random's.
        p_value: of the two-sided test.
        adjusted: the p-value by Holm's method, for all scores of the cell.
    """

    difference: float
    p_value: float
    adjusted: float

    @property
    def significant(self) -> bool:
        """True if the score differs from random at ``LEVEL``."""
        return self.adjusted < LEVEL


@dataclass(frozen=True)
class CellTest:
    """All scores of one percentage against random choice.

    Attributes:
        random: random's values: mean, standard deviation and number of draws.
        scores: by name.
        smallest: the smallest difference that is significant when it is the largest of its cell.
    """

    random: Spread
    scores: Mapping[str, ScoreTest]
    smallest: float


def compare_with_random(random: Spread, values: Mapping[str, float]) -> CellTest | None:
    """Test the scores' values against random's.

    Args:
        random: of two draws or more.
        values: by score, each of one plan.

    Returns:
        None where nothing can be tested: no score, one draw, or draws that are all the same.
    """
    if not values or not random.sd:
        return None
    freedom = random.n - 1
    scale = random.sd * math.sqrt(1 + 1 / random.n)
    differences = np.array(list(values.values())) - random.mean
    p_values = [float(p) for p in 2 * t_distribution.sf(np.abs(differences) / scale, freedom)]
    tests = zip(values, differences, p_values, holm(p_values), strict=True)
    return CellTest(
        random=random,
        scores={name: ScoreTest(float(gap), p, adjusted) for name, gap, p, adjusted in tests},
        smallest=float(t_distribution.isf(LEVEL / 2 / len(values), freedom) * scale),
    )
