"""Linear layers by the faster library, where no gradient is asked for on a CPU.

PyTorch multiplies float32 matrices on CPUs by MKL, which is made for Intel's processors and leaves
more than half of the speed of some others (AMD's with AVX-512) unused; oneDNN, that PyTorch also
comes with, does not. It takes the weights as they are: there is no second copy of them that could
grow old.
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
"""Of numbers; for fewer, calling oneDNN takes as long as MKL's computation."""


class InferenceLinear(nn.Linear, Scriptable):
    """nn.Linear in all but speed."""

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
    """Copies of weights in bfloat16, made when they are first multiplied by.

    Where oneDNN can, in the order that it reads them: processors with matrix units (AMX) multiply
    faster than they could put them in that order again at every step.
    """

    def __init__(self) -> None:
        self._copies: dict[Tensor, Tensor] = {}

    def multiply(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """x W^T + b in bfloat16: rows x C -> rows x D."""
        rows = pad_rows(x.bfloat16())
        half = None if bias is None else self._copy(bias)
        by = multiply if _multiplies_bfloat16(weight) else F.linear
        return by(rows, self._copy(weight), half)[: len(x)]

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
        and weight.numel()  # of layers without heads
        and torch.backends.mkldnn.enabled
        and torch.ops.mkldnn._is_mkldnn_bf16_supported()
    )


_bfloat16_weights: ContextVar[Bfloat16Weights | None] = ContextVar("weights", default=None)


def bfloat16_weights() -> Bfloat16Weights | None:
    """What to multiply by in place of weights; None outside of `linears_in_bfloat16`."""
    return None if torch.is_grad_enabled() else _bfloat16_weights.get()


@contextmanager
def linears_in_bfloat16(weights: Bfloat16Weights) -> Iterator[None]:
    """Let every InferenceLinear multiply in bfloat16, by these copies, unless for gradients."""
    token = _bfloat16_weights.set(weights)
    try:
        yield
    finally:
        _bfloat16_weights.reset(token)


def multiply(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x W^T + b by oneDNN: rows x C -> rows x D."""
    out: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return out


def pad_rows(x: Tensor) -> Tensor:
    """Rows x C with rows of zeros behind, so that few numbers of rows occur.

    oneDNN compiles a program for each size, which takes as long as to run it several times; and in
    a beam search the number of hypotheses changes whenever a sentence is finished.
    """
    rows = _rounded_up(len(x))
    return x if rows == len(x) else F.pad(x, (0, 0, 0, rows - len(x)))


def _rounded_up(rows: int) -> int:
    """At most an eighth more, but for few rows."""
    power: int = 1 << (rows - 1).bit_length()  # the next power of two
    step = min(power, max(8, power // 8))
    return -(-rows // step) * step


def speed_up_linears(model: nn.Module) -> None:
    """Make each nn.Linear in ``model`` an InferenceLinear.

    Its class is changed, not the module: parameters, their names and hooks stay.
    """
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = InferenceLinear


def by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether x W^T is for oneDNN."""
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
        # Exported programs are to consist of operators that other programs know.
        and not torch.jit.is_tracing()  # type: ignore[attr-defined]
        and not torch.compiler.is_compiling()
    )
