"""A score without data: the size of a head's weights."""

from __future__ import annotations

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headprune.scores.head_scores import Values
from hf_plugin.families import Attention, attentions
from hf_plugin.scores.values import as_values


def magnitude(model: PreTrainedModel) -> Values:
    """For each head the l2 norm of all its weights: rows of W_q, W_k, W_v, columns of W_o.

    Raises:
        UsageError: a model that cannot be pruned.
    """
    found = attentions(model)
    return as_values(
        found, {name: [_norms(attention) for attention in layers] for name, layers in found.items()}
    )


@torch.no_grad()
def _norms(attention: Attention) -> Tensor:
    """(H',)"""
    heads = len(attention.present)
    if not heads:
        return torch.zeros(0)
    squares: Tensor = attention.output.weight.unflatten(1, (heads, -1)).square().sum((0, 2))
    for linear in attention.inputs:
        for block in linear.weight.chunk(attention.names.blocks):
            squares = squares + block.unflatten(0, (heads, -1)).square().sum((1, 2))
    return squares.sqrt()
