"""The sizes of a model, which its FLOPs and its number of parameters follow from."""

from __future__ import annotations

from typing import Any

from torch import nn
from transformers import PreTrainedModel

from headprune.components import layers_of, side_of
from headprune.cost import Sizes
from hf_plugin.cutting import rows_of
from hf_plugin.families import (
    attentions,
    family_of,
    feed_forwards,
    passes_through_layers,
    stacks,
    sublayers,
)
from hf_plugin.head_names import FEED_FORWARD, has_one_stack
from hf_plugin.random_batches import encoder_positions

_UNCOUNTED = {
    "mobilebert": "the bottlenecks of MobileBERT",
    "canine": "the layers of CANINE, which run on shortened texts,",
}
"""Families whose FLOPs do not follow from their widths; see ``Sizes.uncounted``."""


def sizes_of(model: PreTrainedModel) -> Sizes:
    """The widths of an unpruned model, and the parameters of its units.

    Args:
        model: the model; it may be on the meta device.
    """
    family = family_of(model)
    sizes = {**_attention(model), **_feed_forward(model, family), **_layers(model, family)}
    if "DS" in attentions(model):
        output = model.get_output_embeddings()
        sizes["vocabulary"] = getattr(output, "out_features", 0)
    else:
        sizes["vocabulary"] = 0
        sizes["encoder_output_weights"] = _output_weights(model)
    if (positions := encoder_positions(model)) is not None:
        sizes["encoder_positions"] = positions
    if family == "deberta-v2":
        sizes |= _relative_positions(model)
    if family == "xmod":
        sizes |= _adapter(model)
    return Sizes(
        **sizes,
        encoder_passes=passes_through_layers(model),
        uncounted=_uncounted(model, family),
    )


def _attention(model: PreTrainedModel) -> dict[str, int]:
    """The widths of the lowest layer of attention of each component."""
    sizes: dict[str, int] = {}
    by_component = attentions(model)
    for component, layers in by_component.items():
        side, attention = side_of(component), layers[0]
        sizes[f"{side}_width"] = rows_of(attention.output).size(0)
        sizes[f"{side}_heads"] = attention.units
        sizes[f"{side}_head_dim"] = attention.unit_size
        sizes[f"{side}_key_dim"] = attention.key_size
        sizes[f"{side}_head_parameters"] = attention.parameters_per_unit
        for stream in attention.companions:
            sizes[f"{side}_companion_width"] = rows_of(stream.output).size(0)
            sizes[f"{side}_companion_head_dim"] = stream.unit_size
    if "ED" in by_component:
        sizes["cross_heads"] = by_component["ED"][0].units
    if "ES" not in by_component:  # ED attends to an encoder as wide as the decoder
        sizes["encoder_width"] = sizes["decoder_width"]
    return sizes


def _feed_forward(model: PreTrainedModel, family: str) -> dict[str, int]:
    """The widths of the lowest feed-forward layer of each component."""
    sizes: dict[str, int] = {}
    for component, layers in feed_forwards(model).items():
        side, lowest = side_of(component), layers[0]
        weights = sum(each.weight.numel() for each in (*lowest.inputs, lowest.output))
        sizes[f"{side}_feed_forward"] = lowest.units
        sizes[f"{side}_projections"] = weights // rows_of(lowest.output).numel()
        sizes[f"{side}_neuron_parameters"] = lowest.parameters_per_unit
        if lowest.companion:
            weights = sum(rows_of(each).numel() for each in lowest.companion)
            sizes[f"{side}_companion_weights"] = weights
    for component in _unusual_feed_forwards(model, family):
        sizes[f"{side_of(component)}_feed_forward"] = 0  # their weights are those of the layers
    return sizes


def _unusual_feed_forwards(model: PreTrainedModel, family: str) -> list[str]:
    """The components of neurons that a model with such layers lacks, unlike its family."""
    present, layers = feed_forwards(model), stacks(model)
    return [
        component
        for component in FEED_FORWARD[family]
        if component not in present and layers_of(component) in layers
    ]


def _layers(model: PreTrainedModel, family: str) -> dict[str, int]:
    """The parameters of the top layer of each stack, without those of its units."""
    sizes: dict[str, int] = {}
    for component, stack in stacks(model).items():
        rest = count_parameters(stack[-1].module)
        for name, sublayers_of_stack in sublayers(model).items():
            # Where one stack is encoder and decoder, its attention to an encoder is in it too.
            if side_of(name) == side_of(component) or (name == "ED" and has_one_stack(family)):
                top = sublayers_of_stack[-1]
                rest -= top.units * top.parameters_per_unit
        sizes[f"{side_of(component)}_layer_parameters"] = rest
    return sizes


def _output_weights(model: PreTrainedModel) -> int:
    """Weights of an encoder's layers that predict tokens: the vocabulary's, and those beside it."""
    output = model.get_output_embeddings()
    path = next((name for name, module in model.named_modules() if module is output), None)
    if path is None:
        return 0
    encoder = {*model.base_model.modules()}
    layers = model.get_submodule(path.rpartition(".")[0]).modules()
    return sum(
        layer.weight.numel()
        for layer in layers
        if isinstance(layer, nn.Linear) and layer not in encoder
    )


def _relative_positions(model: PreTrainedModel) -> dict[str, int]:
    """The products of DeBERTa's attention with the embeddings of relative positions."""
    attention: Any = attentions(model)["ES"][0].module
    if not attention.relative_attention:
        return {}
    products = len({"c2p", "p2c"} & {*attention.pos_att_type})
    return {
        "encoder_relative_positions": 2 * attention.pos_ebd_size,
        "encoder_relative_products": products,
        # With the weights of queries and keys, both are projected, whatever is used.
        "encoder_relative_projections": 2 if attention.share_att_key else products,
    }


def _adapter(model: PreTrainedModel) -> dict[str, int]:
    """The weights of an adapter of X-MOD: each text goes through that of one language."""
    layer: Any = stacks(model)["EL"][0].module
    adapter = next(iter(layer.output.adapter_modules.values()))
    weights = adapter.dense1.weight.numel() + adapter.dense2.weight.numel()
    return {"encoder_companion_weights": weights}


def _uncounted(model: PreTrainedModel, family: str) -> str | None:
    """The part of a model whose FLOPs do not follow from its widths; see ``Sizes.uncounted``."""
    config: Any = model.config
    if _unusual_feed_forwards(model, family):  # DINOv2 with SwiGLU
        return f"the feed-forward layers of {type(model).__name__}, which are of another kind,"
    if family == "vit_mae" and hasattr(model, "decoder"):
        return "the layers of ViT-MAE's decoder"
    if family == "opt" and config.word_embed_proj_dim != config.hidden_size:  # OPT-350m
        return "the projections of OPT's embeddings, which have another width than its layers,"
    return _UNCOUNTED.get(family)


def count_parameters(model: nn.Module) -> int:
    """The number of parameters of a model; those that are tied to one another count once."""
    return sum(parameter.numel() for parameter in model.parameters())
