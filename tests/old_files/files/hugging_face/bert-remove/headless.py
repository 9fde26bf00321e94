"""Attentions of which no head is left: nothing is computed but the output projection's bias.

transformers' own code would run on empty tensors, which some families cannot reshape, ONNX Runtime
and quantised kernels refuse, and a key-value cache takes for an empty sentence. The empty weights
themselves are buffers that are not saved: accelerate and safetensors take two empty tensors for one
that is shared, and optimizers and distributed training have nothing to do with them.

This file is written beside each pruned model, for ``modeling_headpruned``, so it imports nothing
of headprune.
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


class Weightless(NonDynamicallyQuantizableLinear):  # torchao and torch leave it as it is
    """A linear layer with an empty weight matrix."""

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *others: Any) -> None:
        for name in self._buffers:  # older files have them
            state_dict.pop(f"{prefix}{name}", None)
        super()._load_from_state_dict(state_dict, prefix, *others)


class NoHeads(Weightless):
    """A projection to the queries, keys or values of no head: x (... x C) becomes ... x 0."""


class BiasAlone(Weightless):
    """A linear layer without inputs."""

    def forward(self, input: Tensor) -> Tensor:
        """Of x (... x 0) the bias (... x C)."""
        zeros = input.new_zeros(*input.shape[:-1], self.out_features)
        if self.training:
            # Distributed training waits for a gradient, if only of zeros, of every parameter.
            zeros = zeros + input.sum(-1, keepdim=True)
        return zeros if self.bias is None else zeros + self.bias


class HeadlessAttention:
    """What replaces an attention's forward pass.

    Attributes:
        projection: the attribute that holds the output projection, None where it is not a part of
            this module.
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
        """Of hidden states B x T x C what the attention it replaces returns, for no head."""
        queries = hidden_states if query_states is None else query_states
        batch, length = queries.shape[:2]
        memory = hidden_states if key_value_states is None else key_value_states
        attended = memory.size(1)
        if past_key_values is not None and key_value_states is None:
            attended = self._count_positions(past_key_values, hidden_states)
        output = queries[..., :0]  # B x T x H'd
        if self.projection is not None:
            output = getattr(self, self.projection)(output)  # B x T x C
            output = getattr(self, "out_drop", nn.Identity())(output)
        config = getattr(self, "config", None)
        if getattr(config, "_attn_implementation", "eager") != "eager":
            return output, None
        return output, queries.new_zeros(batch, 0, length, attended)

    def _count_positions(self, cache: Cache, hidden_states: Tensor) -> int:
        """Let a decoder's cache know of the new tokens; how many it has seen in all.

        transformers reads the position of the next token off the keys in the lowest layer's
        cache. With no head there are none, and every token would be taken for the first.
        """
        if isinstance(cache, EncoderDecoderCache):
            cache = cache.self_attention_cache
        batch, length = hidden_states.shape[:2]
        placeholder = hidden_states.new_zeros(batch, 1, length, 1)  # B x heads x T x d
        keys, _ = cache.update(placeholder, placeholder, self.layer_idx)  # type: ignore[attr-defined]
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
    # Under a name of this module, so that pickle finds it.
    _name = f"Headless{_stock.__name__}"
    _namespace = {"__module__": __name__, "projection": _projection}
    globals()[_name] = _HEADLESS[_stock] = type(_name, (HeadlessAttention, _stock), _namespace)


def can_be_headless(attention: nn.Module) -> bool:
    """Whether ``make_headless`` knows attentions of this class."""
    return type(attention) in _HEADLESS or isinstance(attention, HeadlessAttention)


def make_headless(attention: nn.Module, inputs: Iterable[nn.Linear], output: nn.Linear) -> None:
    """Let an attention whose weights are all cut compute nothing.

    Args:
        attention: the module.
        inputs: its projections to queries, keys and values.
        output: its output projection.
    """
    if not isinstance(attention, HeadlessAttention):
        attention.__class__ = _HEADLESS[type(attention)]
    for linear in inputs:
        linear.__class__ = NoHeads
    output.__class__ = BiasAlone
    for linear in (*inputs, output):
        for name, parameter in list(linear._parameters.items()):
            if parameter is not None and not parameter.numel():
                delattr(linear, name)
                linear.register_buffer(name, parameter.detach(), persistent=False)
