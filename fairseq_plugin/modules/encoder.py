"""fairseq's Transformer encoder, pruned."""

from __future__ import annotations

from typing import Any

from fairseq.models.transformer import TransformerEncoderBase
from torch import Tensor, nn

from fairseq_plugin import autocast
from fairseq_plugin.decoding.encoder_output import EncoderOutput, OrderedEncoderOutput
from fairseq_plugin.modules.layer_building import drop_layers_of, next_layer, wrap
from fairseq_plugin.modules.stack import remove_masked_layers
from fairseq_plugin.modules.transformer_layer import HeadPrunedEncoderLayer
from fairseq_plugin.options import HeadPrunedTransformerConfig as Config
from fairseq_plugin.scripting import Scriptable


class HeadPrunedEncoder(TransformerEncoderBase, Scriptable):
    """fairseq's Transformer encoder, each layer with its own heads and neurons."""

    stock_class = TransformerEncoderBase

    def __init__(self, cfg: Config, dictionary: Any, embed_tokens: nn.Module) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        drop_layers_of(self, cfg, "EL")

    def build_encoder_layer(self, cfg: Config) -> nn.Module:
        layer = HeadPrunedEncoderLayer(cfg, layer=next_layer(self), return_fc=self.return_fc)
        return wrap(layer, cfg)

    def forward(self, src_tokens: Tensor, *args: Any, **options: Any) -> dict[str, list[Any]]:
        with autocast.forward_pass(self.cfg, src_tokens):
            output: dict[str, list[Any]] = super().forward(src_tokens, *args, **options)
        return output

    def reorder_encoder_out(self, encoder_out: EncoderOutput, new_order: Tensor) -> EncoderOutput:
        if isinstance(encoder_out, OrderedEncoderOutput):
            return encoder_out.reordered(new_order)
        return OrderedEncoderOutput(encoder_out, new_order, copy=super().reorder_encoder_out)

    def become_stock(self) -> None:
        remove_masked_layers(self)
        super().become_stock()
