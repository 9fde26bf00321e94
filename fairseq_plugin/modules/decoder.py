"""fairseq's Transformer decoder, pruned."""

from __future__ import annotations

from functools import cached_property
from typing import Any

import torch
from fairseq.models.transformer import TransformerDecoderBase
from torch import Tensor, nn

from fairseq_plugin import autocast
from fairseq_plugin.decoding.beam_order import BeamOrder
from fairseq_plugin.decoding.encoder_output import EncoderOutput, OrderedEncoderOutput
from fairseq_plugin.decoding.projection import project
from fairseq_plugin.decoding.recycling import Recycler
from fairseq_plugin.decoding.shortlist import ShortlistProjection
from fairseq_plugin.modules.headpruned_attention import HeadPrunedAttention, IncrementalState
from fairseq_plugin.modules.layer_building import drop_layers_of, next_layer, wrap
from fairseq_plugin.modules.stack import remove_masked_layers
from fairseq_plugin.modules.transformer_layer import HeadPrunedDecoderLayer
from fairseq_plugin.options import HeadPrunedTransformerConfig as Config
from fairseq_plugin.scripting import Scriptable

RECYCLER = "recycler"
"""The key of the decoder's further output under which get_normalized_probs finds memory."""


class HeadPrunedDecoder(TransformerDecoderBase, Scriptable):
    """fairseq's Transformer decoder, each layer with its own heads and neurons."""

    stock_class = TransformerDecoderBase

    def __init__(
        self, cfg: Config, dictionary: Any, embed_tokens: nn.Module, no_encoder_attn: bool = False
    ) -> None:
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=no_encoder_attn)
        drop_layers_of(self, cfg, "DL")
        if not self.layers:
            self.register_forward_hook(_depend_on_the_encoder, with_kwargs=True)

    def build_decoder_layer(self, cfg: Config, no_encoder_attn: bool = False) -> nn.Module:
        layer = HeadPrunedDecoderLayer(cfg, layer=next_layer(self), no_encoder_attn=no_encoder_attn)
        return wrap(layer, cfg)

    def forward(
        self,
        prev_output_tokens: Tensor,
        encoder_out: EncoderOutput | None = None,
        incremental_state: IncrementalState | None = None,
        features_only: bool = False,
        **options: Any,
    ) -> tuple[Tensor, dict[str, Any]]:
        if options.get("alignment_layer") is None:
            options["alignment_layer"] = self.aligning_layer
        if incremental_state is None or torch.is_grad_enabled():
            with autocast.forward_pass(self.cfg, prev_output_tokens):
                x, extra = super().forward(
                    prev_output_tokens, encoder_out, incremental_state, features_only, **options
                )
            return (x.float() if autocast.is_on(self.cfg) else x), extra
        if isinstance(encoder_out, OrderedEncoderOutput) and not self.cross_self_attention:
            # Keys and values of a sentence are the same for all its hypotheses. After the first
            # step they are known, and the encoder's output is not looked at.
            begun = Recycler.known(incremental_state)
            encoder_out = encoder_out.source if begun else encoder_out.by_sentence()
        with autocast.decoding_step(self.cfg, incremental_state):
            features, extra = super().forward(
                prev_output_tokens, encoder_out, incremental_state, features_only=True, **options
            )
            if features_only or self.adaptive_softmax is not None:
                return features, extra
            recycler = extra[RECYCLER] = Recycler.of(incremental_state)
            shortlisted = ShortlistProjection.of(incremental_state, self.output_projection)
            if shortlisted is not None:
                return shortlisted(features, recycler), extra
            return project(self.output_projection, features, recycler), extra

    def reorder_incremental_state_scripting(
        self, incremental_state: IncrementalState, new_order: Tensor
    ) -> None:
        order = BeamOrder(new_order)
        for attention in self._attentions:
            attention.reorder_cache(incremental_state, order)
        ShortlistProjection.reorder(incremental_state, order)

    @cached_property
    def aligning_layer(self) -> int | None:
        """The topmost layer that has heads of ED; None if no layer has any.

        fairseq takes the top layer, which may have no weights to give here.
        """
        having = [
            number
            for number in range(len(self.layers))  # iteration drops layers at random (layerdrop)
            if (layer := self.layers[number]).encoder_attn is not None
            and len(layer.encoder_attn.kept_heads)
        ]
        return having[-1] if having else None

    @cached_property
    def _attentions(self) -> tuple[HeadPrunedAttention, ...]:
        # Found once: fairseq's own way looks through all modules at every step.
        return tuple(m for m in self.modules() if isinstance(m, HeadPrunedAttention))

    def become_stock(self) -> None:
        remove_masked_layers(self)
        self._forward_hooks.clear()
        super().become_stock()


def _depend_on_the_encoder(
    decoder: nn.Module, inputs: tuple[Any, ...], options: dict[str, Any], output: Any
) -> Any:
    """Give the encoder's weights a zero gradient if the decoder has no layers.

    Distributed training waits for a gradient of every parameter.
    """
    encoder_out = options.get("encoder_out") or (inputs[1] if len(inputs) > 1 else None)
    if not torch.is_grad_enabled() or not encoder_out or not encoder_out["encoder_out"]:
        return output
    x, extra = output
    return x + encoder_out["encoder_out"][0][:0].sum(), extra
