"""Rank correlations of scores with the drops by ablation, and with each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from headprune.scores.combination import flat
from headprune.scores.head_scores import HeadScores
from headprune.scores.names import keep_of

SAMPLES = 2000
CONFIDENCE = 0.95
"""The confidence of intervals."""

_UNDEFINED = 0.001
"""The largest share of resamples without a correlation for which there is an interval."""

_AT_ONCE = 2**20
"""The number of resampled values that are ranked at once: more would fill the memory."""


@dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation over units, with a bootstrap interval.

    Attributes:
        value: NaN where one of the two scores is the same for all units.
        low, high: the interval that holds 95% of the values of resampled units. NaN where resampled
            units often have equal scores, as with few units or where most drops by ablation are 0:
            there the interval leaves out 0 far too often.
        heads: the number of units that both scores have.
    """

    value: float
    low: float
    high: float
    heads: int


def correlation(one: HeadScores, other: HeadScores, *, seed: int = 1) -> Correlation:
    """Correlate two scores over the units that both have.

    The sign of a score whose low numbers are good (``names.keep_of``) is reversed first, so that
    scores that keep the same units correlate positively.
    """
    a, b = _oriented(one), _oriented(other)
    places = sorted(a.keys() & b.keys())
    x = np.array([a[place] for place in places])
    y = np.array([b[place] for place in places])
    random = np.random.default_rng(seed)
    drawn = random.integers(0, len(places), (SAMPLES, len(places)))
    parts = np.array_split(drawn, max(1, math.ceil(drawn.size / _AT_ONCE)))
    values = np.concatenate([_spearman(x[rows], y[rows]) for rows in parts])
    undefined = np.isnan(values)
    if undefined.mean() > _UNDEFINED:
        low = high = math.nan
    else:
        low, high = np.quantile(values[~undefined], [(1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2])
    return Correlation(float(_spearman(x, y)), float(low), float(high), len(places))


def matrix(scores: Mapping[str, HeadScores]) -> list[list[float]]:
    """Correlations of all scores with one another, in their order."""
    tables = [_oriented(each) for each in scores.values()]
    values = []
    for a in tables:
        row = []
        for b in tables:
            places = sorted(a.keys() & b.keys())
            x, y = (np.array([table[place] for place in places]) for table in (a, b))
            row.append(float(_spearman(x, y)))
        values.append(row)
    return values


def _oriented(scores: HeadScores) -> dict[tuple[str, int, int], float]:
    sign = 1 if keep_of(scores.name) == "high" else -1
    return {place: sign * value for place, value in flat(scores).items()}


def _spearman(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Pearson's correlation of ranks, along the last axis; equal values get their mean rank.

    NaN without values, and where all values of x or of y are equal.
    """
    if not x.shape[-1]:
        return np.full(x.shape[:-1], np.nan)
    a, b = (rankdata(values, axis=-1) for values in (x, y))
    a, b = (ranks - ranks.mean(-1, keepdims=True) for ranks in (a, b))
    norm = np.sqrt((a * a).sum(-1) * (b * b).sum(-1))
    undefined = np.full_like(norm, np.nan)
    values: np.ndarray = np.divide((a * b).sum(-1), norm, out=undefined, where=norm > 0)
    return values
