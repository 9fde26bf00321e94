"""The places of heads, neurons and layers in each family of Hugging Face models: two tables.

The names are those of transformers 5. This file is written beside each pruned model, for
``modeling_headpruned``, so it imports nothing of headprune.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

PREFIX = "headpruned-"
"""The beginning of the model type of a family's pruned models."""

CLASS_PREFIX = "HeadPruned"
"""The beginning of the names of their classes."""


@dataclass(frozen=True, kw_only=True)
class CompanionNames:
    """A family's names for the companion stream of one component's attentions: LiLT's layout.

    A companion stream is a second one of hidden states, of another width, with the same heads. A
    head adds the scores of both streams, and writes to both.

    Attributes:
        inputs: the stream's projections whose rows belong to heads, the queries' first.
        output: its projection whose columns belong to heads; computed after the other stream's.
        hidden_states: the argument of attention with its hidden states.
        shrink: the attribute of attention with r: the width of one head is d / r in this stream.
    """

    inputs: tuple[str, ...]
    output: str
    hidden_states: str
    shrink: str


@dataclass(frozen=True, kw_only=True)
class Names:
    """A family's names for the parts of one component's attentions, relative to a layer.

    Attributes:
        layers: the list of layers, from the base model.
        attention: the module that computes attention and keeps the numbers below.
        inputs: the projections whose rows belong to heads, the queries' first.
        output: the projection whose columns belong to heads.
        optional: further projections like ``inputs``, which not every configuration has.
        queries: those of ``all_inputs`` whose product with keys makes the scores.
        size: the attribute of ``attention`` with d, the width of one head; None where ``width`` and
            ``count`` alone say it.
        count: its attribute with the number of heads, where it keeps one.
        width: its attribute with heads times d, where it keeps one.
        norm: the module after ``output`` and the residual connection, after which a layer treats
            each token by itself; None if there is no such module.
        blocks: the number of projections in one of ``inputs``, one below the other.
        group: the attribute of ``attention`` with the number of query heads that share one head of
            keys and values. Whole groups are then pruned, and "head" means such a group. None where
            every head has its own keys and values.
        returns: what ``attention`` returns after its output, see ``headless``.
        bias: how ``attention`` gets position biases with a value for every head, see
            ``position_bias``; None where it has none.
        companion: the names for its companion stream; None where it has none.
    """

    layers: str
    attention: str
    inputs: tuple[str, ...]
    output: str
    size: str | None
    queries: tuple[str, ...]
    optional: tuple[str, ...] = ()
    count: str | None = None
    width: str | None = None
    norm: str | None = None
    blocks: int = 1
    group: str | None = None
    returns: str = "weights"
    bias: str | None = None
    companion: CompanionNames | None = None

    @property
    def all_inputs(self) -> tuple[str, ...]:
        """``inputs``, ``optional`` and those of the companion stream."""
        of_companion = self.companion.inputs if self.companion else ()
        return (*self.inputs, *self.optional, *of_companion)

    @property
    def outputs(self) -> tuple[str, ...]:
        """``output``, and that of the companion stream."""
        return (self.output, self.companion.output) if self.companion else (self.output,)


def unit_size(attention: object, names: Names) -> int:
    """The width of one unit of an attention: d, or that of all queries of a group.

    Args:
        attention: the module, as transformers or ``note_unit_size`` left it.
        names: those of its family.
    """
    if names.size is None:
        noted: int | None = getattr(attention, _NOTED_SIZE, None)
        width, count = (getattr(attention, name or "") for name in (names.width, names.count))
        return int(width // count if noted is None else noted)
    group = getattr(attention, names.group) if names.group else 1
    return int(getattr(attention, names.size) * group)


def note_unit_size(attention: object, names: Names) -> None:
    """Note the width of one unit where it cannot be read once all units are gone."""
    if names.size is None:
        setattr(attention, _NOTED_SIZE, unit_size(attention, names))


_NOTED_SIZE = "head_size_before_pruning"


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
        width: the config's entry with the number of neurons; None if none has it, or if other
            widths follow from it.
        whole_layers: whether ``layers`` are layers that can be dropped, rather than parts of them.
        blocks: the number of projections in ``inputs``, one below the other: 2 if it is gated.
        companion: the projections of a companion stream's sub-layer, which is not pruned.
    """

    layers: str
    feed_forward: str
    inputs: tuple[str, ...]
    output: str
    optional: tuple[str, ...] = ()
    depth: str = "num_hidden_layers"
    width: str | None = "intermediate_size"
    whole_layers: bool = True
    blocks: int = 1
    companion: tuple[str, ...] = ()


def _bert(*, norm: str | None = "attention.output", returns: str = "weights") -> dict[str, Names]:
    own = Names(
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
    # Of a decoder with ``add_cross_attention``, whose own attention stays ES.
    cross = replace(
        own,
        attention="crossattention.self",
        inputs=tuple(f"cross{name}" for name in own.inputs),
        queries=tuple(f"cross{name}" for name in own.queries),
        output="crossattention.output.dense",
        norm=None,
    )
    return {"ES": own, "ED": cross}


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


def _image(layers: str, *, bias: str | None = None) -> dict[str, Names]:
    return {
        "ES": Names(
            layers=layers,
            attention="attention",
            inputs=tuple(f"attention.{name}_proj" for name in "qkv"),
            queries=("attention.q_proj",),
            output="attention.o_proj",
            size="head_dim",
            count="num_attention_heads",
            bias=bias,
        )
    }


_LAYOUT = tuple(f"attention.self.layout_{name}" for name in ("query", "key", "value"))
_LILT_TEXT = _bert(returns="weights on request")["ES"]
_LILT = replace(
    _LILT_TEXT,
    queries=(*_LILT_TEXT.queries, _LAYOUT[0]),
    companion=CompanionNames(
        inputs=_LAYOUT,
        output="attention.layout_output.dense",
        hidden_states="layout_inputs",
        shrink="channel_shrink_ratio",
    ),
)
_GPT2 = Names(
    layers="h",
    attention="attn",
    inputs=("attn.c_attn",),
    queries=("attn.c_attn",),
    output="attn.c_proj",
    size="head_dim",
    count="num_heads",
    width="split_size",
    blocks=3,
)


def _t5(side: str, place: str, *, bias: str) -> Names:
    return Names(
        layers=f"{side}.block",
        attention=f"layer.{place}",
        inputs=tuple(f"layer.{place}.{name}" for name in "qkv"),
        queries=(f"layer.{place}.q",),
        output=f"layer.{place}.o",
        size="key_value_proj_dim",
        count="n_heads",
        width="inner_dim",
        returns="weights" if bias == "table" else "position bias, weights",
        bias=bias,
    )


def _of_t5(bias: str) -> dict[str, Names]:
    return {
        "ES": _t5("encoder", "0.SelfAttention", bias=bias),
        "ED": _t5("decoder", "1.EncDecAttention", bias=bias),
        "DS": _t5("decoder", "0.SelfAttention", bias=bias),
    }


_XLM = Names(
    layers="attentions",
    attention="",
    inputs=("q_lin", "k_lin", "v_lin"),
    queries=("q_lin",),
    output="out_lin",
    size="head_dim",
    count="n_heads",
    returns="weights on request",
)
_LLAMA = Names(
    layers="layers",
    attention="self_attn",
    inputs=tuple(f"self_attn.{name}_proj" for name in "qkv"),
    queries=("self_attn.q_proj",),
    output="self_attn.o_proj",
    size="head_dim",
    group="num_key_value_groups",
)
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
_LIKE_VIT = ("vit", "deit", "vit_mae", "audio-spectrogram-transformer")
_LIKE_XLM = ("xlm", "flaubert")
_LIKE_LLAMA = (
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"),
    *("granite", "smollm3"),
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
    "lilt": {"ES": _LILT},
    **dict.fromkeys(_LIKE_BART, _BART),
    **dict.fromkeys(_LIKE_VIT, _image("layers")),
    "beit": _image("layers", bias="mask"),
    "dinov2": _image("encoder.layer"),
    "yolos": {
        "ES": Names(
            layers="encoder.layer",
            attention="attention.attention",
            inputs=tuple(f"attention.attention.{name}" for name in ("query", "key", "value")),
            queries=("attention.attention.query",),
            output="attention.output.dense",
            size="attention_head_size",
            count="num_attention_heads",
            width="all_head_size",
        )
    },
    "clip_text_model": {"ES": _bart("encoder.layers", "self_attn")},
    "clip_vision_model": {"ES": _bart("encoder.layers", "self_attn")},
    "gpt2": {"DS": _GPT2},
    "openai-gpt": {
        "DS": replace(_GPT2, size=None, count="n_head", returns="list of weights on request")
    },
    "opt": {"DS": _bart("decoder.layers", "self_attn")},
    "biogpt": {"DS": _bart("layers", "self_attn")},
    **dict.fromkeys(("t5", "mt5"), _of_t5("shared table")),
    "umt5": _of_t5("table"),
    "mpnet": {
        "ES": Names(
            layers="encoder.layer",
            attention="attention.attn",
            inputs=tuple(f"attention.attn.{name}" for name in "qkv"),
            queries=("attention.attn.q",),
            output="attention.attn.o",
            size="attention_head_size",
            count="num_attention_heads",
            width="all_head_size",
            returns="weights on request",
            bias="argument",
        )
    },
    "albert": {
        "ES": Names(
            layers="encoder.albert_layer_groups",
            attention="albert_layers.0.attention",
            inputs=tuple(f"albert_layers.0.attention.{name}" for name in ("query", "key", "value")),
            queries=("albert_layers.0.attention.query",),
            output="albert_layers.0.attention.dense",
            size="attention_head_size",
            count="num_attention_heads",
            width="all_head_size",
        )
    },
    **dict.fromkeys(_LIKE_XLM, {"ES": _XLM}),
    **dict.fromkeys(_LIKE_LLAMA, {"DS": _LLAMA}),
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


def _image_feed_forward(layers: str, *, width: str | None) -> dict[str, FeedForwardNames]:
    return {
        "EF": FeedForwardNames(
            layers=layers,
            feed_forward="mlp",
            inputs=("mlp.fc1",),
            output="mlp.fc2",
            width=width,
        )
    }


def _t5_feed_forward(side: str, place: int, *, depth: str) -> FeedForwardNames:
    name = f"layer.{place}.DenseReluDense"
    return FeedForwardNames(
        layers=f"{side}.block",
        feed_forward=name,
        inputs=(),
        optional=(f"{name}.wi", f"{name}.wi_0", f"{name}.wi_1"),
        output=f"{name}.wo",
        depth=depth,
        width="d_ff",
    )


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
    "lilt": {
        "EF": replace(
            _BERT_FEED_FORWARD["EF"],
            width=None,  # that of the layout follows from it
            companion=("layout_intermediate.dense", "layout_output.dense"),
        )
    },
    **dict.fromkeys(_LIKE_BART, _BART_FEED_FORWARD),
    **dict.fromkeys((*_LIKE_VIT, "beit"), _image_feed_forward("layers", width="intermediate_size")),
    "dinov2": _image_feed_forward("encoder.layer", width=None),
    "yolos": _BERT_FEED_FORWARD,
    "mpnet": _BERT_FEED_FORWARD,
    "albert": {
        "EF": FeedForwardNames(
            layers="encoder.albert_layer_groups",
            feed_forward="albert_layers.0",
            inputs=("albert_layers.0.ffn",),
            output="albert_layers.0.ffn_output",
            whole_layers=False,
        )
    },
    **dict.fromkeys(
        ("t5", "mt5", "umt5"),
        {
            "EF": _t5_feed_forward("encoder", 1, depth="num_layers"),
            "DF": _t5_feed_forward("decoder", 2, depth="num_decoder_layers"),
        },
    ),
    "openai-gpt": {
        "DF": FeedForwardNames(
            layers="h",
            feed_forward="mlp",
            inputs=("mlp.c_fc",),
            output="mlp.c_proj",
            depth="n_layer",
            width=None,
        )
    },
    **dict.fromkeys(
        ("clip_text_model", "clip_vision_model"),
        _image_feed_forward("encoder.layers", width="intermediate_size"),
    ),
    "gpt2": {
        "DF": FeedForwardNames(
            layers="h",
            feed_forward="mlp",
            inputs=("mlp.c_fc",),
            output="mlp.c_proj",
            depth="n_layer",
            width="n_inner",
        )
    },
    "opt": {"DF": replace(_BART_FEED_FORWARD["DF"], depth="num_hidden_layers", width="ffn_dim")},
    "biogpt": {
        "DF": replace(
            _BART_FEED_FORWARD["DF"],
            layers="layers",
            depth="num_hidden_layers",
            width="intermediate_size",
        )
    },
    **dict.fromkeys(
        _LIKE_XLM,
        {
            "EF": FeedForwardNames(
                layers="ffns",
                feed_forward="",
                inputs=("lin1",),
                output="lin2",
                depth="n_layers",
                width=None,
                whole_layers=False,
            )
        },
    ),
    **dict.fromkeys(
        _LIKE_LLAMA,
        {
            "DF": FeedForwardNames(
                layers="layers",
                feed_forward="mlp",
                inputs=("mlp.gate_proj", "mlp.up_proj"),
                output="mlp.down_proj",
            )
        },
    ),
}
"""For each model type, and each of its components of neurons, the names of the parts."""


def has_one_stack(family: str) -> bool:
    """True if encoder and decoder are one list of layers, as in BERT with cross-attention."""
    names = FAMILIES[family]
    return {"ES", "ED"} <= set(names) and names["ES"].layers == names["ED"].layers


_LAYERS_WITH = {"EF": "EL", "DF": "DL"}


def layer_lists(family: str) -> dict[str, str]:
    """The name of the list of layers in the base model, for each component of whole layers."""
    return {
        _LAYERS_WITH[name]: names.layers
        for name, names in FEED_FORWARD[family].items()
        if names.whole_layers
    }
