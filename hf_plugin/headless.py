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

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.models.bart.modeling_bart import BartAttention
from transformers.models.bert.modeling_bert import BertSelfAttention
from transformers.models.camembert.modeling_camembert import CamembertSelfAttention
from transformers.models.deberta_v2.modeling_deberta_v2 import DisentangledSelfAttention
from transformers.models.distilbert.modeling_distilbert import DistilBertSelfAttention
from transformers.models.electra.modeling_electra import ElectraSelfAttention
from transformers.models.marian.modeling_marian import MarianAttention
from transformers.models.modernbert.modeling_modernbert import ModernBertAttention
from transformers.models.roberta.modeling_roberta import RobertaSelfAttention
from transformers.models.xlm_roberta.modeling_xlm_roberta import XLMRobertaSelfAttention


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


class HeadlessAttention:
    """Forward pass of an attention without heads; a mixin for transformers' attention classes.

    Attributes:
        projection: name of the output projection's attribute; None if it belongs to another module.
    """

    projection: str | None

    def forward(
        self,
        hidden_states: Tensor,
        *inputs: Any,
        query_states: Tensor | None = None,
        key_value_states: Tensor | None = None,
        past_key_values: Cache | None = None,
        **options: Any,
    ) -> tuple[Tensor, Tensor | None]:
        """Return the results of an attention with zero heads for hidden states B x T x C."""
        queries = hidden_states if query_states is None else query_states
        batch, length = queries.shape[:2]
        memory = hidden_states if key_value_states is None else key_value_states
        attended = memory.size(1)
        if past_key_values is not None and key_value_states is None:
            layer_index: int = self.layer_idx  # type: ignore[attr-defined]
            attended = count_positions(past_key_values, hidden_states, layer_index)
        output = queries[..., :0]  # B x T x H'd
        if self.projection is not None:
            output = getattr(self, self.projection)(output)  # B x T x C
            output = getattr(self, "out_drop", nn.Identity())(output)
        config = getattr(self, "config", None)
        if getattr(config, "_attn_implementation", "eager") != "eager":
            return output, None
        return output, queries.new_zeros(batch, 0, length, attended)


def count_positions(cache: Cache, hidden_states: Tensor, layer_index: int) -> int:
    """Add the new tokens to a decoder's cache, and return its number of tokens.

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
    keys, _ = cache.update(placeholder, placeholder, layer_index)
    return keys.size(2)


_PROJECTIONS: dict[type[nn.Module], str | None] = {
    BertSelfAttention: None,
    RobertaSelfAttention: None,
    XLMRobertaSelfAttention: None,
    CamembertSelfAttention: None,
    ElectraSelfAttention: None,
    DisentangledSelfAttention: None,
    DistilBertSelfAttention: "out_lin",
    ModernBertAttention: "Wo",
    BartAttention: "out_proj",
    MarianAttention: "out_proj",
}
_HEADLESS: dict[type[nn.Module], type[nn.Module]] = {}
for _stock, _projection in _PROJECTIONS.items():
    # The class is an attribute of this module, so that pickle finds it.
    _name = f"Headless{_stock.__name__}"
    _namespace = {"__module__": __name__, "projection": _projection}
    globals()[_name] = _HEADLESS[_stock] = type(_name, (HeadlessAttention, _stock), _namespace)


def can_be_headless(attention: nn.Module) -> bool:
    """Check that ``make_headless`` supports attentions of this class."""
    return type(attention) in _HEADLESS or isinstance(attention, HeadlessAttention)


def make_headless(attention: nn.Module, inputs: Iterable[nn.Linear], output: nn.Linear) -> None:
    """Replace the forward pass of an attention whose heads have all been cut.

    Args:
        attention: the module.
        inputs: its projections to queries, keys and values.
        output: its output projection.
    """
    if not isinstance(attention, HeadlessAttention):
        attention.__class__ = _HEADLESS[type(attention)]
    inputs = tuple(inputs)
    for linear in inputs:
        linear.__class__ = NoHeads
    output.__class__ = BiasAlone
    _turn_empty_parameters_into_buffers((*inputs, output))


def make_neuronless(inputs: Iterable[nn.Linear], output: nn.Linear) -> None:
    """Skip the computation of a feed-forward sub-layer without neurons.

    Args:
        inputs: the projections to its neurons.
        output: its output projection.
    """
    inputs = tuple(inputs)
    for linear in inputs:
        linear.__class__ = NoNeurons
    output.__class__ = BiasAlone
    _turn_empty_parameters_into_buffers((*inputs, output))


def _turn_empty_parameters_into_buffers(linears: Iterable[nn.Linear]) -> None:
    for linear in linears:
        for name, parameter in list(linear._parameters.items()):
            if parameter is not None and not parameter.numel():
                delattr(linear, name)
                linear.register_buffer(name, parameter.detach(), persistent=False)
