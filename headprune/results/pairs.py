"""Differences to the models of the same seeds."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True, kw_only=True)
class MeanPaired:
    """A mean difference.

    Attributes:
        mean: the mean of the differences of the pairs; without any, the difference of the means.
        pairs: the number of pairs of models of one seed.
    """

    mean: float
    pairs: int


def paired_differences(values: Mapping[int, float], controls: Mapping[int, float]) -> list[float]:
    """The difference to the control of the same seed, for each seed that has both."""
    return [value - controls[seed] for seed, value in values.items() if seed in controls]


def mean_paired(values: Mapping[int, float], controls: Mapping[int, float]) -> MeanPaired:
    """The mean difference over the seeds that both have.

    Args:
        values: the values of the models by seed.
        controls: those of the models that they are compared with.

    >>> mean_paired({1: 5.0, 2: 9.0}, {2: 8.0, 3: 0.0})
    MeanPaired(mean=1.0, pairs=1)
    """
    pairs = [seed for seed in values if seed in controls]
    if not pairs:
        return MeanPaired(mean=fmean(values.values()) - fmean(controls.values()), pairs=0)
    mean, of_controls = (fmean(each[seed] for seed in pairs) for each in (values, controls))
    return MeanPaired(mean=mean - of_controls, pairs=len(pairs))
