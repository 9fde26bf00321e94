"""The empirical Fisher information of gates, as one matrix for each sub-layer.

With xi the gates of a sub-layer's units, all 1, and L_n the loss of example n,

    F = 1/N sum over n of (d L_n / d xi) (d L_n / d xi)^T

(Kwon et al. 2022, section 4): the blocks on the diagonal of the matrix of all gates. Where the
units of a set P go, the loss rises by about 1/2 sum over i, j in P of F_ij. The score ``fisher`` is
the diagonal.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from headprune.model import Batches, RunnableModel
from headprune.scores.gradients import Place, gate_gradients
from headprune.scores.units import parts_of


def fisher_blocks(
    scored: RunnableModel, batches: Batches, *, components: Sequence[str]
) -> dict[Place, Tensor]:
    """Compute F of each sub-layer in one pass; its memory does not depend on the number of batches.

    Args:
        scored: the model; it is evaluated without dropout, and left as it was.
        batches: with labels.
        components: those of heads or neurons to compute F of.

    Returns:
        For each component and layer with units, U' x U' for the units present, in float32: F of
        3072 neurons takes 38 MB.

    Raises:
        UsageError: a model without outputs for labels, or without such units.
        DataError: no data, no labels in them, or a gradient that is not finite.
    """
    sums: dict[Place, Tensor] = {}
    examples = 0.0
    for _, weights, dots in gate_gradients(scored, batches, parts_of(scored, components)):
        for place, dot in dots:  # B x T x U'
            by_example = (weights.sqrt()[:, None] * dot.sum(1)).float()  # B x U'
            if place not in sums:
                sums[place] = torch.zeros(by_example.size(1), by_example.size(1))
            sums[place].addmm_(by_example.T, by_example)
        examples += float(weights.sum())
    return {place: total / examples for place, total in sums.items()}
