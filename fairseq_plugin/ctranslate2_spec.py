"""From fairseq's Transformer, head-pruned or not, to CTranslate2's.

CTranslate2 has one number of heads for the encoder and one for the decoder, whose DS and ED share
it. Layers that keep fewer heads are filled up with heads of zeros, whose outputs are zero. The
width of a head must be told: the library would divide the model's width by the number of heads.
"""

from __future__ import annotations

from collections.abc import Sequence
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
from fairseq.modules import MultiheadAttention
from fairseq.modules.sinusoidal_positional_embedding import SinusoidalPositionalEmbedding
from torch import Tensor

from fairseq_plugin.fitting import HEAD_DIMENSION
from fairseq_plugin.models.transformer_headpruned import HeadPrunedTransformerModel
from fairseq_plugin.shape import model_shape
from headprune.errors import UsageError
from headprune.plan import HeadPlan
from headprune.surgery import cut, uncut

ACTIVATIONS = {
    "relu": Activation.RELU,
    "gelu": Activation.GELU,
    "gelu_accurate": Activation.GELUTanh,
    "gelu_fast": Activation.GELUTanh,
    "tanh": Activation.Tanh,
}
"""Activations of feed-forward layers, by fairseq's names."""


def plan_of(model: TransformerModel) -> HeadPlan:
    """The heads that the model keeps."""
    if isinstance(model, HeadPrunedTransformerModel):
        return model.head_plan
    return HeadPlan.full(model_shape(model.args))


def vocabulary(dictionary: Dictionary) -> list[str]:
    """The tokens in the order of their numbers, under the names that CTranslate2 expects."""
    return ["<blank>" if token == "<pad>" else token for token in dictionary.symbols]


def make_spec(model: TransformerModel) -> TransformerSpec:
    """CTranslate2's model with the weights of ``model``, in float32; the two share no memory.

    Raises:
        UsageError: the model has something that CTranslate2's Transformer has not.
    """
    _require_expressible(model)
    cfg = model.cfg
    plan = plan_of(model)
    heads = {
        "encoder": max(1, *plan.counts["ES"]),
        "decoder": max(1, *plan.counts["ED"], *plan.counts["DS"]),
    }
    encoder = TransformerEncoderSpec(
        len(model.encoder.layers),
        heads["encoder"],
        head_dim=model.encoder.layers[0].self_attn.head_dim,
        pre_norm=cfg.encoder.normalize_before,
        activation=ACTIVATIONS[cfg.activation_fn],
        layernorm_embedding=cfg.layernorm_embedding,
    )
    decoder = TransformerDecoderSpec(
        len(model.decoder.layers),
        heads["decoder"],
        head_dim=model.decoder.layers[0].self_attn.head_dim,
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
        for layer, (spec, block) in enumerate(zip(stack.layer, module.layers, strict=True)):
            prefix = f"{name}.layers.{layer}"
            component = "ES" if name == "encoder" else "DS"
            weights.attention(
                spec.self_attention,
                block.self_attn,
                f"{prefix}.self_attn",
                kept=plan.kept[component][layer],
                stack_heads=heads[name],
            )
            if name == "decoder":
                weights.attention(
                    spec.attention,
                    block.encoder_attn,
                    f"{prefix}.encoder_attn",
                    kept=plan.kept["ED"][layer],
                    stack_heads=heads[name],
                )
            weights.linear(spec.ffn.linear_0, f"{prefix}.fc1")
            weights.linear(spec.ffn.linear_1, f"{prefix}.fc2")
            weights.layer_norm(spec.ffn.layer_norm, f"{prefix}.final_layer_norm")
    weights.linear(decoder.projection, "decoder.output_projection")
    weights.require_all_taken()

    spec = TransformerSpec(encoder, decoder)
    spec.register_source_vocabulary(vocabulary(model.encoder.dictionary))
    spec.register_target_vocabulary(vocabulary(model.decoder.dictionary))
    # fairseq ends sources with </s>, and begins targets with it.
    spec.config.add_source_eos = True
    spec.config.decoder_start_token = spec.config.eos_token
    return spec


def _require_expressible(model: TransformerModel) -> None:
    if type(model) not in (TransformerModel, HeadPrunedTransformerModel):
        raise UsageError(f"CTranslate2 cannot express fairseq's {type(model).__name__}")
    cfg = model.cfg
    lacks = {
        "--cross-self-attention": cfg.cross_self_attention,
        "--no-cross-attention": cfg.no_cross_attention,
        "--adaptive-softmax-cutoff": cfg.adaptive_softmax_cutoff is not None,
        "--adaptive-input": cfg.adaptive_input,
        "--decoder-output-dim other than --decoder-embed-dim": cfg.decoder.output_dim
        != cfg.decoder.embed_dim,
        f"--activation-fn {cfg.activation_fn}": cfg.activation_fn not in ACTIVATIONS,
    }
    for option, there in lacks.items():
        if there:
            raise UsageError(f"CTranslate2 cannot express a model with {option}")


class _Weights:
    """The weights of a model, and which of them have found a place."""

    def __init__(self, model: TransformerModel) -> None:
        self._model = model
        self._state: dict[str, Tensor] = model.state_dict()
        self._left = {
            name for name in self._state if not name.endswith((".version", ".kept_heads"))
        }

    def _tensor(self, name: str) -> Tensor:
        self._left.discard(name)
        return self._state[name].detach().float()

    def take(self, name: str) -> np.ndarray:
        """The weight as an array of its own: quantisation works in place."""
        return self._tensor(name).numpy().copy()

    def linear(self, spec: LinearSpec, name: str) -> None:
        spec.weight = self.take(f"{name}.weight")
        if f"{name}.bias" in self._state:
            spec.bias = self.take(f"{name}.bias")

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
                tensor = cut(tensor, kept, heads=module.num_heads, dim=dim)
        else:  # an attention without heads has no such projection
            inputs = {"q": module.embed_dim, "k": module.kdim, "v": module.vdim}[key[0]]
            tensor = torch.zeros((0, inputs) if key.endswith("weight") else (0,))
        places = range(len(kept))
        return uncut(tensor, places, heads=stack_heads, head_dim=module.head_dim, dim=dim)

    def require_all_taken(self) -> None:
        """Raise a UsageError if a weight has found no place: the result would compute otherwise."""
        if self._left:
            raise UsageError(
                f"CTranslate2 cannot express this model: it has no place for {min(self._left)}"
            )
