"""Sums for each unit of a model, and their places in the table of scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from headprune.scores.head_scores import Values
from headprune.scores.units import Parts

Sums = dict[str, list[Tensor]]
"""For each component, for each layer, a number (U',) for each unit that has weights."""


def no_sums(parts: Parts) -> Sums:
    """Zeros to add to."""
    return {
        name: [torch.zeros(len(part.present), dtype=torch.float64) for part in layers]
        for name, layers in parts.items()
    }


def means(parts: Parts, sums: Sums, *, counted: Mapping[str, float]) -> Values:
    """The sums, each divided by the number counted for its component."""
    divided = {
        name: [total / (counted[name] or 1) for total in layers] for name, layers in sums.items()
    }
    return as_values({name: parts[name] for name in sums}, divided)


def as_values(parts: Parts, numbers: Mapping[str, Sequence[Tensor]]) -> Values:
    """Arrange numbers (U',) of the units that have weights by the units of the unpruned model.

    Pruned units get None.
    """
    values: dict[str, list[list[float | None]]] = {}
    for name, layers in parts.items():
        values[name] = []
        for part, row in zip(layers, numbers[name], strict=True):
            by_unit = dict(zip(part.present, row.tolist(), strict=True))
            kept = frozenset(part.kept)
            values[name].append(
                [by_unit[unit] if unit in kept else None for unit in range(part.units)]
            )
    return values
