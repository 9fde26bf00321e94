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
from transformers.models.bart.modeling_bart import BartDecoderLayer, BartEncoderLayer
from transformers.models.bert.modeling_bert import BertLayer
from transformers.models.camembert.modeling_camembert import CamembertLayer
from transformers.models.deberta_v2.modeling_deberta_v2 import DebertaV2Layer
from transformers.models.distilbert.modeling_distilbert import TransformerBlock
from transformers.models.electra.modeling_electra import ElectraLayer
from transformers.models.marian.modeling_marian import MarianDecoderLayer, MarianEncoderLayer
from transformers.models.modernbert.modeling_modernbert import ModernBertEncoderLayer
from transformers.models.roberta.modeling_roberta import RobertaLayer
from transformers.models.xlm_roberta.modeling_xlm_roberta import XLMRobertaLayer

from .headless import count_positions


class DroppedLayer:
    """The part of a layer's class that replaces its forward pass.

    Attributes:
        returns_tuple: whether the layer returns attention weights after its hidden states.
        cache_index: the layer's number in a key-value cache; None where it uses none.
    """

    returns_tuple: bool
    cache_index: int | None

    def forward(
        self,
        hidden_states: Tensor,
        *inputs: Any,
        past_key_values: Cache | None = None,
        **options: Any,
    ) -> Tensor | tuple[Tensor, None]:
        """Return the hidden states B x T x C as they are."""
        if past_key_values is not None and self.cache_index is not None:
            count_positions(past_key_values, hidden_states, self.cache_index)
        return (hidden_states, None) if self.returns_tuple else hidden_states


_DROPPED: dict[type[nn.Module], type[nn.Module]] = {}
for _stock in (
    *(BertLayer, RobertaLayer, XLMRobertaLayer, CamembertLayer, ElectraLayer, TransformerBlock),
    *(DebertaV2Layer, ModernBertEncoderLayer, BartEncoderLayer, BartDecoderLayer),
    *(MarianEncoderLayer, MarianDecoderLayer),
):
    # Under a name of this module, so that pickle finds it.
    _name = f"Dropped{_stock.__name__}"
    _namespace = {"__module__": __name__, "returns_tuple": _stock is DebertaV2Layer}
    globals()[_name] = _DROPPED[_stock] = type(_name, (DroppedLayer, _stock), _namespace)


def can_be_dropped(layer: nn.Module) -> bool:
    """Check if ``make_dropped`` supports layers of this class."""
    return type(layer) in _DROPPED or isinstance(layer, DroppedLayer)


def make_dropped(layer: nn.Module) -> None:
    """Let a layer pass on its input, and free its parameters."""
    if isinstance(layer, DroppedLayer):
        return
    indices = [getattr(module, "layer_idx", None) for module in layer.modules()]
    layer.__class__ = _DROPPED[type(layer)]
    layer.cache_index = next(  # type: ignore[assignment]
        (index for index in indices if index is not None), None
    )
    for module in layer.modules():
        for name in list(module._parameters):
            module.register_parameter(name, None)
