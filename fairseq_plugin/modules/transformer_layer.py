"""fairseq's Transformer layers with pruned heads and neurons."""

from __future__ import annotations

from typing import Any

from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import Tensor

from fairseq_plugin.modules.feed_forward import prune_neurons, remove_masked_neurons
from fairseq_plugin.modules.headpruned_attention import HeadPrunedAttention
from fairseq_plugin.options import HeadPrunedTransformerConfig as Config
from fairseq_plugin.options import stored_plan
from fairseq_plugin.scripting import Scriptable


class HeadPrunedEncoderLayer(TransformerEncoderLayerBase, Scriptable):
    """fairseq's encoder layer with heads (ES) and neurons (EF) pruned."""

    stock_class = TransformerEncoderLayerBase

    def __init__(self, cfg: Config, *, layer: int, return_fc: bool = False) -> None:
        self.layer = layer
        super().__init__(cfg, return_fc=return_fc)
        _prune_neurons(self, cfg, "EF")

    def build_self_attention(self, embed_dim: int, cfg: Config) -> HeadPrunedAttention:
        return _attention(
            embed_dim, cfg.encoder.attention_heads, cfg, "ES", self.layer, self_attention=True
        )

    def become_stock(self) -> None:
        remove_masked_neurons(self)
        super().become_stock()


class HeadPrunedDecoderLayer(TransformerDecoderLayerBase, Scriptable):
    """fairseq's decoder layer with heads (DS and ED) and neurons (DF) pruned."""

    stock_class = TransformerDecoderLayerBase

    def __init__(self, cfg: Config, *, layer: int, no_encoder_attn: bool = False) -> None:
        self.layer = layer
        super().__init__(cfg, no_encoder_attn)
        _prune_neurons(self, cfg, "DF")

    def build_self_attention(
        self, embed_dim: int, cfg: Config, add_bias_kv: bool = False, add_zero_attn: bool = False
    ) -> HeadPrunedAttention:
        return _attention(
            embed_dim,
            cfg.decoder.attention_heads,
            cfg,
            "DS",
            self.layer,
            self_attention=not cfg.cross_self_attention,
            add_bias_kv=add_bias_kv,
            add_zero_attn=add_zero_attn,
        )

    def build_encoder_attention(self, embed_dim: int, cfg: Config) -> HeadPrunedAttention:
        return _attention(
            embed_dim,
            cfg.decoder.attention_heads,
            cfg,
            "ED",
            self.layer,
            kdim=cfg.encoder.embed_dim,
            vdim=cfg.encoder.embed_dim,
            encoder_decoder_attention=True,
        )

    def forward(self, *args: Any, **options: Any) -> tuple[Tensor, Tensor | None, Any]:
        x, weights, state = super().forward(*args, **options)
        attention = self.encoder_attn
        if (
            attention is not None
            and weights is not None
            and weights.dim() == 4
            and attention.form == "mask"
        ):
            # By head, H x B x T x S, to be averaged as alignment: masked heads do not enter it.
            kept = attention.kept_heads
            weights = weights[kept] if len(kept) else None
        return x, weights, state

    def become_stock(self) -> None:
        remove_masked_neurons(self)
        super().become_stock()


def _attention(
    embed_dim: int, num_heads: int, cfg: Config, component: str, layer: int, **options: Any
) -> HeadPrunedAttention:
    return HeadPrunedAttention(
        embed_dim,
        num_heads,
        kept=stored_plan(cfg).kept[component][layer],
        form=str(cfg.head_form),  # type: ignore[arg-type]  # an enum's member, or its text
        name=f"{component}: layer {layer}",
        dropout=cfg.attention_dropout,
        q_noise=cfg.quant_noise.pq,
        qn_block_size=cfg.quant_noise.pq_block_size,
        **options,
    )


def _prune_neurons(layer: Any, cfg: Config, component: str) -> None:
    kept = stored_plan(cfg).kept.get(component)
    if kept is not None:
        name = f"{component}: layer {layer.layer}"
        form: Any = str(cfg.head_form)
        prune_neurons(layer, kept[layer.layer], form=form, name=name)
