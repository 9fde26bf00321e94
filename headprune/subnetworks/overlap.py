"""Overlap of sets of survivors, beside its chance level.

The overlap of two sets is their intersection over their union. By chance, independent sets of a
and b of n elements share k with the hypergeometric probability C(a, k) C(n-a, b-k) / C(n, b).
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from itertools import combinations
from statistics import fmean
from typing import Any

import numpy as np
from scipy.stats import hypergeom

DRAWS = 10_000
_AT_ONCE = 1_000
_ROUNDING = 1e-9

_Numbers = np.ndarray[tuple[int, ...], np.dtype[Any]]


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
    by_chance = hypergeom(of, a, b)
    numbers = np.arange(max(0, a + b - of), min(a, b) + 1)  # that two random sets can share
    return PairOverlap(
        value=float(_ratios(np.array(shared), a + b)),
        chance=float(by_chance.pmf(numbers) @ _ratios(numbers, a + b)),
        p_value=float(by_chance.sf(shared - 1)),
    )


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


def p_value_across(
    first: Sequence[Collection[Hashable]],
    second: Sequence[Collection[Hashable]],
    *,
    elements: Sequence[Hashable],
    seed: int = 1,
    draws: int = DRAWS,
) -> float:
    """The p-value of the mean overlap of the sets of one task with those of another.

    It is the share of draws whose mean overlap is at least the observed one, the observation
    counted among the draws. A draw permutes the elements of the first task, in all its sets alike:
    so the sets of each task keep their sizes and their overlap with each other.

    Args:
        first, second: the sets of the two tasks.
        elements: what they are chosen from.
        seed, draws: of the permutations.
    """
    random = np.random.default_rng(seed)
    one, other = (
        np.array([[element in each for element in elements] for each in sets], dtype=np.float64)
        for sets in (first, second)
    )  # sets x elements
    sizes = one.sum(1)[:, None] + other.sum(1)  # sets x sets

    observed = _ratios(one @ other.T, sizes).mean()
    reached = 0
    for start in range(0, draws, _AT_ONCE):
        number = min(_AT_ONCE, draws - start)
        order = random.random((number, len(elements))).argsort(axis=-1)
        permuted = one[:, order].transpose(1, 0, 2)  # draws x sets x elements
        means = _ratios(permuted @ other.T, sizes).mean(axis=(1, 2))
        reached += int((means >= observed - _ROUNDING).sum())
    return (1 + reached) / (draws + 1)


def _ratios(shared: _Numbers, sizes: _Numbers | int) -> _Numbers:
    """Intersection over union of pairs of sets; 1 for two empty sets.

    Args:
        shared: the number of elements that the sets of each pair share.
        sizes: the sum of the sizes of the sets of each pair.
    """
    union = sizes - shared
    ratios: _Numbers = np.divide(shared, union, out=np.ones(shared.shape), where=union > 0)
    return ratios


def _random_means(sizes: Sequence[int], *, of: int, seed: int, draws: int) -> _Numbers:
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
        means.append(_ratios(shared, lengths[first] + lengths[second]).mean(axis=1))
    return np.concatenate(means)
