"""How many heads a fairseq model has, by its options."""

from __future__ import annotations

from typing import Any

ATTENTIONS = {
    "ES": ("encoder", "self_attn"),
    "ED": ("decoder", "encoder_attn"),
    "DS": ("decoder", "self_attn"),
}
"""For each component, the side of the model and the module of its attentions."""


def model_shape(args: Any) -> dict[str, tuple[int, ...]]:
    """The heads of each layer of the unpruned model that ``args`` describe."""
    encoder = (args.encoder_attention_heads,) * args.encoder_layers
    decoder = (args.decoder_attention_heads,) * args.decoder_layers
    if getattr(args, "no_cross_attention", False):
        return {"ES": encoder, "DS": decoder}
    return {"ES": encoder, "ED": decoder, "DS": decoder}
