"""Tiny models with random weights, one for each family, and a batch with padding."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import AutoConfig, AutoModel, PreTrainedModel

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
}
FAMILIES = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
SHAPE = {"ES": (HEADS,) * LAYERS}

SOME = HeadPlan(kept={"ES": [(0, 2, 3), (), (1,)]}, heads=SHAPE)
NONE = HeadPlan(kept={"ES": [(), (), ()]}, heads=SHAPE)


def config_of(family: str, **options: Any) -> Any:
    sizes = {} if family == "distilbert" else SIZES
    return AutoConfig.for_model(family, **{**sizes, **OPTIONS.get(family, {}), **options})


def build(family: str, auto: Any = AutoModel, *, seed: int = 1, **options: Any) -> PreTrainedModel:
    """A model in evaluation mode with weights large enough for every head to matter."""
    attention = options.pop("attn_implementation", "sdpa")
    torch.manual_seed(seed)
    config = config_of(family, **options)
    model = auto.from_config(config, attn_implementation=attention).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def batch() -> dict[str, torch.Tensor]:
    """Two sentences of seven tokens, the second with two of padding."""
    generator = torch.Generator().manual_seed(5)
    ids = torch.randint(2, 40, (2, 7), generator=generator)
    mask = torch.ones_like(ids)
    ids[1, 5:], mask[1, 5:] = 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def first(model: PreTrainedModel, **options: Any) -> torch.Tensor:
    """The model's first output: hidden states, or a task head's logits."""
    return model(**batch(), **options)[0]


def clone(model: PreTrainedModel) -> PreTrainedModel:
    return copy.deepcopy(model)
