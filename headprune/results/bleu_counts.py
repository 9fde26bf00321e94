"""BLEU from counts by sentence, which tests add up in many ways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from sacrebleu.metrics.bleu import BLEU


def bleu_counts(
    text: Sequence[str], references: Sequence[str], metric: BLEU
) -> npt.NDArray[np.int64]:
    """Counts for BLEU by sentence, N x 10.

    They are the matching n-grams and all n-grams of lengths 1 to 4, and both lengths.
    """
    rows = []
    for line, reference in zip(text, references, strict=True):
        score = metric.corpus_score([line], [[reference]])
        rows.append([*score.counts, *score.totals, score.sys_len, score.ref_len])
    return np.array(rows, dtype=np.int64).reshape(len(rows), 10)


def many_bleu(counts: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Corpus BLEU of each row of summed counts, R x 10, as ``bleu_of`` gives it for one.

    The rows that lack matches of some length, which sacreBLEU smooths, are left to it.
    """
    matches, totals = counts[:, :4], counts[:, 4:8]
    length, reference_length = counts[:, 8], counts[:, 9]
    smoothed = (matches <= 0).any(axis=1) | (totals <= 0).any(axis=1) | (length <= 0)
    scores = np.empty(len(counts))
    plain = ~smoothed
    precisions = np.log(matches[plain] / totals[plain]).mean(axis=1)
    shortness = np.minimum(0.0, 1 - reference_length[plain] / length[plain])
    scores[plain] = 100 * np.exp(precisions + shortness)
    scores[smoothed] = [bleu_of(row) for row in counts[smoothed]]
    return scores


def bleu_of(counts: npt.NDArray[np.int64] | npt.NDArray[np.float64]) -> float:
    """Corpus BLEU of summed counts, as sacreBLEU computes it by default."""
    from sacrebleu.metrics.bleu import BLEU

    numbers = [int(number) for number in counts]
    score = BLEU.compute_bleu(
        numbers[:4], numbers[4:8], numbers[8], numbers[9], smooth_method="exp"
    )
    return float(score.score)
