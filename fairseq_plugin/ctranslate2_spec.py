"""Convert fairseq's Transformer, head-pruned or not, to CTranslate2's.

CTranslate2 has one number of heads for the encoder and one for the decoder, whose DS and ED share
it. Layers that keep fewer heads are filled up with heads of zeros, whose outputs are zero. The
spec must state the width of a head: else the library divides the model's width by the number of
heads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from ctranslate2.specs.common_spec import Activation, LayerNormSpec, LinearSpec
from ctranslate2.specs.transformer_spec import (
    TransformerDecoderSpec,
    TransformerEncoderSpec,
    TransformerSpec,
)
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel
from fairseq.modules import LearnedPositionalEmbedding, MultiheadAttention
from fairseq.modules.sinusoidal_positional_embedding import SinusoidalPositionalEmbedding
from torch import Tensor

from fairseq_plugin.fitting import HEAD_DIMENSION, NEURON_DIMENSION
from fairseq_plugin.models.transformer_headpruned import HeadPrunedTransformerModel
from fairseq_plugin.shape import complete_plan, layers_present, model_shape, unit_sizes
from headprune.counts import format_counts
from headprune.errors import UsageError
from headprune.exported import STACKS, stack_heads
from headprune.plan import PruningPlan
from headprune.surgery import cut, uncut

ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu_accurate": Activation.GELUTanh,
    "gelu_fast": Activation.GELUTanh,
    "tanh": Activation.Tanh,
}
"""Activations of feed-forward layers, by fairseq's names."""


def plan_of(model: TransformerModel) -> PruningPlan:
    """The units that the model keeps."""
    if isinstance(model, HeadPrunedTransformerModel):
        return model.plan
    shape = model_shape(model.args)
    return PruningPlan.full(shape).normalised(shape)


def vocabulary(dictionary: Dictionary) -> list[str]:
    """The tokens in the order of their numbers, under the names that CTranslate2 expects."""
    return ["<blank>" if token == "<pad>" else token for token in dictionary.symbols]


def padding(plan: PruningPlan) -> str | None:
    """One line on the zero heads that fill up the smaller attentions; None if there are none.

    Args:
        plan: the heads that a model keeps, and its layers if some are dropped.
    """
    heads, costs = stack_heads(plan), []
    for stack, names in STACKS.items():
        counts = {name: _counts_of_layers(plan, name) for name in names if name in plan.counts}
        kept = sum(map(sum, counts.values()))
        computed = heads[stack] * sum(map(len, counts.values()))
        if kept < computed:
            uneven = " ".join(f"{name}={format_counts(each)}" for name, each in counts.items())
            costs.append(f"{computed} heads for the {kept} kept in the {stack} ({uneven})")
    if not costs:
        return None
    return (
        "padding: CTranslate2 computes as many heads in every attention of a stack as in its "
        f"largest: {', '.join(costs)}. Plans of `headprune plan --even` need none"
    )


def _counts_of_layers(plan: PruningPlan, component: str) -> tuple[int, ...]:
    """The numbers of kept heads in the layers that are not dropped."""
    layers = layers_present(plan, component, "remove")
    return tuple(plan.counts[component][layer] for layer in layers)


_COMPONENTS = {"encoder": ("ES", "EF"), "decoder": ("DS", "ED", "DF")}
"""The components of the sub-layers of each stack."""


def make_spec(model: TransformerModel) -> TransformerSpec:
    """CTranslate2's model with the weights of ``model``, in float32; the two share no memory.

    Raises:
        UsageError: the model has a part that CTranslate2's Transformer does not support.
    """
    _require_expressible(model)
    cfg = model.cfg
    plan = complete_plan(plan_of(model), model.args)
    head_dim = unit_sizes(model.args)
    layers = {side: _layers(model, side, plan) for side in ("encoder", "decoder")}
    heads = stack_heads(plan)
    encoder = TransformerEncoderSpec(
        len(layers["encoder"]),
        heads["encoder"],
        head_dim=head_dim["ES"],
        pre_norm=cfg.encoder.normalize_before,
        activation=ACTIVATIONS[cfg.activation_fn],
        layernorm_embedding=cfg.layernorm_embedding,
    )
    decoder = TransformerDecoderSpec(
        len(layers["decoder"]),
        heads["decoder"],
        head_dim=head_dim["DS"],
        pre_norm=cfg.decoder.normalize_before,
        no_final_norm=cfg.no_decoder_final_norm,
        activation=ACTIVATIONS[cfg.activation_fn],
        layernorm_embedding=cfg.layernorm_embedding,
    )
    weights = _Weights(model)
    for name, stack in (("encoder", encoder), ("decoder", decoder)):
        module = getattr(model, name)
        embeddings = encoder.embeddings[0] if name == "encoder" else decoder.embeddings
        embeddings.weight = weights.take(f"{name}.embed_tokens.weight")
        stack.scale_embeddings = float(module.embed_scale)
        stack.position_encodings.encodings = weights.positions(name)
        for norm in ("layernorm_embedding", "layer_norm"):
            if getattr(module, norm) is not None:
                weights.layer_norm(getattr(stack, norm), f"{name}.{norm}")
        for spec, (position, layer) in zip(stack.layer, layers[name].items(), strict=True):
            _fill_layer(
                spec,
                module.layers[position],
                f"{name}.layers.{position}",
                weights=weights,
                kept={component: plan.kept[component][layer] for component in _COMPONENTS[name]},
                stack_heads=heads[name],
            )
        for position in range(len(module.layers)):
            if position not in layers[name]:  # form mask
                weights.leave_out(f"{name}.layers.{position}.")
    weights.linear(decoder.projection, "decoder.output_projection")
    weights.require_all_taken()

    spec = TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(vocabulary(model.encoder.dictionary))
    spec.register_target_vocabulary(vocabulary(model.decoder.dictionary))
    # fairseq ends sources with </s>, and begins targets with it.
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = spec.config.eos_token
    return spec


def _fill_layer(
    spec: Any,
    block: Any,
    prefix: str,
    *,
    weights: _Weights,
    kept: Mapping[str, Sequence[int]],
    stack_heads: int,
) -> None:
    """Copy the weights of one layer.

    Args:
        spec: CTranslate2's layer, of the encoder or the decoder.
        block: fairseq's layer.
        prefix: the beginning of the names of its weights.
        weights: the weights of the model.
        kept: the kept units of the layer, by component.
        stack_heads: the number of heads that each layer of the stack is filled up to.
    """
    in_decoder = prefix.startswith("decoder.")
    attentions = [(spec.self_attention, block.self_attn, "self_attn", "DS" if in_decoder else "ES")]
    if in_decoder:
        attentions.append((spec.attention, block.encoder_attn, "encoder_attn", "ED"))
    for attention_spec, attention, name, component in attentions:
        weights.attention(
            attention_spec,
            attention,
            f"{prefix}.{name}",
            kept=kept[component],
            stack_heads=stack_heads,
        )
    weights.feed_forward(spec.ffn, prefix, kept=kept["DF" if in_decoder else "EF"])
    weights.layer_norm(spec.ffn.layer_norm, f"{prefix}.final_layer_norm")


def parameters_of(model: TransformerModel) -> int:
    """The number of parameters of the model that is written for CTranslate2.

    Those that are tied to one another count once, and positions that are computed do not.
    """
    computed = {
        f"{side}/position_encodings/encodings"
        for side in ("encoder", "decoder")
        if not isinstance(getattr(model, side).embed_positions, LearnedPositionalEmbedding)
    }
    arrays = make_spec(model).variables()
    total: int = sum(
        array.size
        for name, array in arrays.items()
        if isinstance(array, np.ndarray) and name not in computed
    )
    decoder: Any = model.decoder
    weights: tuple[Tensor, ...] = (
        model.encoder.embed_tokens.weight,
        decoder.embed_tokens.weight,
        decoder.output_projection.weight,
    )
    distinct = {weight.data_ptr(): weight.numel() for weight in weights}
    return total - sum(weight.numel() for weight in weights) + sum(distinct.values())


def _layers(model: TransformerModel, side: str, plan: PruningPlan) -> dict[int, int]:
    """The kept layers: for each module, the number of its layer in the plan.

    Raises:
        UsageError: there is none.
    """
    component = "EL" if side == "encoder" else "DL"
    form = str(getattr(model.cfg, "head_form", "remove"))
    present = layers_present(plan, component, form)
    kept = {
        position: layer for position, layer in enumerate(present) if plan.kept[component][layer]
    }
    if not kept:
        raise UsageError(f"CTranslate2 needs a layer in the {side}, and all are pruned")
    return kept


def _require_expressible(model: TransformerModel) -> None:
    if type(model) not in (TransformerModel, HeadPrunedTransformerModel):
        raise UsageError(f"CTranslate2 cannot express fairseq's {type(model).__name__}")
    cfg = model.cfg
    unsupported = {
        "--cross-self-attention": cfg.cross_self_attention,
        "--no-cross-attention": cfg.no_cross_attention,
        "--adaptive-softmax-cutoff": cfg.adaptive_softmax_cutoff is not None,
        "--adaptive-input": cfg.adaptive_input,
        "--decoder-output-dim other than --decoder-embed-dim": cfg.decoder.output_dim
        != cfg.decoder.embed_dim,
        f"--activation-fn {cfg.activation_fn}": cfg.activation_fn not in ACTIVATIONS,
    }
    for option, is_used in unsupported.items():
        if is_used:
            raise UsageError(f"CTranslate2 cannot express a model with {option}")


class _Weights:
    """The weights of a model, with a record of those already converted."""

    def __init__(self, model: TransformerModel) -> None:
        self._model = model
        self._state: dict[str, Tensor] = model.state_dict()
        self._left = {name for name in self._state if not name.endswith(".version")}

    def _tensor(self, name: str) -> Tensor:
        self._left.discard(name)
        return self._state[name].detach().float()

    def take(self, name: str) -> np.ndarray:
        """A copy of the weight as an array, because quantisation works in place."""
        return self._tensor(name).numpy().copy()

    def linear(self, spec: LinearSpec, name: str) -> None:
        spec.weight = self.take(f"{name}.weight")
        if f"{name}.bias" in self._state:
            spec.bias = self.take(f"{name}.bias")

    def feed_forward(self, spec: Any, prefix: str, *, kept: Sequence[int]) -> None:
        """Both projections of a feed-forward sub-layer, without pruned neurons.

        The library takes a width for each layer.
        """
        bias = self._tensor(f"{prefix}.fc2.bias")
        if kept:
            parts = {key: self._tensor(f"{prefix}.{key}") for key in NEURON_DIMENSION}
            neurons = parts["fc1.bias"].numel()
            if neurons > len(kept):  # form mask
                parts = {
                    key: cut(parts[key], kept, units=neurons, dim=dim)
                    for key, dim in NEURON_DIMENSION.items()
                }
        else:
            # The library needs a neuron, and int16 divides each matrix by its largest entry: none
            # may be all zeros. Two equal neurons whose outputs cancel each other do.
            self.leave_out(f"{prefix}.fc1.")
            self.leave_out(f"{prefix}.fc2.")
            parts = {
                "fc1.weight": torch.zeros(2, bias.numel()).index_fill_(1, torch.tensor([0]), 1.0),
                "fc1.bias": torch.zeros(2),
                "fc2.weight": torch.zeros(bias.numel(), 2),
            }
            parts["fc2.weight"][0] = torch.tensor([1.0, -1.0])
        spec.linear_0.weight = parts["fc1.weight"].numpy().copy()
        spec.linear_0.bias = parts["fc1.bias"].numpy().copy()
        spec.linear_1.weight = parts["fc2.weight"].numpy().copy()
        spec.linear_1.bias = bias.numpy().copy()

    def leave_out(self, prefix: str) -> None:
        """Mark the weights with this prefix as done; they belong to pruned units only."""
        self._left = {name for name in self._left if not name.startswith(prefix)}

    def layer_norm(self, spec: LayerNormSpec, name: str) -> None:
        spec.gamma = self.take(f"{name}.weight")
        spec.beta = self.take(f"{name}.bias")

    def positions(self, name: str) -> np.ndarray:
        """Position encodings, positions x C, the first position first."""
        module: Any = getattr(self._model, name)
        length = module.max_source_positions if name == "encoder" else module.max_target_positions
        embed = module.embed_positions
        if embed is None:  # the library would make its own
            return np.zeros((length, module.embed_tokens.embedding_dim), dtype=np.float32)
        first = embed.padding_idx + 1
        if isinstance(embed, SinusoidalPositionalEmbedding):
            table: Tensor = embed.get_embedding(
                first + length, embed.embedding_dim, embed.padding_idx
            )
            return table[first:].numpy()
        return self.take(f"{name}.embed_positions.weight")[first:]

    def attention(
        self,
        spec: Any,
        module: MultiheadAttention,
        name: str,
        *,
        kept: Sequence[int],
        stack_heads: int,
    ) -> None:
        """An attention and the layer norm beside it, filled up to ``stack_heads`` heads."""
        parts = {
            key: self._filled(module, f"{name}.{key}", key, dim, kept, stack_heads)
            for key, dim in HEAD_DIMENSION.items()
        }
        if not kept:
            # int16 divides each matrix by its largest entry: none may be all zeros. The values
            # still are, and so is what comes of them.
            for key in ("q_proj.weight", "k_proj.weight", "out_proj.weight"):
                parts[key][0, 0] = 1
        fused = len(spec.linear) == 2  # self-attention: one matrix for the three
        groups = [("q_proj", "k_proj", "v_proj")] if fused else [("q_proj",), ("k_proj", "v_proj")]
        for linear, group in zip(spec.linear, groups, strict=False):
            linear.weight = torch.cat(
                [parts[f"{projection}.weight"] for projection in group]
            ).numpy()
            linear.bias = torch.cat([parts[f"{projection}.bias"] for projection in group]).numpy()
        spec.linear[-1].weight = parts["out_proj.weight"].numpy()
        spec.linear[-1].bias = self.take(f"{name}.out_proj.bias")
        self.layer_norm(spec.layer_norm, f"{name}_layer_norm")

    def _filled(
        self,
        module: MultiheadAttention,
        name: str,
        key: str,
        dim: int,
        kept: Sequence[int],
        stack_heads: int,
    ) -> Tensor:
        if name in self._state:
            tensor = self._tensor(name)
            if tensor.size(dim) > len(kept) * module.head_dim:  # form mask
                tensor = cut(tensor, kept, units=module.num_heads, dim=dim)
        else:  # an attention without heads has no such projection
            inputs = {"q": module.embed_dim, "k": module.kdim, "v": module.vdim}[key[0]]
            tensor = torch.zeros((0, inputs) if key.endswith("weight") else (0,))
        places = range(len(kept))
        return uncut(tensor, places, units=stack_heads, unit_size=module.head_dim, dim=dim)

    def require_all_taken(self) -> None:
        """Raise a UsageError if a weight was not converted: the outputs would differ."""
        if self._left:
            raise UsageError(
                f"CTranslate2 cannot express this model: it has no place for {min(self._left)}"
            )
