"""Small models for the tests, built as fairseq builds them."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY

import fairseq_plugin  # noqa: F401  (registers the architecture)

WORDS = 20


@dataclass
class Task:
    """What build_model looks at of a task."""

    source_dictionary: Dictionary
    target_dictionary: Dictionary


def dictionary(words: int = WORDS) -> Dictionary:
    result = Dictionary()
    for i in range(words):
        result.add_symbol(f"w{i}")
    return result


SIZES = dict(
    encoder_embed_dim=32,
    encoder_ffn_embed_dim=48,
    encoder_layers=2,
    encoder_attention_heads=4,
    decoder_layers=2,
    decoder_embed_dim=32,
    decoder_ffn_embed_dim=48,
    decoder_attention_heads=4,
    dropout=0.0,
)

SHAPE = {"ES": (4, 4), "ED": (4, 4), "DS": (4, 4)}


def build(arch: str = "transformer_headpruned", *, seed: int = 0, **options: Any) -> Any:
    """A model from a fixed random state; ``options`` are fairseq's."""
    args = Namespace(arch=arch, **{**SIZES, **options})
    ARCH_CONFIG_REGISTRY[arch](args)
    words = dictionary()
    torch.manual_seed(seed)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, Task(words, words))


def batch(*, sentences: int = 5, length: int = 7, seed: int = 0) -> dict[str, torch.Tensor]:
    """Source (left-padded) and target (right-padded) token numbers of uneven lengths."""
    generator = torch.Generator().manual_seed(seed)
    d = dictionary()
    source = torch.randint(d.nspecial, len(d), (sentences, length), generator=generator)
    target = torch.randint(d.nspecial, len(d), (sentences, length + 1), generator=generator)
    source[:, -1] = d.eos()
    target[:, 0] = d.eos()
    for i in range(sentences):
        source[i, : i % 3] = d.pad()
        if i % 2:
            target[i, -(i % 4) :] = d.pad()
    return {
        "src_tokens": source,
        "src_lengths": source.ne(d.pad()).sum(1),
        "prev_output_tokens": target,
    }
