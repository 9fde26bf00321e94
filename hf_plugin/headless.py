"""Attentions without heads and feed-forward sub-layers without neurons.

Their output is the bias of the output projection. transformers' own code would compute with empty
tensors. Some families cannot reshape them, ONNX Runtime and quantised kernels refuse them, and a
key-value cache would regard the sentence as empty. The empty weights are buffers that are not
saved: accelerate and safetensors would treat two empty tensors as one shared tensor, and optimizers
and distributed training have no use for them.

A copy of this file is stored with each pruned model for ``modeling_headpruned``, so it must not
import headprune.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from transformers.cache_utils import Cache, EncoderDecoderCache

from .cutting import is_transposed, rows_of
from .position_bias import full_bias
from .subclasses import StandIn, cache_in, is_stock, stand_in


class Weightless(NonDynamicallyQuantizableLinear):  # which torchao and torch do not quantise
    """A linear layer with an empty weight matrix."""

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        for name in self._buffers:  # older files contain the empty weights
            state_dict.pop(f"{prefix}{name}", None)
        super()._load_from_state_dict(state_dict, prefix, *others)


class NoHeads(Weightless):
    """A projection to the queries, keys or values of zero heads: ... x C -> ... x 0."""


class NoNeurons(Weightless):
    """A projection to no neuron: x (... x C) becomes ... x 0."""

    def forward(self, input: Tensor) -> Tensor:
        """Select no entry of x."""
        return input[..., :0]


class BiasAlone(Weightless):
    """A linear layer without inputs, which outputs its bias."""

    def forward(self, input: Tensor) -> Tensor:
        """... x 0 -> the bias, ... x C."""
        zeros = input.new_zeros(*input.shape[:-1], self.out_features)
        if self.training:
            # Distributed training waits for a gradient of every parameter; here it is zero.
            zeros = zeros + input.sum(-1, keepdim=True)
        return zeros if self.bias is None else zeros + self.bias


WEIGHTS = "weights"
ON_REQUEST, LIST = "weights on request", "list of weights on request"
BIAS = "position bias, weights"
"""The values that attentions return after their output.

Attention weights or None; weights only if they are called with ``output_attentions=True``, in a
tuple or in a list; T5's position biases before the weights.
"""


class HeadlessAttention(StandIn):
    """Forward pass of an attention without heads; a mixin for transformers' attention classes.

    Attributes:
        projection: name of the output projection's attribute; None if it belongs to another module.
        returns: what is returned after the output, such as ``WEIGHTS``.
        companion: the argument with a companion stream's hidden states, whose output is returned
            before the weights; None where there is no such stream.
    """

    projection: str | None
    returns: str
    companion: str | None = None

    def forward(self, *inputs: Any, **options: Any) -> Any:
        """Return the results of an attention with zero heads for hidden states B x T x C."""
        given = self.named(inputs, options)
        hidden_states: Tensor = given["hidden_states"]
        asked: Tensor | None = given.get("query_states")  # DeBERTa-v2 has them apart
        queries = hidden_states if asked is None else asked
        memory = given.get("key_value_states")
        memory = given.get("encoder_hidden_states") if memory is None else memory
        # The number of the layer in a cache; XLM has another name for it, encoders have none.
        layer_index: Any = getattr(self, "layer_idx", getattr(self, "layer_id", None))
        cache = None if layer_index is None else cache_in(given)
        batch, length = queries.shape[:2]
        attended = hidden_states.size(1) if memory is None else memory.size(1)
        seen: int | Tensor = 0
        if cache is not None and memory is not None:
            fill_memory(cache, memory, layer_index)
        if cache is not None and memory is None:
            seen, attended = count_positions(cache, hidden_states, layer_index)
        output = queries[..., :0]  # B x T x H'd
        if self.projection is not None:
            output = getattr(self, self.projection)(output)  # B x T x C
            for name in ("out_drop", "resid_dropout", "output_dropout"):
                output = getattr(self, name, nn.Identity())(output)
            if (norm := getattr(self, "LayerNorm", None)) is not None:  # ALBERT
                output = norm(hidden_states + output)
        config = getattr(self, "config", None)
        weights = None
        if getattr(config, "_attn_implementation", "eager") == "eager":
            weights = queries.new_zeros(batch, 0, length, attended)
        if self.returns == BIAS:
            bias = given.get("position_bias")
            if bias is None or memory is not None:
                bias = _bias(self, queries, memory, attended=attended, seen=seen)
            return output, bias, weights
        without = self.returns in (ON_REQUEST, LIST) and not given.get("output_attentions")
        outputs: tuple[Tensor, ...] = (output,)
        if self.companion is not None:
            beside = given[self.companion][..., :0]  # B x T x H'd / r
            # The output depends on both streams, for gradients of zero; see BiasAlone.
            outputs = (torch.cat([output, beside], dim=-1), beside)
        returned = outputs if without else (*outputs, weights)
        return list(returned) if self.returns == LIST else returned


def _bias(
    attention: Any, queries: Tensor, memory: Tensor | None, *, attended: int, seen: int | Tensor
) -> Tensor:
    """The position biases that T5's attention passes on, 1 x H x T x S; zeros are 1 x 1 x T x S."""
    length = queries.size(1)
    if memory is None and attention.has_relative_attention_bias:
        return full_bias(attention, length, attended, seen)
    return queries.new_zeros(1, 1, length, attended)


def count_positions(
    cache: Cache, hidden_states: Tensor, layer_index: int
) -> tuple[int | Tensor, int]:
    """Add the new tokens to a decoder's cache; return its numbers of tokens before and after.

    transformers derives the position of the next token from the keys in the cache of the lowest
    layer. Without heads there are no keys, and every token would get the first position.

    Args:
        cache: the model's.
        hidden_states: the hidden states of the new tokens, B x T x C.
        layer_index: the layer's number in the cache.
    """
    if isinstance(cache, EncoderDecoderCache):
        cache = cache.self_attention_cache
    batch, length = hidden_states.shape[:2]
    placeholder = hidden_states.new_zeros(batch, 1, length, 1)  # B x heads x T x d
    seen = cache.get_seq_length(layer_index)
    if isinstance(seen, Tensor):  # a static cache counts in it, in place
        seen = seen.clone()
    keys, _ = cache.update(placeholder, placeholder, layer_index)
    return seen, keys.size(2)


def fill_memory(cache: Cache, memory: Tensor, layer_index: int) -> None:
    """Put zeros in a decoder's cache in place of the keys to an encoder's outputs, once.

    Without heads there are no keys. Whisper's own generation splits those of all layers.

    Args:
        cache: the model's.
        memory: the encoder's outputs, B x S x C.
        layer_index: the layer's number in the cache.
    """
    if isinstance(cache, EncoderDecoderCache) and not cache.is_updated.get(layer_index):
        placeholder = memory.new_zeros(len(memory), 1, memory.size(1), 1)  # B x heads x S x d
        cache.cross_attention_cache.update(placeholder, placeholder, layer_index)
        cache.is_updated[layer_index] = True


def can_be_headless(attention: nn.Module) -> bool:
    """Check that ``make_headless`` supports attentions of this class: those of transformers."""
    return is_stock(attention)


def make_headless(
    attention: Any,
    inputs: Iterable[nn.Module],
    outputs: Sequence[nn.Module],
    *,
    returns: str = WEIGHTS,
    companion: str | None = None,
) -> None:
    """Replace the forward pass of an attention whose heads have all been cut.

    Args:
        attention: the module.
        inputs: its projections to queries, keys and values.
        outputs: its output projection, and that of a companion stream, which belongs to another
            module.
        returns, companion: see ``HeadlessAttention``.
    """
    if not isinstance(attention, HeadlessAttention):
        attention.__class__ = stand_in(HeadlessAttention, type(attention))
        children = attention.named_modules()
        attention.projection = next((name for name, child in children if child is outputs[0]), None)
        attention.returns = returns
        attention.companion = companion
        for name in _UNUSED if returns != BIAS else ():
            if (unused := getattr(attention, name, None)) is not None:
                unused.requires_grad_(False)  # distributed training would wait for its gradient
    _empty(inputs, NoHeads)
    _empty(outputs, BiasAlone)


_UNUSED = ("q_norm", "k_norm", "relative_attention_bias")
"""Parts of attentions that are not computed without heads."""


def make_neuronless(inputs: Iterable[nn.Module], output: nn.Module) -> None:
    """Skip the computation of a feed-forward sub-layer without neurons.

    Args:
        inputs: the projections to its neurons.
        output: its output projection.
    """
    _empty(inputs, NoNeurons)
    _empty((output,), BiasAlone)


def _empty(linears: Iterable[Any], kind: type[Weightless]) -> None:
    """Convert projections with empty weights to a class that computes nothing."""
    for linear in linears:
        rows = rows_of(linear).detach()
        linear.was_transposed = is_transposed(linear)
        linear.__class__ = kind
        linear.out_features, linear.in_features = rows.shape
        for name, parameter in list(linear._parameters.items()):
            if parameter is not None and not parameter.numel():
                delattr(linear, name)
                empty = rows if name == "weight" else parameter.detach()
                linear.register_buffer(name, empty, persistent=False)
