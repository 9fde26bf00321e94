"""A score without data: the size of a head's weights."""

from __future__ import annotations

import torch
from torch import Tensor

from headprune.scores.head_scores import Values
from headprune.scores.scored_model import Attention
from headprune.scores.values import Found, as_values


def magnitude(found: Found) -> Values:
    """For each head the l2 norm of all its weights: rows of W_q, W_k, W_v, columns of W_o."""
    return as_values(
        found, {name: [_norms(attention) for attention in layers] for name, layers in found.items()}
    )


@torch.no_grad()
def _norms(attention: Attention) -> Tensor:
    """(H',)"""
    squares = torch.zeros(len(attention.present))
    if len(squares):
        for weights in attention.weights_by_head():  # H' x any
            squares = squares + weights.float().flatten(1).square().sum(1).cpu()
    return squares.sqrt()
