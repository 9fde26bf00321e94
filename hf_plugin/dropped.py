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

from .headless import count_positions
from .subclasses import StandIn, is_stock, stand_in

_RETURN_TUPLES = (
    *("DebertaV2Layer", "RemBertLayer", "RoFormerLayer", "MegatronBertLayer", "TapasLayer"),
    *("VisualBertLayer", "CanineLayer"),
)
"""The classes of layers that return a tuple: hidden states, and attention weights if asked for."""


class DroppedLayer(StandIn):
    """The part of a layer's class that replaces its forward pass.

    Attributes:
        returns_tuple: whether the layer returns attention weights after its hidden states.
        cache_index: the layer's number in a key-value cache; None where it uses none.
    """

    returns_tuple: bool
    cache_index: int | None

    def forward(self, *inputs: Any, **options: Any) -> Tensor | tuple[Tensor, None]:
        """Return the hidden states B x T x C as they are."""
        given = self.named(inputs, options)
        hidden_states: Tensor = given["hidden_states"]
        cache: Cache | None = given.get("past_key_values")
        if cache is not None and self.cache_index is not None:
            count_positions(cache, hidden_states, self.cache_index)
        return (hidden_states, None) if self.returns_tuple else hidden_states


def can_be_dropped(layer: nn.Module) -> bool:
    """Check if ``make_dropped`` supports layers of this class: those of transformers."""
    return is_stock(layer)


def make_dropped(layer: Any) -> None:
    """Let a layer pass on its input, and free its parameters."""
    if isinstance(layer, DroppedLayer):
        return
    indices = [getattr(module, "layer_idx", None) for module in layer.modules()]
    layer.returns_tuple = type(layer).__name__ in _RETURN_TUPLES
    layer.cache_index = next((index for index in indices if index is not None), None)
    layer.__class__ = stand_in(DroppedLayer, type(layer))
    for module in layer.modules():
        for name in list(module._parameters):
            module.register_parameter(name, None)
