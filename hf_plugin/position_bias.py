"""Position biases of attention scores, which have a value for every head of the unpruned model.

Their tables stay whole, as layers may share one, and each attention takes the values of its
heads. Attention in form ``uniform`` would not be even with them, so they are not for that form.

A copy of this file is stored with each pruned model for ``modeling_headpruned``, so it must not
import headprune.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from .subclasses import StandIn, stand_in


class _OfKeptHeads(StandIn):
    """The part of an attention's class that takes the biases of its heads.

    Attributes:
        bias_heads: the heads that are present, by their numbers in the unpruned model.
    """

    bias_heads: tuple[int, ...]

    def of_heads(self, bias: Tensor) -> Tensor:
        """The biases of the present heads: B x H x T x S becomes B x H' x T x S."""
        return bias[:, torch.tensor(self.bias_heads, dtype=torch.long, device=bias.device)]


class BiasInMask(_OfKeptHeads):
    """An attention whose mask contains the biases: BEiT."""

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute attention with the heads' part of a mask B x H x T x S."""
        given = self.named(inputs, options)
        hidden_states = given.pop("hidden_states")
        mask = given.get("attention_mask")
        if mask is not None and mask.size(1) > 1:
            given["attention_mask"] = self.of_heads(mask)
        return super().forward(hidden_states, **given)  # type: ignore[misc]


class BiasArgument(_OfKeptHeads):
    """An attention that is given the biases as ``position_bias``: MPNet."""

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute attention with the heads' part of the bias B x H x T x S."""
        given = self.named(inputs, options)
        hidden_states = given.pop("hidden_states")
        if given.get("position_bias") is not None:
            given["position_bias"] = self.of_heads(given["position_bias"])
        return super().forward(hidden_states, **given)  # type: ignore[misc]


class BiasTable(_OfKeptHeads):
    """An attention with a table of its own: UMT5."""

    def compute_bias(self, *inputs: Any, **options: Any) -> Tensor:
        """The biases of the present heads, 1 x H' x T x S."""
        return self.of_heads(super().compute_bias(*inputs, **options))  # type: ignore[misc]


class SharedBias(_OfKeptHeads):
    """An attention that passes its biases on to the next layer: T5.

    The lowest layer's has the table. Cross-attention passes on zeros.
    """

    def compute_bias(self, *inputs: Any, **options: Any) -> Tensor:
        """The biases of the present heads, 1 x H' x T x S; those of all heads are kept."""
        self.computed: Tensor = super().compute_bias(*inputs, **options)  # type: ignore[misc]
        return self.of_heads(self.computed)

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Compute attention with the heads' part of the biases, and return the biases of all."""
        given = self.named(inputs, options)
        hidden_states = given.pop("hidden_states")
        bias = given.pop("position_bias", None)
        if given.get("key_value_states") is not None:
            output, own, *weights = super().forward(hidden_states, **given)  # type: ignore[misc]
            zeros = own.new_zeros(1, 1, *own.shape[2:])
            return output, zeros, *weights
        part = None if bias is None else self.of_heads(bias)
        output, _, *weights = super().forward(  # type: ignore[misc]
            hidden_states, position_bias=part, **given
        )
        if bias is None:
            bias = vars(self).pop("computed")
        return output, bias, *weights


KINDS: dict[str, type[_OfKeptHeads]] = {
    "mask": BiasInMask,
    "argument": BiasArgument,
    "table": BiasTable,
    "shared table": SharedBias,
}


def take_biases(attention: Any, kind: str | None, heads: Sequence[int]) -> None:
    """Let an attention whose heads have been cut take the position biases of these.

    Args:
        attention: the module.
        kind: a key of ``KINDS``; None if the scores have no position bias.
        heads: the heads that are present, by their numbers in the unpruned model.
    """
    if kind is None:
        return
    if not isinstance(attention, _OfKeptHeads):
        attention.__class__ = stand_in(KINDS[kind], type(attention))
    attention.bias_heads = tuple(heads)


def full_bias(attention: nn.Module, length: int, attended: int, seen: int | Tensor) -> Tensor:
    """The biases of all heads that the lowest attention of T5 passes on, 1 x H x T x S."""
    compute: Any = getattr(attention, "compute_bias")  # noqa: B009  (nn.Module's types forbid it)
    own = compute(length, attended, past_seen_tokens=seen)
    return vars(attention).pop("computed", own)  # type: ignore[no-any-return]
