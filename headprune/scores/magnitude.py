"""A score without data: the size of a unit's weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headprune.model import Part
from headprune.scores.head_scores import Values
from headprune.scores.registry import Computed, Scoring
from headprune.scores.units import Parts, parts_of
from headprune.scores.values import as_values


def magnitude(parts: Parts) -> Values:
    """The l2 norm of all weights of each unit.

    Of a head: its rows of W_q, W_k, W_v and its columns of W_o; of a neuron: its row of W_1 and its
    column of W_2; of a layer: all its parameters.
    """
    norms = {name: [_norms(part) for part in layers] for name, layers in parts.items()}
    return as_values(parts, norms)


def compute(scoring: Scoring, names: Sequence[str]) -> Mapping[str, Computed]:
    """The score ``magnitude``."""
    values = magnitude(parts_of(scoring.model, scoring.components))
    return {name: Computed(values=values) for name in names}


@torch.no_grad()
def _norms(part: Part) -> Tensor:
    """(U',)"""
    squares = torch.zeros(len(part.present))
    if len(squares):
        for weights in part.weights_by_unit():  # U' x any
            squares = squares + weights.float().flatten(1).square().sum(1).cpu()
    return squares.sqrt()
