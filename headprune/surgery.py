"""Cut units out of weight matrices.

An attention of H heads of width d has W_q, W_k, W_v of shape (H*d, C), their biases of shape
(H*d,), and W_o of shape (C, H*d). Head h owns the rows (of W_o: the columns) h*d to (h+1)*d - 1,
so removing heads changes no other head's output, and equals multiplying the outputs of the
removed heads by 0 (Budhraja et al. 2020, equation 2). A feed-forward neuron owns in the same way
one row of W_1 and one column of W_2: it is a unit of size 1.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ROWS = 0
"""The dimension of units in W_q, W_k, W_v and W_1, and in their biases."""

COLUMNS = 1
"""The dimension of units in W_o and W_2."""


def cut(tensor: Tensor, kept: Sequence[int], *, units: int, dim: int) -> Tensor:
    """The part of ``tensor`` that belongs to the ``kept`` of its ``units`` units.

    Args:
        tensor: a projection's weight or bias with ``units`` * d entries along ``dim``.
        kept: positions of units among ``units``, in the order of the result.
        units: the current number of units in the tensor.
        dim: ``ROWS`` or ``COLUMNS``.

    Returns:
        A contiguous copy with len(kept) * d entries along ``dim``; differentiable.
    """
    index = _index(kept, units=units, size=tensor.size(dim)).to(tensor.device)
    return tensor.index_select(dim, index)


def uncut(tensor: Tensor, kept: Sequence[int], *, units: int, unit_size: int, dim: int) -> Tensor:
    """The inverse of ``cut``: full size again, with zeros in place of the missing units.

    A sub-layer with such zeros gives the outputs of the one that was cut: the columns of the
    missing units in W_o (W_2) are zero.
    """
    size = list(tensor.shape)
    size[dim] = units * unit_size
    index = _index(kept, units=units, size=units * unit_size).to(tensor.device)
    return tensor.new_zeros(size).index_copy_(dim, index, tensor)


def _index(kept: Sequence[int], *, units: int, size: int) -> Tensor:
    """The len(kept) * d entries of the kept units among ``size`` = units * d."""
    if size % units:
        raise ValueError(f"{size} entries do not divide into {units} units")
    entries = torch.arange(size).view(units, size // units)  # N x d
    return entries[torch.tensor(tuple(kept), dtype=torch.long)].reshape(-1)
