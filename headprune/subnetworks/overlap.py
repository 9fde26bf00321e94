"""Overlap of sets of survivors, beside its chance level.

The overlap of two sets is their intersection over their union. By chance, independent sets of a
and b of n elements share k with the hypergeometric probability C(a, k) C(n-a, b-k) / C(n, b).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import comb
from statistics import fmean

import numpy as np

DRAWS = 10_000
_AT_ONCE = 1_000
_ROUNDING = 1e-9


@dataclass(frozen=True, kw_only=True)
class PairOverlap:
    """The overlap of two sets of survivors.

    Attributes:
        value: intersection over union; 1 for two empty sets.
        chance: its expectation for independent random sets of the same sizes.
        p_value: the probability of an overlap at least as large for such sets.
    """

    value: float
    chance: float
    p_value: float


@dataclass(frozen=True, kw_only=True)
class MeanOverlap:
    """The mean overlap of pairs of sets; attributes as of ``PairOverlap``.

    Attributes:
        sets: the number of sets.
        pairs: the number of pairs.
    """

    value: float
    chance: float
    p_value: float
    sets: int
    pairs: int


def overlap_of(
    first: Collection[Hashable], second: Collection[Hashable], *, of: int
) -> PairOverlap:
    """The overlap of two sets, and its exact distribution by chance.

    Args:
        first, second: the sets.
        of: the number of elements that they are chosen from.
    """
    a, b = len(first), len(second)
    shared = len(set(first) & set(second))
    probabilities = dict(_shared(of, a, b))
    chance = sum(
        (probability * _ratio(number, a, b) for number, probability in probabilities.items()),
        Fraction(0),
    )
    tail = sum((each for number, each in probabilities.items() if number >= shared), Fraction(0))
    return PairOverlap(value=float(_ratio(shared, a, b)), chance=float(chance), p_value=float(tail))


def mean_overlap(
    sets: Sequence[Collection[Hashable]], *, of: int, seed: int = 1, draws: int = DRAWS
) -> MeanOverlap:
    """The mean overlap of all pairs of sets, tested against independent random sets.

    Pairs share sets, so they are not tested as if they were independent: for more than two sets,
    the p-value is the share of random draws of all sets, with their sizes, whose mean overlap is at
    least the observed one, the observation counted among the draws. For two sets it is exact.

    Args:
        sets: two or more.
        of: the number of elements that they are chosen from.
        seed, draws: of the random sets.
    """
    pairs = [overlap_of(first, second, of=of) for first, second in combinations(sets, 2)]
    value = fmean(pair.value for pair in pairs)
    p_value = pairs[0].p_value
    if len(sets) > 2:
        random = _random_means([len(each) for each in sets], of=of, seed=seed, draws=draws)
        p_value = (1 + int((random >= value - _ROUNDING).sum())) / (draws + 1)
    return MeanOverlap(
        value=value,
        chance=fmean(pair.chance for pair in pairs),
        p_value=p_value,
        sets=len(sets),
        pairs=len(pairs),
    )


def _shared(n: int, a: int, b: int) -> Iterator[tuple[int, Fraction]]:
    """The possible numbers of shared elements of random sets, with their probabilities."""
    for number in range(max(0, a + b - n), min(a, b) + 1):
        yield number, Fraction(comb(a, number) * comb(n - a, b - number), comb(n, b))


def _ratio(shared: int, a: int, b: int) -> Fraction:
    """Intersection over union of sets of ``a`` and ``b`` elements."""
    union = a + b - shared
    return Fraction(shared, union) if union else Fraction(1)


def _random_means(
    sizes: Sequence[int], *, of: int, seed: int, draws: int
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """The mean overlap of random sets of these sizes in each draw, (draws,)."""
    random = np.random.default_rng(seed)
    lengths = np.array(sizes, dtype=np.float64)
    first, second = np.triu_indices(len(sizes), k=1)
    means = []
    for start in range(0, draws, _AT_ONCE):
        number = min(_AT_ONCE, draws - start)
        ranks = random.random((number, len(sizes), of)).argsort(axis=-1).argsort(axis=-1)
        chosen = (ranks < lengths[:, None]).astype(np.float64)  # draws x sets x elements
        shared = (chosen @ chosen.transpose(0, 2, 1))[:, first, second]  # draws x pairs
        union = lengths[first] + lengths[second] - shared
        ratios = np.divide(shared, union, out=np.ones_like(shared), where=union > 0)
        means.append(ratios.mean(axis=1))
    return np.concatenate(means)
