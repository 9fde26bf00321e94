"""Linear layers that use the faster library for inference on a CPU.

PyTorch multiplies float32 matrices on CPUs with MKL, which is optimised for Intel processors and
reaches less than half of the speed of some others (AMD's with AVX-512). oneDNN, which PyTorch
includes too, reaches it. It reads the original weights, so no second copy has to be kept up to
date.
"""

from __future__ import annotations

import platform
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fairseq_plugin.scripting import Scriptable

_AVAILABLE = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


def _is_intel() -> bool:
    try:
        processor = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        processor = platform.processor()
    return "GenuineIntel" in processor


_MKL_IS_FASTER = _is_intel()

_LEAST_PRODUCTS = 2**21
"""Number of multiplications below which calling oneDNN takes as long as MKL's computation."""


class InferenceLinear(nn.Linear, Scriptable):
    """Faster replacement of nn.Linear with the same results."""

    stock_class = nn.Linear

    def forward(self, input: Tensor) -> Tensor:
        """... x input features -> ... x output features."""
        if (halves := bfloat16_weights()) is not None:
            return self._in_bfloat16(input, halves)
        if by_onednn(input, self.weight):
            rows = pad_rows(input.flatten(0, -2))
            out = multiply(rows, self.weight, self.bias)[: input.shape[:-1].numel()]
            return out.view(*input.shape[:-1], -1)
        return super().forward(input)

    def _in_bfloat16(self, input: Tensor, halves: Bfloat16Weights) -> Tensor:
        out = halves.multiply(input.flatten(0, -2), self.weight, self.bias)
        return out.type_as(input).view(*input.shape[:-1], -1)


class Bfloat16Weights:
    """Copies of weights in bfloat16, created when they are first used.

    Where oneDNN supports it, copies are stored in its memory layout. Converting them at every step
    would take longer than the multiplication on processors with matrix units (AMX).
    """

    def __init__(self) -> None:
        self._copies: dict[Tensor, Tensor] = {}

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Compute x W^T + b in bfloat16: rows x C -> rows x D."""
        rows = pad_rows(x.bfloat16())
        half = None if bias is None else self._copy(bias)
        linear = multiply if _multiplies_bfloat16(weight) else F.linear
        return linear(rows, self._copy(weight), half)[: len(x)]

    def _copy(self, weight: Tensor) -> Tensor:
        if weight not in self._copies:  # by identity
            copy = weight.detach().bfloat16()
            if weight.dim() == 2 and _multiplies_bfloat16(weight):
                copy = torch.ops.mkldnn._reorder_linear_weight(copy)
            self._copies[weight] = copy
        return self._copies[weight]


def _multiplies_bfloat16(weight: Tensor) -> bool:
    return bool(
        _AVAILABLE
        and weight.device.type == "cpu"
        and weight.numel()  # 0 in layers without heads
        and torch.backends.mkldnn.enabled
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


_bfloat16_weights: ContextVar[Bfloat16Weights | None] = ContextVar("weights", default=None)


def bfloat16_weights() -> Bfloat16Weights | None:
    """Return the bfloat16 copies to use; None outside of `linears_in_bfloat16`."""
    return None if torch.is_grad_enabled() else _bfloat16_weights.get()


@contextmanager
def linears_in_bfloat16(weights: Bfloat16Weights) -> Iterator[None]:
    """Let every InferenceLinear use these bfloat16 copies, unless gradients are computed."""
    token = _bfloat16_weights.set(weights)
    try:
        yield
    finally:
        _bfloat16_weights.reset(token)


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """Compute x W^T + b with oneDNN: rows x C -> rows x D."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def pad_rows(x: Tensor) -> Tensor:
    """Append rows of zeros to ``x``, rows x C, so that few different numbers of rows occur.

    oneDNN compiles a kernel for each size, which takes as long as running it several times, and the
    number of hypotheses in a beam search changes whenever a sentence is finished.
    """
    rows = _rounded_up(len(x))
    return x if rows == len(x) else F.pad(x, (0, 0, 0, rows - len(x)))


def _rounded_up(rows: int) -> int:
    """Round up by at most an eighth, except for small numbers."""
    power: int = 1 << (rows - 1).bit_length()  # the next power of two
    step = min(power, max(8, power // 8))
    return -(-rows // step) * step


def speed_up_linears(model: nn.Module) -> None:
    """Make each nn.Linear in ``model`` an InferenceLinear.

    Only the class of the module changes: parameters, their names and hooks stay.
    """
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = InferenceLinear


def by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Check whether oneDNN can compute x W^T, and is expected to be faster."""
    return bool(
        not _MKL_IS_FASTER
        and x.numel() * weight.size(0) >= _LEAST_PRODUCTS
        and _AVAILABLE
        and not torch.is_grad_enabled()
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and x.dim() > 1
        and torch.backends.mkldnn.enabled
        and not torch.is_autocast_enabled("cpu")
        # Exported programs have to consist of operators that other programs know.
        and not torch.jit.is_tracing()  # type: ignore[attr-defined]
        and not torch.compiler.is_compiling()
    )
