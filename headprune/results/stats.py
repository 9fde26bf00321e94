"""Statistics of repeated measurements: the spread over seeds, and tests between two models."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from headprune.errors import DataError
from headprune.results.bleu_counts import bleu_counts, bleu_of, many_bleu
from headprune.results.bleu_tokenizers import DEFAULT, bleu_metric
from headprune.results.swaps import TRIALS, swap_p_value


@dataclass(frozen=True)
class Spread:
    """Mean and sample standard deviation (n - 1 in the denominator) of `n` values.

    `sd` is None where there is one value: a spread of zero would be claimed otherwise.
    """

    mean: float
    sd: float | None
    n: int

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.sd is None else f"{self.mean:.2f} ± {self.sd:.2f}"


def spread(values: Sequence[float]) -> Spread:
    """Mean and sample standard deviation.

    Raises:
        DataError: no value, or one that is not finite.

    >>> print(spread([1.0, 2.0, 3.0]))
    2.00 ± 1.00
    """
    if not values:
        raise DataError("no value to take the mean of")
    if not all(math.isfinite(value) for value in values):
        raise DataError(f"not all of {list(values)} are numbers")
    sd = statistics.stdev(values) if len(values) > 1 else None
    return Spread(mean=statistics.fmean(values), sd=sd, n=len(values))


@dataclass(frozen=True)
class PairedTest:
    """Outcome of paired approximate randomisation on BLEU.

    Attributes:
        base: the base's BLEU.
        scores: each system's BLEU.
        p_values: for each system, the probability of a difference in BLEU at least as large
            between it and the base if both translated equally well.
        signature: the test's trials and seed and sacreBLEU's signature of the metric.
    """

    base: float
    scores: tuple[float, ...]
    p_values: tuple[float, ...]
    signature: str


def paired_randomisation(
    base: Sequence[str],
    systems: Sequence[Sequence[str]],
    references: Sequence[str],
    *,
    trials: int = TRIALS,
    seed: int = 1,
    tokenizer: str = DEFAULT,
) -> PairedTest:
    """Test each system's BLEU against the base's on the same sentences (Riezler and Maxwell 2005).

    In each trial the two swap each translation with probability one half. The p-value is the
    share of trials, the observed outcome among them, whose difference is at least the observed
    one. (sacreBLEU's own `--paired-ar` counts only larger ones, and so calls a model significantly
    different from itself. Its bootstrap, `--paired-bs`, takes the absolute values of the resampled
    differences before it centres them, and so rejects true null hypotheses in about 10% of cases
    at a level of 5%.) It says whether two models differ on this test set, not whether models of
    other seeds would.

    Raises:
        DataError: the texts differ in their number of sentences, or are empty.
    """
    if any(len(text) != len(references) for text in (base, *systems)):
        raise DataError("translations and references differ in their number of sentences")
    if not references:
        raise DataError("no sentence to score")
    metric = bleu_metric(tokenizer)
    metric.corpus_score(base, [references])  # Its signature is not whole before.
    base_counts = bleu_counts(base, references, metric).astype(np.float64)  # N x 10
    base_sums = base_counts.sum(axis=0, keepdims=True)
    scores, p_values = [], []
    for system in systems:
        # Of each test, so that a p-value does not depend on the other systems.
        random = np.random.default_rng(seed)
        differences = bleu_counts(system, references, metric) - base_counts
        sums = base_sums, base_sums + differences.sum(axis=0)
        scores.append(bleu_of(sums[1][0]))
        p_values.append(
            swap_p_value(sums, differences[None], metric=many_bleu, trials=trials, random=random)
        )
    return PairedTest(
        base=bleu_of(base_sums[0]),
        scores=tuple(scores),
        p_values=tuple(p_values),
        signature=f"{metric.get_signature()}|ar:{trials}|seed:{seed}",
    )
