"""Tensors of a search's steps in memory that is used again."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_KEY = "recycler"
_KEPT = 3
_use_count = getattr(torch._C, "_storage_Use_Count", None)


class Recycler:
    """Memory of one search, for tensors that are made anew at each of its steps.

    The scores of all words for all hypotheses are megabytes, and so are keys and values. What is
    freed goes back to the operating system, and to get it from there again costs more than the
    computation that fills it.
    """

    def __init__(self) -> None:
        self._lent: list[Tensor] = []
        self._spare: list[Tensor] = []

    @classmethod
    def of(cls, incremental_state: dict[str, Any]) -> Recycler:
        """The one of a search, which is made at its first step."""
        recycler: Recycler = incremental_state.setdefault(_KEY, {_KEY: cls()})[_KEY]
        return recycler

    @staticmethod
    def known(incremental_state: dict[str, Any] | None) -> bool:
        """Whether the search has begun."""
        return incremental_state is not None and _KEY in incremental_state

    def lend(self, shape: torch.Size, *, device: torch.device) -> Tensor:
        """Float32 with anything in it, in memory that nobody holds a tensor in any more."""
        size = shape.numel()
        for buffer in self._lent:
            if buffer.numel() >= size and buffer.device == device and not _in_use(buffer):
                return buffer[:size].view(shape)
        buffer = torch.empty(size, device=device, dtype=torch.float32)
        if _use_count is not None:
            self._lent = [*self._lent[1 - _KEPT :], buffer]
        return buffer.view(shape)

    def take(self, shape: torch.Size, *, like: Tensor) -> Tensor:
        """A tensor with anything in it, in memory that was given back if there is any."""
        size = shape.numel()
        fitting = [
            i
            for i, buffer in enumerate(self._spare)
            if buffer.numel() >= size
            and buffer.dtype == like.dtype
            and buffer.device == like.device
        ]
        if not fitting:
            return like.new_empty(shape)
        smallest = min(fitting, key=lambda i: self._spare[i].numel())
        return self._spare.pop(smallest)[:size].view(shape)

    def give_back(self, tensor: Tensor) -> None:
        """Take back what ``take`` returned; no one may use it any more."""
        size = tensor.untyped_storage().nbytes() // tensor.itemsize
        self._spare.append(tensor.as_strided((size,), (1,), 0))


def _in_use(buffer: Tensor) -> bool:
    storage = buffer.untyped_storage()
    # Two are the buffer's own: of the tensor and of the name here.
    return bool(_use_count(storage._cdata) > 2)  # type: ignore[misc]
