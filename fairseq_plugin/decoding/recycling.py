"""Reuse of memory between the steps of a search."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_KEY = "recycler"
_KEPT = 3
_use_count = getattr(torch._C, "_storage_Use_Count", None)


class Recycler:
    """Memory of one search for tensors that are created at each of its steps.

    The scores of all words for all hypotheses take megabytes, and so do keys and values. Memory
    that is freed goes back to the operating system, and requesting it again takes longer than the
    computation that fills it.
    """

    def __init__(self) -> None:
        self._lent: list[Tensor] = []
        self._spare: list[Tensor] = []

    @classmethod
    def of(cls, incremental_state: dict[str, Any]) -> Recycler:
        """Return the recycler of a search; it is created in the first step."""
        recycler: Recycler = incremental_state.setdefault(_KEY, {_KEY: cls()})[_KEY]
        return recycler

    @staticmethod
    def known(incremental_state: dict[str, Any] | None) -> bool:
        """Check whether the search has a recycler, which means that it has begun."""
        return incremental_state is not None and _KEY in incremental_state

    def lend(self, shape: torch.Size, *, device: torch.device) -> Tensor:
        """Return an uninitialised float32 tensor, in lent memory that is no longer used if any."""
        size = shape.numel()
        for buffer in self._lent:
            if buffer.numel() >= size and buffer.device == device and not _in_use(buffer):
                return buffer[:size].view(shape)
        buffer = torch.empty(size, device=device, dtype=torch.float32)
        if _use_count is not None:
            self._lent = [*self._lent[1 - _KEPT :], buffer]
        return buffer.view(shape)

    def take(self, shape: torch.Size, *, like: Tensor) -> Tensor:
        """Return an uninitialised tensor, in memory that was given back if possible."""
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
        """Return the memory of a tensor from ``take``; the tensor must not be used afterwards."""
        size = tensor.untyped_storage().nbytes() // tensor.itemsize
        self._spare.append(tensor.as_strided((size,), (1,), 0))


def _in_use(buffer: Tensor) -> bool:
    storage = buffer.untyped_storage()
    # Two references belong to the buffer: its tensor and the local name ``storage``.
    return bool(_use_count(storage._cdata) > 2)  # type: ignore[misc]
