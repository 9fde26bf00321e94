"""The architecture ``transformer_headpruned``: fairseq's Transformer, pruned.

Heads, feed-forward neurons and whole layers can be pruned.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from functools import cached_property
from typing import Any, cast

import torch
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.distributed import fsdp_wrap
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import (
    TransformerDecoderBase,
    TransformerEncoderBase,
    TransformerModel,
    base_architecture,
)
from fairseq.models.transformer.transformer_legacy import transformer_iwslt_de_en
from fairseq.modules import FairseqDropout, MultiheadAttention
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import Tensor, nn

from fairseq_plugin import autocast
from fairseq_plugin.checkpoint_check import split_fused
from fairseq_plugin.decoding.beam_order import BeamOrder
from fairseq_plugin.decoding.encoder_output import EncoderOutput, OrderedEncoderOutput
from fairseq_plugin.decoding.linear import speed_up_linears
from fairseq_plugin.decoding.projection import project
from fairseq_plugin.decoding.recycling import Recycler
from fairseq_plugin.decoding.shortlist import ShortlistProjection
from fairseq_plugin.fitting import fit_weights
from fairseq_plugin.learned_gates import add_gates, fit_gates
from fairseq_plugin.modules.feed_forward import prune_neurons, remove_masked_neurons
from fairseq_plugin.modules.headpruned_attention import HeadPrunedAttention, IncrementalState
from fairseq_plugin.modules.stack import drop_layers, remove_masked_layers
from fairseq_plugin.options import (
    PLAN_OPTIONS,
    HeadPrunedTransformerConfig,
    check_types,
    resolve_plan,
    store_plan,
    stored_plan,
)
from fairseq_plugin.plan_transport import take_plan
from fairseq_plugin.scripting import Scriptable
from fairseq_plugin.shape import complete_plan, unit_sizes
from headprune import DataError, PruningPlan, UsageError
from headprune.components import HEADS
from headprune.gates.learned import LearnedGates

logger = logging.getLogger(__name__)

Config = HeadPrunedTransformerConfig

RECYCLER = "recycler"
"""The key of the decoder's further output under which get_normalized_probs finds memory."""


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
        if weights is not None and weights.dim() == 4 and self.encoder_attn.form == "mask":
            # By head, H x B x T x S, to be averaged as alignment: masked heads do not enter it.
            kept = self.encoder_attn.kept_heads
            weights = weights[kept] if len(kept) else None
        return x, weights, state

    def become_stock(self) -> None:
        remove_masked_neurons(self)
        super().become_stock()


class HeadPrunedEncoder(TransformerEncoderBase, Scriptable):
    """fairseq's Transformer encoder, each layer with its own heads and neurons."""

    stock_class = TransformerEncoderBase

    def __init__(self, cfg: Config, dictionary: Any, embed_tokens: nn.Module) -> None:
        super().__init__(cfg, dictionary, embed_tokens)
        _drop_layers(self, cfg, "EL")

    def build_encoder_layer(self, cfg: Config) -> nn.Module:
        layer = HeadPrunedEncoderLayer(cfg, layer=_next_layer(self), return_fc=self.return_fc)
        return _wrap(layer, cfg)

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


class HeadPrunedDecoder(TransformerDecoderBase, Scriptable):
    """fairseq's Transformer decoder, each layer with its own heads and neurons."""

    stock_class = TransformerDecoderBase

    def __init__(
        self, cfg: Config, dictionary: Any, embed_tokens: nn.Module, no_encoder_attn: bool = False
    ) -> None:
        super().__init__(cfg, dictionary, embed_tokens, no_encoder_attn=no_encoder_attn)
        _drop_layers(self, cfg, "DL")
        if not self.layers:
            self.register_forward_hook(_depend_on_the_encoder, with_kwargs=True)

    def build_decoder_layer(self, cfg: Config, no_encoder_attn: bool = False) -> nn.Module:
        layer = HeadPrunedDecoderLayer(
            cfg, layer=_next_layer(self), no_encoder_attn=no_encoder_attn
        )
        return _wrap(layer, cfg)

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


@register_model("transformer_headpruned")
class HeadPrunedTransformerModel(TransformerModel, Scriptable):
    """fairseq's Transformer with any heads, neurons and layers pruned.

    It reads checkpoints of ``transformer`` as its own, cutting their weights as the plan says, and
    its own checkpoints hold the plan.
    """

    stock_class = TransformerModel

    gates: LearnedGates | None

    def __init__(self, args: Any, encoder: nn.Module, decoder: nn.Module) -> None:
        super().__init__(args, encoder, decoder)
        self.gates = None
        self.num_updates = 0

    @classmethod
    def hub_models(cls) -> dict[str, Any]:
        return {}

    @classmethod
    def add_args(cls, parser: Any) -> None:
        gen_parser_from_dataclass(parser, Config(), delete_default=True, with_prefix="")

    @classmethod
    def build_model(cls, args: Any, task: Any) -> HeadPrunedTransformerModel:
        if isinstance(args, Namespace):
            transformer_headpruned(args)  # what older checkpoints and other programs leave open
        check_types(args)
        plan = resolve_plan(args)
        store_plan(args, plan)
        logger.info(_summary(plan))
        # fairseq's own from_namespace would drop the plan from a hydra config.
        model: HeadPrunedTransformerModel = super().build_model(Config.from_namespace(args), task)
        speed_up_linears(model)
        _name_dropouts(model)
        add_gates(model)
        return model

    @classmethod
    def build_encoder(cls, cfg: Config, src_dict: Any, embed_tokens: Any) -> HeadPrunedEncoder:
        return HeadPrunedEncoder(cfg, src_dict, embed_tokens)

    @classmethod
    def build_decoder(cls, cfg: Config, tgt_dict: Any, embed_tokens: Any) -> HeadPrunedDecoder:
        return HeadPrunedDecoder(
            cfg, tgt_dict, embed_tokens, no_encoder_attn=cfg.no_cross_attention
        )

    def get_normalized_probs(
        self,
        net_output: tuple[Tensor, dict[str, Any] | None],
        log_probs: bool,
        sample: dict[str, Tensor] | None = None,
    ) -> Tensor:
        logits, extra = net_output
        recycler = extra.get(RECYCLER) if isinstance(extra, dict) else None
        # PyTorch keeps a GPU's memory itself.
        on_cpu = logits.device.type == "cpu"
        if recycler is not None and log_probs and on_cpu and not torch.is_grad_enabled():
            out = recycler.lend(logits.shape, device=logits.device)
            return torch.log_softmax(logits, dim=-1, dtype=torch.float32, out=out)
        probs: Tensor = super().get_normalized_probs(net_output, log_probs, sample)
        return probs

    def set_num_updates(self, num_updates: int) -> None:
        super().set_num_updates(num_updates)
        self.num_updates = num_updates

    def become_stock(self) -> None:
        if self.gates is not None:
            raise UsageError(
                "TorchScript cannot compile learned gates; close them first with `headprune gates`"
            )
        super().become_stock()

    def half(self) -> HeadPrunedTransformerModel:
        autocast.refuse_with(self.cfg, "--fp16")
        return cast(HeadPrunedTransformerModel, super().half())

    def bfloat16(self) -> HeadPrunedTransformerModel:
        autocast.refuse_with(self.cfg, "--bf16")
        return cast(HeadPrunedTransformerModel, super().bfloat16())

    @property
    def plan(self) -> PruningPlan:
        """The units that this model keeps; without neurons and layers if none is pruned."""
        return stored_plan(self.args)

    @property
    def head_plan(self) -> PruningPlan:
        """The heads that this model keeps, in the unpruned model's numbering."""
        plan = self.plan.part(HEADS)
        assert plan is not None
        return plan

    def load_state_dict(
        self,
        state_dict: dict[str, Tensor],
        strict: bool = True,
        model_cfg: Any = None,
        args: Any = None,
    ) -> Any:
        weights = dict(state_dict)
        stored = take_plan(weights)
        split_fused(weights)
        try:
            fit_weights(
                weights,
                kept=complete_plan(self.plan, self.args),
                stored=stored,
                form="mask" if str(self.cfg.head_form) == "mask" else "remove",
                unit_sizes=unit_sizes(self.args),
            )
            fit_gates(weights, self.gates)
        except DataError as error:
            logger.error(str(error))  # fairseq's trainer replaces the message by a general one
            raise
        try:
            return super().load_state_dict(weights, strict)
        except RuntimeError as error:
            mistake = _describe_misfit(self, weights)
            if mistake is None:
                raise
            logger.error(mistake)
            raise DataError(mistake) from error


def _summary(plan: PruningPlan) -> str:
    """One line for the log."""
    heads = plan.part(HEADS)
    assert heads is not None
    text = f"heads kept: {heads} ({heads.percent_pruned:.1f}% pruned)"
    others = plan.part(name for name in plan.units if name not in HEADS)
    return text if others is None else f"{text}; neurons and layers kept: {others}"


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


def _drop_layers(stack: Any, cfg: Config, component: str) -> None:
    units = stored_plan(cfg).kept.get(component)
    if units is not None:
        kept = [layer for layer, unit in enumerate(units) if unit]
        form: Any = str(cfg.head_form)
        drop_layers(stack, kept, form=form, component=component)


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


def _name_dropouts(model: nn.Module) -> None:
    """Give dropout modules the names that ``--retain-dropout-modules`` expects.

    fairseq names them after the class that they are in.
    """
    for module in model.modules():
        if isinstance(module, FairseqDropout):
            module.module_name = _DROPOUT_NAMES.get(module.module_name, module.module_name)


_DROPOUT_NAMES = {
    HeadPrunedEncoder.__name__: "TransformerEncoder",
    HeadPrunedDecoder.__name__: "TransformerDecoder",
    HeadPrunedEncoderLayer.__name__: TransformerEncoderLayerBase.__name__,
    HeadPrunedDecoderLayer.__name__: TransformerDecoderLayerBase.__name__,
    HeadPrunedAttention.__name__: MultiheadAttention.__name__,
}


def _next_layer(stack: HeadPrunedEncoder | HeadPrunedDecoder) -> int:
    """Count the layers of a stack while fairseq builds them; it does not pass their index."""
    layer: int = getattr(stack, "layers_built", 0)
    stack.layers_built = layer + 1
    return layer


def _wrap(layer: nn.Module, cfg: Config) -> nn.Module:
    """Wrap a layer as fairseq wraps its own, for activation checkpointing and FSDP."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    # With checkpointing, FSDP must wrap the layer whatever its size is.
    min_params = 0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    wrapped: nn.Module = fsdp_wrap(layer, min_num_params=min_params)
    return wrapped


def _describe_misfit(model: nn.Module, state: dict[str, Tensor]) -> str | None:
    """One line on why ``state`` is not for ``model``; None if it is."""
    own = model.state_dict()
    for key in own.keys() & state.keys():
        if own[key].shape != state[key].shape and "embed_tokens" in key:
            return (
                f"{key}: the checkpoint's dictionary and width are {tuple(state[key].shape)}, "
                f"the model's {tuple(own[key].shape)}; use the dictionary that it was trained with"
            )
    for key, tensor in own.items():
        if key in state and state[key].shape != tensor.shape:
            return (
                f"{key}: the checkpoint has shape {tuple(state[key].shape)}, "
                f"the model {tuple(tensor.shape)}; the architectures differ"
            )
    missing, unknown = own.keys() - state.keys(), state.keys() - own.keys()
    if missing:
        return (
            f"the checkpoint lacks {min(missing)} ({len(missing)} missing in all); "
            "the architectures differ"
        )
    if unknown:
        return (
            f"the checkpoint has {min(unknown)}, which the model lacks ({len(unknown)} in all); "
            "the architectures differ"
        )
    return None


# Architectures: as in fairseq, each sets what the command line left open.


@register_model_architecture("transformer_headpruned", "transformer_headpruned")
def transformer_headpruned(args: Any) -> None:
    """Transformer-Base (Vaswani et al. 2017): 6 + 6 layers, 512, 2048, 8 heads."""
    for option in PLAN_OPTIONS:
        _default(args, option, None)
    _default(args, "head_seed", 1)
    _default(args, "head_form", "remove")
    _default(args, "autocast", "none")
    _default(args, "gates", None)
    _default(args, "gates_speed", 100.0)
    _default(args, "gates_only", False)
    base_architecture(args)


@register_model_architecture("transformer_headpruned", "transformer_headpruned_iwslt")
def transformer_headpruned_iwslt(args: Any) -> None:
    """fairseq's transformer_iwslt_de_en: 6 + 6 layers, 512, 1024, 4 heads."""
    transformer_iwslt_de_en(args)
    transformer_headpruned(args)


@register_model_architecture("transformer_headpruned", "transformer_headpruned_big")
def transformer_headpruned_big(args: Any) -> None:
    """Transformer-Big (Vaswani et al. 2017): 6 + 6 layers, 1024, 4096, 16 heads."""
    _sizes(args, layers=6, width=1024, heads=16, feed_forward=4096)
    _default(args, "dropout", 0.3)
    transformer_headpruned(args)


@register_model_architecture("transformer_headpruned", "transformer_headpruned_t2t")
def transformer_headpruned_t2t(args: Any) -> None:
    """Transformer-Base as in tensor2tensor, the paper's code base, with layer norm first."""
    _normalize_before(args)
    _default(args, "attention_dropout", 0.1)
    _default(args, "activation_dropout", 0.1)
    transformer_headpruned(args)


@register_model_architecture("transformer_headpruned", "transformer_headpruned_small")
def transformer_headpruned_small(args: Any) -> None:
    """Sizes for small corpora: 6 + 6 layers, 128, 256, 8 heads of 16, layer norm first."""
    _sizes(args, layers=6, width=128, heads=8, feed_forward=256)
    _normalize_before(args)
    transformer_headpruned(args)


@register_model_architecture("transformer_headpruned", "transformer_headpruned_tiny")
def transformer_headpruned_tiny(args: Any) -> None:
    """Sizes for tests: 2 + 2 layers, 32, 64, 4 heads of 8."""
    _sizes(args, layers=2, width=32, heads=4, feed_forward=64)
    transformer_headpruned(args)


def _sizes(args: Any, *, layers: int, width: int, heads: int, feed_forward: int) -> None:
    for side in ("encoder", "decoder"):
        _default(args, f"{side}_layers", layers)
        _default(args, f"{side}_embed_dim", width)
        _default(args, f"{side}_attention_heads", heads)
        _default(args, f"{side}_ffn_embed_dim", feed_forward)


def _normalize_before(args: Any) -> None:
    _default(args, "encoder_normalize_before", True)
    _default(args, "decoder_normalize_before", True)


def _default(args: Any, name: str, value: Any) -> None:
    setattr(args, name, getattr(args, name, value))
