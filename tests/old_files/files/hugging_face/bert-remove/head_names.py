"""The places of the attention heads in each family of Hugging Face models: one table.

The names are those of transformers 5. This file is written beside each pruned model, for
``modeling_headpruned``, so it imports nothing of headprune.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

PREFIX = "headpruned-"
"""The beginning of the model type of a family's pruned models."""


@dataclass(frozen=True, kw_only=True)
class Names:
    """A family's names for the parts of one component's attentions, relative to a layer.

    Attributes:
        layers: the list of layers, from the base model.
        attention: the module that computes attention and keeps the numbers below.
        inputs: the projections whose rows belong to heads, the queries' first.
        output: the projection whose columns belong to heads.
        optional: further projections like ``inputs``, which not every configuration has.
        queries: those of ``inputs`` and ``optional`` whose product with keys makes the scores.
        size: the attribute of ``attention`` with d, the width of one head.
        count: its attribute with the number of heads, where it keeps one.
        width: its attribute with heads times d, where it keeps one.
        norm: the module after ``output`` and the residual connection, after which a layer treats
            each token by itself; None if there is no such module.
        blocks: how many projections one of ``inputs`` holds, one below the other.
    """

    layers: str
    attention: str
    inputs: tuple[str, ...]
    output: str
    size: str
    queries: tuple[str, ...]
    optional: tuple[str, ...] = ()
    count: str | None = None
    width: str | None = None
    norm: str | None = None
    blocks: int = 1


_BERT = {
    "ES": Names(
        layers="encoder.layer",
        attention="attention.self",
        inputs=("attention.self.query", "attention.self.key", "attention.self.value"),
        queries=("attention.self.query",),
        output="attention.output.dense",
        size="attention_head_size",
        count="num_attention_heads",
        width="all_head_size",
        norm="attention.output",
    )
}


def _bart(layers: str, attention: str) -> Names:
    return Names(
        layers=layers,
        attention=attention,
        inputs=tuple(f"{attention}.{name}_proj" for name in "qkv"),
        queries=(f"{attention}.q_proj",),
        output=f"{attention}.out_proj",
        size="head_dim",
        count="num_heads",
    )


_BART = {
    "ES": _bart("encoder.layers", "self_attn"),
    "ED": _bart("decoder.layers", "encoder_attn"),
    "DS": _bart("decoder.layers", "self_attn"),
}

FAMILIES: Mapping[str, Mapping[str, Names]] = {
    "bert": _BERT,
    "roberta": _BERT,
    "xlm-roberta": _BERT,
    "camembert": _BERT,
    "electra": _BERT,
    "distilbert": {
        "ES": Names(
            layers="transformer.layer",
            attention="attention",
            inputs=("attention.q_lin", "attention.k_lin", "attention.v_lin"),
            queries=("attention.q_lin",),
            output="attention.out_lin",
            size="attention_head_size",
            count="n_heads",
            norm="sa_layer_norm",
        )
    },
    "deberta-v2": {
        "ES": Names(
            layers="encoder.layer",
            attention="attention.self",
            inputs=tuple(f"attention.self.{name}_proj" for name in ("query", "key", "value")),
            optional=("attention.self.pos_key_proj", "attention.self.pos_query_proj"),
            queries=("attention.self.query_proj", "attention.self.pos_query_proj"),
            output="attention.output.dense",
            size="attention_head_size",
            count="num_attention_heads",
            width="all_head_size",
            norm="attention.output",
        )
    },
    "modernbert": {
        "ES": Names(
            layers="layers",
            attention="attn",
            inputs=("attn.Wqkv",),
            queries=("attn.Wqkv",),
            output="attn.Wo",
            size="head_dim",
            blocks=3,
        )
    },
    "bart": _BART,
    "marian": _BART,
}
"""For each model type, and each of its components, the names of the parts."""
