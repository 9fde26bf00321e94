"""The units of a fairseq model by its options, and the modules that they belong to."""

from __future__ import annotations

from typing import Any

from headprune.components import layers_of
from headprune.cost import Sizes
from headprune.plan import PruningPlan

ATTENTIONS = {
    "ES": ("encoder", "self_attn"),
    "ED": ("decoder", "encoder_attn"),
    "DS": ("decoder", "self_attn"),
}
"""For each component of heads, the side of the model and the module of its attentions."""


def model_shape(args: Any) -> dict[str, tuple[int, ...]]:
    """The units of each layer of the unpruned model that ``args`` describe."""
    encoder, decoder = args.encoder_layers, args.decoder_layers
    shape = {
        "ES": (args.encoder_attention_heads,) * encoder,
        "ED": (args.decoder_attention_heads,) * decoder,
        "DS": (args.decoder_attention_heads,) * decoder,
        "EF": (args.encoder_ffn_embed_dim,) * encoder,
        "DF": (args.decoder_ffn_embed_dim,) * decoder,
        "EL": (1,) * encoder,
        "DL": (1,) * decoder,
    }
    if getattr(args, "no_cross_attention", False):
        del shape["ED"]
    return shape


def complete_plan(plan: PruningPlan, args: Any) -> PruningPlan:
    """A model's plan with all components of the model; dropped layers keep no unit."""
    return plan.units_left(model_shape(args))


def unit_sizes(args: Any) -> dict[str, int]:
    """The number of rows or columns of one unit in each component: the width of a head, or 1."""
    encoder = args.encoder_embed_dim // args.encoder_attention_heads
    decoder = args.decoder_embed_dim // args.decoder_attention_heads
    return {"ES": encoder, "ED": decoder, "DS": decoder, "EF": 1, "DF": 1}


def output_width(args: Any) -> int:
    """The width of the decoder's output; models of older versions of fairseq do not name it.

    fairseq's command line gives it as text.
    """
    return int(getattr(args, "decoder_output_dim", None) or args.decoder_embed_dim)


def layers_present(plan: PruningPlan, component: str, form: str | None) -> tuple[int, ...]:
    """The numbers of the layers that a model has, in the order of its modules.

    Args:
        plan: the plan of the model.
        component: any component of the encoder or decoder that is in the plan.
        form: the form of the model; in form ``mask`` the model has and computes dropped layers.
    """
    kept = plan.kept.get(layers_of(component))
    if kept is None or form == "mask":
        return tuple(range(len(plan.units[component])))
    return tuple(layer for layer, units in enumerate(kept) if units)


def sizes_of(args: Any, *, vocabulary: int = 0) -> Sizes:
    """The widths of the model that ``args`` describe; ``vocabulary`` is its output projection's."""
    sizes = unit_sizes(args)
    return Sizes(
        encoder_width=args.encoder_embed_dim,
        decoder_width=args.decoder_embed_dim,
        encoder_feed_forward=args.encoder_ffn_embed_dim,
        decoder_feed_forward=args.decoder_ffn_embed_dim,
        encoder_head_dim=sizes["ES"],
        decoder_head_dim=sizes["DS"],
        cross_heads=None
        if getattr(args, "no_cross_attention", False)
        else args.decoder_attention_heads,
        vocabulary=vocabulary,
    )
