"""Approximate randomisation: the outputs of two systems are swapped at random, by example."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

Counts = npt.NDArray[np.float64]
"""The share of each example in the metric of one system: N x K."""

Metric = Callable[[Counts], npt.NDArray[np.float64]]
"""The metric of each row of sums over the examples, R x K -> R."""

TRIALS = 10_000
_TRIALS_AT_ONCE = 500
_ROUNDING = 1e-9


def swap_p_value(
    sums: tuple[Counts, Counts],
    differences: Counts,
    *,
    metric: Metric,
    trials: int,
    random: np.random.Generator,
) -> float:
    """The share of trials whose difference is at least as large as the observed one.

    In each trial the two systems swap each example's outputs with probability one half. The
    observed outcome counts as one of the trials. (Riezler and Maxwell 2005)

    Args:
        sums: the counts of each system added up over all examples, S x K each, for S pairs of
            models; the metric of a system is the mean over its models.
        differences: the counts of the second system less those of the first, S x M x K, of the M
            examples that are swapped. All S pairs swap an example together.
    """
    one, other = (each[:, None] for each in sums)  # S x 1 x K
    observed = abs(float((_mean(one, metric) - _mean(other, metric))[0]))
    as_large = 0
    for done in range(0, trials, _TRIALS_AT_ONCE):
        size = min(_TRIALS_AT_ONCE, trials - done)
        swapped = (random.random((size, differences.shape[1])) < 0.5).astype(np.float64)  # R x M
        moved = swapped @ differences  # S x R x K
        trial_differences = _mean(one + moved, metric) - _mean(other - moved, metric)
        as_large += int((np.abs(trial_differences) >= observed - _ROUNDING).sum())
    return (as_large + 1) / (trials + 1)


def _mean(sums: Counts, metric: Metric) -> npt.NDArray[np.float64]:
    """The mean of the metric over models, S x R x K -> R."""
    means: npt.NDArray[np.float64] = np.mean([metric(rows) for rows in sums], axis=0)
    return means
