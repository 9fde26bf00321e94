"""Matrix products in bfloat16, with weights, sums and normalisation in float32.

fairseq's own ``--bf16`` stores the weights in bfloat16, and fails on a CPU. With the model's option
``--autocast bf16``, only the factors of matrix products are cast, in the forward pass.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import torch
from torch import Tensor

from fairseq_plugin.decoding.linear import Bfloat16Weights, linears_in_bfloat16
from headprune.bfloat16 import warn_if_slow
from headprune.errors import UsageError

AutocastType = Literal["none", "bf16"]
AUTOCAST_TYPES: tuple[AutocastType, ...] = ("none", "bf16")

_KEY = "bfloat16_weights"


def forward_pass(cfg: Any, x: Tensor) -> AbstractContextManager[Any]:
    """Return the context for the forward pass of a model with the options ``cfg`` on ``x``."""
    if not is_on(cfg):
        return nullcontext()
    if x.device.type == "cpu":
        warn_if_slow(
            "--autocast bf16",
            remedy="leave it out; a model that was trained with it translates without it by "
            "--model-overrides \"{'autocast': 'none'}\"",
        )
    return torch.autocast(x.device.type, dtype=torch.bfloat16)


def decoding_step(cfg: Any, incremental_state: dict[str, Any]) -> AbstractContextManager[Any]:
    """Return the context for one step of incremental decoding.

    PyTorch's autocast would cast all weights again at every step. Here they are cast once for each
    search.
    """
    if not is_on(cfg):
        return nullcontext()
    weights = incremental_state.setdefault(_KEY, {_KEY: Bfloat16Weights()})[_KEY]
    return linears_in_bfloat16(weights)


def is_on(cfg: Any) -> bool:
    return str(getattr(cfg, "autocast", None) or "none") == "bf16"


def refuse_with(cfg: Any, flag: str) -> None:
    """Raise a UsageError if autocast is on, because ``flag`` casts the weights themselves."""
    if is_on(cfg):
        raise UsageError(
            f"--autocast bf16 and {flag} exclude each other; a checkpoint trained with --autocast "
            "is freed of it by --model-overrides \"{'autocast': 'none'}\""
        )
