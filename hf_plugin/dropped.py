"""Layers that are dropped: they pass on their input.

A dropped layer stays in the model's list of layers, without parameters, so that all other layers
keep their numbers: in the names of weights, in lists of hidden states, in a key-value cache, and
where transformers treats layers by number (kinds of attention in ModernBERT, a convolution in
DeBERTa-v2).

A copy of this file is stored with each pruned model for ``modeling_headpruned``, so it must not
import headprune.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn
from transformers.cache_utils import Cache

from .headless import count_positions, fill_memory
from .position_bias import full_bias
from .subclasses import StandIn, cache_in, is_stock, stand_in, stock_of

_TABLE = "relative_attention_bias"

_PASS_ON_BIASES = ("T5Block", "MT5Block")
"""The classes of layers that return position biases after their hidden states."""

_RETURN_TUPLES = (
    *("DebertaV2Layer", "RemBertLayer", "RoFormerLayer", "MegatronBertLayer", "TapasLayer"),
    *("VisualBertLayer", "CanineLayer", "MPNetLayer", "LiltLayer", "Block"),
)
"""The classes of layers that return a tuple: hidden states, and attention weights if asked for."""

_COMPANIONS = {"LiltLayer": "layout_inputs"}
"""For classes of layers with a companion stream, the argument with its hidden states, which such a
layer returns after the others.
"""


class DroppedLayer(StandIn):
    """The part of a layer's class that replaces its forward pass.

    Attributes:
        returns: what the layer returns: ``tensor``; ``tuple``, with attention weights after its
            hidden states (of all streams); ``biases``, with T5's position biases after them.
        cache_index: the layer's number in a key-value cache; None where it uses none.
    """

    returns: str
    cache_index: int | None

    def forward(self, *inputs: Any, **options: Any) -> Tensor | tuple[Any, ...]:
        """Return the hidden states B x T x C as they are."""
        given = self.named(inputs, options)
        hidden_states: Tensor = given["hidden_states"]
        cache: Cache | None = cache_in(given)
        seen: int | Tensor = 0
        attended = hidden_states.size(1)
        if cache is not None and self.cache_index is not None:
            seen, attended = count_positions(cache, hidden_states, self.cache_index)
            if (memory := given.get("encoder_hidden_states")) is not None:
                fill_memory(cache, memory, self.cache_index)
        if self.returns == "biases":
            return hidden_states, *self._biases(given, attended=attended, seen=seen)
        others = (given[name] for name in hidden_states_of(self)[1:])  # type: ignore[arg-type]
        return (hidden_states, *others, None) if self.returns == "tuple" else hidden_states

    def _biases(
        self, given: dict[str, Any], *, attended: int, seen: int | Tensor
    ) -> tuple[Tensor | None, Tensor | None]:
        """The position biases of self-attention and of cross-attention that go to the next layer.

        The lowest layer keeps the table of these biases when it is dropped.
        """
        length = given["hidden_states"].size(1)
        bias = given.get("position_bias")
        if bias is None:
            lowest: Any = self.layer[0].SelfAttention  # type: ignore[attr-defined]
            bias = full_bias(lowest, length, attended, seen)
        memory, cross = given.get("encoder_hidden_states"), None
        if memory is not None:
            cross = memory.new_zeros(1, 1, length, memory.size(1))
        return bias, cross


def hidden_states_of(layer: nn.Module) -> tuple[str, ...]:
    """The first arguments of a layer, its hidden states; it returns new ones in the same order."""
    companion = _COMPANIONS.get(stock_of(type(layer)).__name__)
    return ("hidden_states",) if companion is None else ("hidden_states", companion)


def can_be_dropped(layer: nn.Module) -> bool:
    """Check if ``make_dropped`` supports layers of this class: those of transformers."""
    return is_stock(layer)


def make_dropped(layer: Any) -> None:
    """Let a layer pass on its input, and free its parameters."""
    if isinstance(layer, DroppedLayer):
        return
    indices = [getattr(module, "layer_idx", None) for module in layer.modules()]
    name = stock_of(type(layer)).__name__
    layer.returns = (
        "biases" if name in _PASS_ON_BIASES else "tuple" if name in _RETURN_TUPLES else "tensor"
    )
    layer.cache_index = next((index for index in indices if index is not None), None)
    layer.__class__ = stand_in(DroppedLayer, type(layer))
    for where, module in layer.named_modules():
        if layer.returns == "biases" and where.endswith(_TABLE):
            continue
        for name in list(module._parameters):
            module.register_parameter(name, None)
