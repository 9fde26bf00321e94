"""A test between two methods, each with models of several seeds, on the same examples."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headprune.errors import DataError
from headprune.results.swaps import TRIALS, Counts, Metric, swap_p_value


@dataclass(frozen=True, kw_only=True)
class JointTest:
    """The outcome of ``joint_randomisation``.

    Attributes:
        difference: the mean metric of the first models, less that of the others.
        examples: the number of examples.
        p_value: the probability of a difference at least as large if, for every example, it were
            chance which of the two methods gave which outputs.
    """

    difference: float
    p_value: float
    examples: int


def joint_randomisation(
    one: Sequence[Counts],
    other: Sequence[Counts],
    *,
    metric: Metric,
    trials: int = TRIALS,
    seed: int = 1,
) -> JointTest:
    """Paired approximate randomisation (Riezler and Maxwell 2005) over several pairs of models.

    In each trial the methods swap the outputs of each example with probability one half, those of
    all seeds together: the outputs of one method for an example resemble each other, so that they
    are no independent observations. The statistic is the difference of the mean metrics. With one
    seed and the number of correct examples as the metric it approximates McNemar's exact test.

    The test is about other examples for these models, not about models of other seeds.

    Args:
        one, other: the counts of the models of each method. A method with a single model, which
            does not depend on seeds, has one; otherwise both have as many.
        metric: the metric of each row of sums over the examples, R x K -> R.

    Raises:
        DataError: different numbers of models or examples, or none.
    """
    models = max(len(one), len(other))
    if not one or not other or {len(one), len(other)} - {1, models}:
        raise DataError(f"{len(one)} and {len(other)} models cannot be paired")
    if len({len(counts) for counts in (*one, *other)}) > 1:
        raise DataError("the models were measured on different numbers of examples")
    # S x N x K; a single model is paired with each of the other method.
    first = np.stack([*one] * (models // len(one)))
    difference = np.stack([*other] * (models // len(other))) - first
    examples = first.shape[1]
    if not examples:
        raise DataError("no example to compare outputs on")
    sums = first.sum(axis=1), (first + difference).sum(axis=1)  # S x K
    # Where both have the same outputs, a swap changes nothing.
    swappable = difference[:, difference.any(axis=(0, 2))]  # S x M x K
    p_value = swap_p_value(
        sums, swappable, metric=metric, trials=trials, random=np.random.default_rng(seed)
    )
    one_mean, other_mean = (float(metric(each).mean()) for each in sums)
    return JointTest(difference=one_mean - other_mean, p_value=p_value, examples=examples)
