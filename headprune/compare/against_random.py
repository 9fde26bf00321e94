"""Tests of scores against random choice.

The test asks whether a score chooses better heads than random choice. The score gives one plan,
random choice gives n plans. Under the null hypothesis the score's value comes from the same
distribution as the n random values. Its difference to their mean, divided by
sd * sqrt(1 + 1/n), then has a t-distribution with n - 1 degrees of freedom (the prediction
interval for a new observation). The test is two-sided. It takes the random values for normally
distributed.

After fine-tuning, a score's value is the mean over the seeds of the fine-tuning. These seeds share
one plan, so they are not independent observations of the score: a t-test that treated them as
such would report a lucky plan as significant. The mean varies no more than a single fine-tuning,
so the test keeps its level and is conservative.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import t as t_distribution

from headprune.results.significance import SIGNIFICANCE_LEVEL, holm
from headprune.results.stats import Spread

_SHOWN, _SMALL = 0.005, 1e-3
"""A standard deviation below the first number is shown as 0.00. Metrics that are no percentages may
have smaller ones, down to the second number times the largest value."""


@dataclass(frozen=True)
class ScoreTest:
    """One score against random choice.

    Attributes:
        difference: the score's value minus the mean of the random values.
        p_value: the p-value of the two-sided test.
        adjusted: the p-value after Holm's correction for all scores of the cell.
    """

    difference: float
    p_value: float
    adjusted: float

    @property
    def significant(self) -> bool:
        """True if the score differs from random at ``SIGNIFICANCE_LEVEL``."""
        return self.adjusted < SIGNIFICANCE_LEVEL


@dataclass(frozen=True)
class CellTest:
    """All scores of one percentage against random choice.

    Attributes:
        random: random's values: mean, standard deviation and number of draws.
        scores: by name.
        smallest: the smallest difference that is significant when it is the largest of its cell. A
            true difference of this size is found with a probability of about one half.
    """

    random: Spread
    scores: Mapping[str, ScoreTest]
    smallest: float


def compare_with_random(random: Spread, values: Mapping[str, float]) -> CellTest | None:
    """Test the scores' values against random's.

    Args:
        random: the values of two or more random plans.
        values: the value of each score's plan, by the score's name.

    Returns:
        None if no test is possible: no score, a single random value, or random values that are
        equal in the digits that are shown.
    """
    if not values or random.sd is None:
        return None
    largest = max(map(abs, (random.mean, *values.values())))
    if random.sd < min(_SHOWN, _SMALL * largest) or not random.sd:
        return None
    freedom = random.n - 1
    scale = random.sd * math.sqrt(1 + 1 / random.n)
    differences = np.array(list(values.values())) - random.mean
    p_values = [float(p) for p in 2 * t_distribution.sf(np.abs(differences) / scale, freedom)]
    tests = zip(values, differences, p_values, holm(p_values), strict=True)
    return CellTest(
        random=random,
        scores={name: ScoreTest(float(gap), p, adjusted) for name, gap, p, adjusted in tests},
        smallest=float(t_distribution.isf(SIGNIFICANCE_LEVEL / 2 / len(values), freedom) * scale),
    )
