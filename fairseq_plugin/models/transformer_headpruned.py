"""The architecture ``transformer_headpruned``: fairseq's Transformer, pruned.

Heads, feed-forward neurons and whole layers can be pruned.
"""

from __future__ import annotations

import logging
from argparse import Namespace
from typing import Any, cast

import torch
from fairseq.dataclass.utils import gen_parser_from_dataclass
from fairseq.models import register_model, register_model_architecture
from fairseq.models.transformer import TransformerModel, base_architecture
from fairseq.models.transformer.transformer_legacy import transformer_iwslt_de_en
from fairseq.modules import FairseqDropout, MultiheadAttention
from fairseq.modules.transformer_layer import (
    TransformerDecoderLayerBase,
    TransformerEncoderLayerBase,
)
from torch import Tensor, nn

from fairseq_plugin import autocast
from fairseq_plugin.checkpoint_check import split_fused
from fairseq_plugin.decoding.linear import speed_up_linears
from fairseq_plugin.fitting import fit_weights
from fairseq_plugin.learned_gates import add_gates, fit_gates
from fairseq_plugin.misfit import describe_misfit
from fairseq_plugin.modules.decoder import RECYCLER, HeadPrunedDecoder
from fairseq_plugin.modules.encoder import HeadPrunedEncoder
from fairseq_plugin.modules.headpruned_attention import HeadPrunedAttention
from fairseq_plugin.modules.transformer_layer import (
    HeadPrunedDecoderLayer,
    HeadPrunedEncoderLayer,
)
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
        if (getattr(args, "quant_noise_scalar", 0) or 0) > 0:
            raise UsageError(
                "--quant-noise-scalar: replaces layers of its own kinds alone, not those of "
                "transformer_headpruned; leave it out"
            )
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
            mistake = describe_misfit(self, weights)
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
