"""Sums for each head of a model, and where they go in the table of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headprune.scores.head_scores import Values
from headprune.scores.scored_model import Attention

Found = Mapping[str, Sequence[Attention]]

Sums = dict[str, list[Tensor]]
"""For each component, for each layer, a number (H',) for each head that has weights."""


def no_sums(found: Found) -> Sums:
    """Zeros to add to."""
    return {
        name: [torch.zeros(len(attention.present), dtype=torch.float64) for attention in layers]
        for name, layers in found.items()
    }


def means(found: Found, sums: Sums, *, counted: Mapping[str, int]) -> Values:
    """The sums, each divided by what was counted of its component."""
    divided = {
        name: [total / max(counted[name], 1) for total in layers] for name, layers in sums.items()
    }
    return as_values({name: found[name] for name in sums}, divided)


def as_values(found: Found, numbers: Mapping[str, Sequence[Tensor]]) -> Values:
    """For each component and layer numbers (H',) of the heads that have weights, put in place."""
    values: dict[str, list[list[float | None]]] = {}
    for name, layers in found.items():
        values[name] = []
        for attention, row in zip(layers, numbers[name], strict=True):
            by_head = dict(zip(attention.present, row.tolist(), strict=True))
            values[name].append(
                [
                    by_head[head] if head in attention.kept else None
                    for head in range(attention.heads)
                ]
            )
    return values
