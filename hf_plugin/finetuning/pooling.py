"""Classification from the mean of all tokens instead of the first token.

With the pooling ``first``, the classifier reads the output at [CLS], as BERT is trained. With
``mean`` it reads the mean of the outputs at all tokens, as sentence encoders are trained (Reimers
and Gurevych 2019).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headprune.errors import UsageError

POOLINGS = ("first", "mean")
"""Names of the poolings."""


def pool_by_mean(model: PreTrainedModel) -> None:
    """Let the model's pooler read the mean over all tokens except padding; changes the model.

    Args:
        model: a classifier whose encoder has a pooler that reads the first position, like BERT.

    Raises:
        UsageError: the encoder has no such pooler.
    """
    encoder = model.base_model
    pooler = getattr(encoder, "pooler", None)
    if not isinstance(getattr(pooler, "dense", None), nn.Linear):
        raise UsageError(
            f"pooling mean: {type(model).__name__} has no pooler as BERT's; leave --pooling out"
        )
    masks: list[Tensor | None] = [None]

    def keep_mask(_: nn.Module, args: tuple[Any, ...], options: dict[str, Any]) -> None:
        masks[0] = options.get("attention_mask", args[1] if len(args) > 1 else None)

    def mean(_: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        hidden = args[0]  # B x T x D
        mask = masks[0]  # B x T, 1 for real tokens
        weights = torch.ones_like(hidden[..., :1]) if mask is None else mask.unsqueeze(-1)
        weights = weights.to(hidden.dtype)
        pooled = (hidden * weights).sum(1, keepdim=True) / weights.sum(1, keepdim=True)
        return (pooled, *args[1:])  # B x 1 x D: the first position is the mean

    encoder.register_forward_pre_hook(keep_mask, with_kwargs=True)
    pooler.register_forward_pre_hook(mean)  # type: ignore[union-attr]
