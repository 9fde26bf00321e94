"""Tiny models with random weights, one for each family, and a batch with padding."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModel, MarianModel, MarianMTModel, PreTrainedModel

from headprune import HeadPlan

LAYERS, HEADS, SIZE = 3, 4, 6

SIZES: dict[str, Any] = dict(
    vocab_size=40,
    hidden_size=HEADS * SIZE,
    num_hidden_layers=LAYERS,
    num_attention_heads=HEADS,
    intermediate_size=16,
    max_position_embeddings=32,
    pad_token_id=0,
)
_ENCODER_DECODER: dict[str, Any] = dict(
    vocab_size=40,
    d_model=HEADS * SIZE,
    encoder_layers=LAYERS,
    decoder_layers=LAYERS,
    encoder_attention_heads=HEADS,
    decoder_attention_heads=HEADS,
    encoder_ffn_dim=16,
    decoder_ffn_dim=16,
    max_position_embeddings=32,
    pad_token_id=0,
    bos_token_id=1,
    eos_token_id=2,
)
OPTIONS: dict[str, dict[str, Any]] = {
    "electra": dict(embedding_size=8),
    "distilbert": dict(
        vocab_size=40,
        dim=HEADS * SIZE,
        n_layers=LAYERS,
        n_heads=HEADS,
        hidden_dim=16,
        max_position_embeddings=32,
    ),
    "deberta-v2": dict(
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_buckets=4,
        pooler_hidden_size=24,
    ),
    "modernbert": dict(global_attn_every_n_layers=2, local_attention=4),
    "bart": dict(_ENCODER_DECODER),
    "marian": dict(_ENCODER_DECODER, decoder_start_token_id=1),
}
FAMILIES = (
    *("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert"),
    *("deberta-v2", "modernbert", "bart", "marian"),
)
EAGER_ONLY = ("deberta-v2",)
SHAPE = {"ES": (HEADS,) * LAYERS}

SOME = HeadPlan(kept={"ES": [(0, 2, 3), (), (1,)]}, heads=SHAPE)
NONE = HeadPlan(kept={"ES": [(), (), ()]}, heads=SHAPE)


def shape_of(family: str) -> dict[str, tuple[int, ...]]:
    components = ("ES", "ED", "DS") if family in ("bart", "marian") else ("ES",)
    return dict.fromkeys(components, (HEADS,) * LAYERS)


def plan_for(family: str, plan: HeadPlan) -> HeadPlan:
    """The like of ``plan`` for all components of a family, with its layers in another order."""
    layers = plan.kept["ES"]
    kept = {"ES": layers, "ED": layers[::-1], "DS": (layers[1], layers[0], layers[2])}
    shape = shape_of(family)
    return HeadPlan(kept={name: kept[name] for name in shape}, heads=shape)


def config_of(family: str, **options: Any) -> Any:
    sizes = {} if family in ("distilbert", "bart", "marian") else SIZES
    return AutoConfig.for_model(family, **{**sizes, **OPTIONS.get(family, {}), **options})


def build(family: str, auto: Any = AutoModel, *, seed: int = 1, **options: Any) -> PreTrainedModel:
    """A model in evaluation mode with weights large enough for every head to matter."""
    attention = "eager" if family in EAGER_ONLY else options.pop("attn_implementation", "sdpa")
    options.pop("attn_implementation", None)
    torch.manual_seed(seed)
    config = config_of(family, **options)
    model = auto.from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not (family == "marian" and "embed_positions" in name):  # not saved: sine waves
                parameter.normal_(std=0.3)
    return model


def batch() -> dict[str, torch.Tensor]:
    """Two sentences of seven tokens, the second with two of padding."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(2, 40, (2, 7), generator=generator)
    mask = torch.ones_like(ids)
    ids[1, 5:], mask[1, 5:] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def require_prefixes(prefixed: Any) -> None:
    """Skip a test where peft cannot compute an unpruned model with a prefix.

    peft 0.21 does not know the name that the key-value cache has since transformers 5.24.
    """
    try:
        prefixed(**batch())
    except ValueError as problem:
        pytest.skip(f"peft does not serve the unpruned model of this transformers: {problem}")


def first(model: PreTrainedModel, **options: Any) -> torch.Tensor:
    """The model's first output: hidden states, or a task head's logits."""
    if isinstance(model, (MarianModel, MarianMTModel)):
        options["decoder_input_ids"] = batch()["input_ids"][:, :4]
    return model(**batch(), **options)[0]


def clone(model: PreTrainedModel) -> PreTrainedModel:
    return copy.deepcopy(model)
