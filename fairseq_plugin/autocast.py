"""Matrix products in bfloat16, with weights, sums and normalisation in float32.

fairseq's own ``--bf16`` keeps the weights themselves in bfloat16, and on a CPU it fails. Here the
model's option ``--autocast bf16`` makes its forward pass cast what is multiplied.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor

from fairseq_plugin.decoding.linear import Bfloat16Weights, linears_in_bfloat16
from headprune.errors import UsageError

AutocastType = Literal["none", "bf16"]
AUTOCAST_TYPES: tuple[AutocastType, ...] = ("none", "bf16")

_KEY = "bfloat16_weights"


def forward_pass(cfg: Any, x: Tensor) -> AbstractContextManager[Any]:
    """What the forward pass of a model with the options ``cfg`` runs in; ``x`` is its input."""
    if not is_on(cfg):
        return nullcontext()
    return torch.autocast(x.device.type, dtype=torch.bfloat16)


def decoding_step(cfg: Any, incremental_state: dict[str, Any]) -> AbstractContextManager[Any]:
    """The same for one step of incremental decoding.

    PyTorch's autocast would cast all weights again at every step; here they are cast once a search.
    """
    if not is_on(cfg):
        return nullcontext()
    weights = incremental_state.setdefault(_KEY, {_KEY: Bfloat16Weights()})[_KEY]
    return linears_in_bfloat16(weights)


def is_on(cfg: Any) -> bool:
    return str(getattr(cfg, "autocast", None) or "none") == "bf16"


def refuse_with(cfg: Any, flag: str) -> None:
    """Raise a UsageError where autocast is on, as the weights are to be cast as a whole."""
    if is_on(cfg):
        raise UsageError(
            f"--autocast bf16 and {flag} exclude each other; a checkpoint trained with --autocast "
            "is freed of it by --model-overrides \"{'autocast': 'none'}\""
        )
