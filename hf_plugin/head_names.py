"""The places of heads, neurons and layers in each family of Hugging Face models: two tables.

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
        blocks: the number of projections in one of ``inputs``, one below the other.
        group: the attribute of ``attention`` with the number of query heads that share one head of
            keys and values; the unit is then this group, and all that is said of heads holds for
            groups. None where every head has its own.
        returns: what ``attention`` returns after its output, see ``headless``.
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
    group: str | None = None
    returns: str = "weights"


@dataclass(frozen=True, kw_only=True)
class FeedForwardNames:
    """A family's names for the parts of one stack's feed-forward sub-layers, relative to a layer.

    Attributes:
        layers: the list of layers, from the base model.
        feed_forward: the module that computes the sub-layer, and that the kept neurons are noted
            on; the empty name stands for the layer itself.
        inputs: the projection whose rows belong to neurons.
        optional: further projections like ``inputs``, which not every configuration has.
        output: the projection whose columns belong to neurons.
        depth: the config's entry with the number of layers.
        width: the config's entry with the number of neurons; None if none has it.
        blocks: the number of projections in ``inputs``, one below the other: 2 if it is gated.
    """

    layers: str
    feed_forward: str
    inputs: tuple[str, ...]
    output: str
    optional: tuple[str, ...] = ()
    depth: str = "num_hidden_layers"
    width: str | None = "intermediate_size"
    blocks: int = 1


def _bert(*, norm: str | None = "attention.output", returns: str = "weights") -> dict[str, Names]:
    return {
        "ES": Names(
            layers="encoder.layer",
            attention="attention.self",
            inputs=("attention.self.query", "attention.self.key", "attention.self.value"),
            queries=("attention.self.query",),
            output="attention.output.dense",
            size="attention_head_size",
            count="num_attention_heads",
            width="all_head_size",
            norm=norm,
            returns=returns,
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
_LIKE_BERT = (
    *("bert", "roberta", "xlm-roberta", "camembert", "electra", "ernie", "data2vec-text"),
    *("rembert", "roformer", "megatron-bert", "bert-generation", "roberta-prelayernorm"),
    *("xlm-roberta-xl", "xmod", "esm", "layoutlm", "markuplm"),
)
# Beyond the top layer's attention, tokens interact in these: in a head, or in further layers.
_LIKE_BERT_MIXING_LATER = ("splinter", "bros", "mobilebert")
_LIKE_BERT_ON_REQUEST = ("tapas", "visual_bert", "canine")
_LIKE_BART = (
    *("bart", "marian", "mbart", "pegasus", "m2m_100", "plbart", "blenderbot"),
    *("blenderbot-small", "whisper"),
)

FAMILIES: Mapping[str, Mapping[str, Names]] = {
    **dict.fromkeys(_LIKE_BERT, _bert()),
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
    **dict.fromkeys(_LIKE_BERT_MIXING_LATER, _bert(norm=None)),
    **dict.fromkeys(_LIKE_BERT_ON_REQUEST, _bert(norm=None, returns="weights on request")),
    **dict.fromkeys(_LIKE_BART, _BART),
}
"""For each model type, and each of its components, the names of the parts."""

_BERT_FEED_FORWARD = {
    "EF": FeedForwardNames(
        layers="encoder.layer",
        feed_forward="intermediate",
        inputs=("intermediate.dense",),
        output="output.dense",
    )
}
_BART_FEED_FORWARD = {
    component: FeedForwardNames(
        layers=f"{side}.layers",
        feed_forward="",
        inputs=("fc1",),
        output="fc2",
        depth=f"{side}_layers",
        width=f"{side}_ffn_dim",
    )
    for component, side in (("EF", "encoder"), ("DF", "decoder"))
}

FEED_FORWARD: Mapping[str, Mapping[str, FeedForwardNames]] = {
    **dict.fromkeys(
        (*_LIKE_BERT, *_LIKE_BERT_MIXING_LATER, *_LIKE_BERT_ON_REQUEST, "deberta-v2"),
        _BERT_FEED_FORWARD,
    ),
    "distilbert": {
        "EF": FeedForwardNames(
            layers="transformer.layer",
            feed_forward="ffn",
            inputs=("ffn.lin1",),
            output="ffn.lin2",
            depth="n_layers",
            width="hidden_dim",
        )
    },
    "modernbert": {
        "EF": FeedForwardNames(
            layers="layers", feed_forward="mlp", inputs=("mlp.Wi",), output="mlp.Wo", blocks=2
        )
    },
    **dict.fromkeys(_LIKE_BART, _BART_FEED_FORWARD),
}
"""For each model type, and each of its components of neurons, the names of the parts."""

_LAYERS_WITH = {"EF": "EL", "DF": "DL"}


def layer_lists(family: str) -> dict[str, str]:
    """The name of the list of layers in the base model, for each component of whole layers."""
    return {_LAYERS_WITH[name]: names.layers for name, names in FEED_FORWARD[family].items()}
