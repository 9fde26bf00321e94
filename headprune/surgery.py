"""Cutting heads out of an attention's weight matrices: the one place where it happens.

An attention of H heads of width d has W_q, W_k, W_v of shape (H*d, C), their biases of shape
(H*d,), and W_o of shape (C, H*d). Head h owns the rows (of W_o: the columns) h*d to (h+1)*d - 1,
so leaving heads out changes no other head's output, and equals multiplying the outputs of the
heads left out by 0 (Budhraja et al. 2020, equation 2).
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

ROWS = 0
"""The dimension of heads in W_q, W_k, W_v and their biases."""

COLUMNS = 1
"""The dimension of heads in W_o."""


def cut(tensor: Tensor, kept: Sequence[int], *, heads: int, dim: int) -> Tensor:
    """The part of ``tensor`` that belongs to the ``kept`` of its ``heads`` heads.

    Args:
        tensor: a projection's weight or bias with ``heads`` * d entries along ``dim``.
        kept: positions of heads among ``heads``, in the order in which they shall stand.
        heads: how many heads the tensor has now.
        dim: ``ROWS`` or ``COLUMNS``.

    Returns:
        A contiguous copy with len(kept) * d entries along ``dim``; differentiable.
    """
    index = _index(kept, heads=heads, size=tensor.size(dim)).to(tensor.device)
    return tensor.index_select(dim, index)


def uncut(tensor: Tensor, kept: Sequence[int], *, heads: int, head_dim: int, dim: int) -> Tensor:
    """The inverse of ``cut``: full size again, zeros where heads are missing.

    An attention with zeros in its missing heads' rows and columns gives the outputs of the one
    that was cut: their columns of W_o are zero.
    """
    size = list(tensor.shape)
    size[dim] = heads * head_dim
    index = _index(kept, heads=heads, size=heads * head_dim).to(tensor.device)
    return tensor.new_zeros(size).index_copy_(dim, index, tensor)


def _index(kept: Sequence[int], *, heads: int, size: int) -> Tensor:
    """The len(kept) * d entries of the kept heads among ``size`` = heads * d."""
    if size % heads:
        raise ValueError(f"{size} entries do not divide into {heads} heads")
    entries = torch.arange(size).view(heads, size // heads)  # H x d
    return entries[torch.tensor(tuple(kept), dtype=torch.long)].reshape(-1)
