"""Cut units out of projections, and the shapes of these.

Projections are ``nn.Linear`` modules, or ``Conv1D`` modules of transformers (GPT-2), which store
the transpose of the matrix: C_in x C_out.

A copy of this file is stored with each pruned model for ``modeling_headpruned``, so it must not
import headprune.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

PLAIN = (nn.Linear, Conv1D)
"""The classes of projections whose weights can be cut."""


def rows_of(linear: nn.Module) -> Tensor:
    """A projection's matrix with one row for each output, C_out x C_in."""
    weight: Tensor = linear.weight  # type: ignore[assignment]
    return in_rows(linear, weight)


def in_rows(linear: nn.Module, weight: Tensor) -> Tensor:
    """A tensor laid out as a projection's weight, such as its gradient, as C_out x C_in."""
    return weight.T if isinstance(linear, Conv1D) else weight


def stored(linear: nn.Module, rows: Tensor) -> Tensor:
    """The inverse of ``rows_of``: a matrix C_out x C_in as the projection stores it."""
    return rows.T if is_transposed(linear) else rows


def is_transposed(linear: nn.Module) -> bool:
    """Check if a projection is a ``Conv1D``, or was one before all its weights were cut."""
    return isinstance(linear, Conv1D) or getattr(linear, "was_transposed", False)


def cut_units(
    inputs: Iterable[nn.Module],
    outputs: Iterable[nn.Module],
    *,
    places: Sequence[int],
    units: int,
    blocks: int,
) -> None:
    """Keep only the weights of some units of a sub-layer, in place.

    A unit owns equally many consecutive rows in each block of an input projection, and consecutive
    columns of an output projection. Their number may differ between projections.

    Args:
        inputs: the projections whose rows belong to units.
        outputs: the projections whose columns belong to units.
        places: the units to keep, by their places among those that are present.
        units: the number of units that are present.
        blocks: the number of blocks in one of ``inputs``, one below the other.
    """
    linear: Any
    for linear in inputs:
        rows = _entries(rows_of(linear).size(0), places, units=units, blocks=blocks)
        _replace(linear, rows_of(linear), rows, dim=0)
        if linear.bias is not None:
            linear.bias = _parameter(linear.bias, linear.bias.detach(), rows, dim=0)
    for output in outputs:
        columns = _entries(rows_of(output).size(1), places, units=units, blocks=1)
        _replace(output, rows_of(output), columns, dim=1)


def _entries(size: int, places: Sequence[int], *, units: int, blocks: int) -> Tensor:
    if not size:  # all units are gone already
        return torch.empty(0, dtype=torch.long)
    if size % (units * blocks):
        raise ValueError(f"{size} entries do not divide into {blocks} x {units} units")
    entries = torch.arange(size).view(blocks, units, -1)
    return entries[:, torch.tensor(tuple(places), dtype=torch.long)].flatten()


def _replace(linear: Any, matrix: Tensor, index: Tensor, *, dim: int) -> None:
    part = stored(linear, matrix.detach().index_select(dim, index.to(matrix.device)))
    linear.weight = nn.Parameter(part.contiguous(), requires_grad=linear.weight.requires_grad)
    outputs, inputs = rows_of(linear).shape
    if isinstance(linear, Conv1D):
        linear.nf, linear.nx = outputs, inputs
    else:
        linear.out_features, linear.in_features = outputs, inputs


def _parameter(before: Any, tensor: Tensor, index: Tensor, *, dim: int) -> nn.Parameter:
    part = tensor.index_select(dim, index.to(tensor.device))
    return nn.Parameter(part, requires_grad=before.requires_grad)
