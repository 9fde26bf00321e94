"""Projection to the vocabulary in reused memory."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from fairseq_plugin.decoding.linear import bfloat16_weights, by_onednn, multiply, pad_rows
from fairseq_plugin.decoding.recycling import Recycler

_AT_ONCE = 2**17
"""Number of scores that are computed at a time: half a megabyte, which stays in a core's cache
until it is copied."""


def project(linear: nn.Module, x: Tensor, recycler: Recycler) -> Tensor:
    """Compute ``linear(x)``, ... x V, for a large vocabulary V.

    oneDNN cannot write into an existing tensor. It therefore computes some columns at a time, which
    are copied into memory of the previous step. Products in bfloat16 take half of the memory, and
    are copied as a whole.
    """
    halves = bfloat16_weights()
    if (
        not isinstance(linear, nn.Linear)
        or _has_hooks(linear)
        or (halves is None and not by_onednn(x, linear.weight))
    ):
        out: Tensor = linear(x)
        return out
    number = x.shape[:-1].numel()
    scores = recycler.lend(torch.Size((number, linear.out_features)), device=x.device)
    if halves is not None:
        scores.copy_(halves.multiply(x.flatten(0, -2), linear.weight, linear.bias))
        return scores.view(*x.shape[:-1], -1)
    rows = pad_rows(x.flatten(0, -2))  # rows x C
    step = max(1, _AT_ONCE // len(rows))
    for start in range(0, linear.out_features, step):
        columns = slice(start, start + step)
        bias = None if linear.bias is None else linear.bias[columns]
        scores[:, columns] = multiply(rows, linear.weight[columns], bias)[:number]
    return scores.view(*x.shape[:-1], -1)


def _has_hooks(module: nn.Module) -> bool:
    return bool(module._forward_hooks or module._forward_pre_hooks)
