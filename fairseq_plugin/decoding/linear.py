"""Linear layers by oneDNN, where no gradient is asked for on a CPU.

PyTorch multiplies float32 matrices on CPUs by MKL, which leaves more than half of the speed of
some processors (AMD's with AVX-512) unused; oneDNN, that PyTorch also comes with, does not. It
takes the weights as they are: there is no second copy of them that could grow old.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

_AVAILABLE = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")


class InferenceLinear(nn.Linear):
    """nn.Linear in all but speed."""

    def forward(self, input: Tensor) -> Tensor:
        """... x input features -> ... x output features."""
        if by_onednn(input, self.weight):
            out: Tensor = torch.ops.mkldnn._linear_pointwise(
                input, self.weight, self.bias, "none", [], ""
            )
            return out
        return super().forward(input)


def speed_up_linears(model: nn.Module) -> None:
    """Make each nn.Linear in ``model`` an InferenceLinear.

    Its class is changed, not the module: parameters, their names and hooks stay.
    """
    for module in model.modules():
        if type(module) is nn.Linear:
            module.__class__ = InferenceLinear


def by_onednn(x: Tensor, weight: Tensor) -> bool:
    """Whether x W^T is for oneDNN."""
    return (
        _AVAILABLE
        and not torch.is_grad_enabled()
        and x.dtype == weight.dtype == torch.float32
        and x.device.type == weight.device.type == "cpu"
        and x.dim() > 1
        and x.numel() > 0
        and weight.numel() > 0
        and torch.backends.mkldnn.enabled
        and not torch.is_autocast_enabled("cpu")
        # Exported programs are to consist of operators that other programs know.
        and not torch.jit.is_tracing()
        and not torch.compiler.is_compiling()
    )
