"""The translation model that is measured: Transformer-Base with random weights."""

from __future__ import annotations

from argparse import Namespace
from types import SimpleNamespace
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models import ARCH_CONFIG_REGISTRY, ARCH_MODEL_REGISTRY
from fairseq.sequence_generator import SequenceGenerator
from torch import Tensor

import fairseq_plugin  # noqa: F401  (registers the architecture)
from benchmarks.measuring import device
from headprune import HeadPlan, select

SHAPE = dict.fromkeys(("ES", "ED", "DS"), (8,) * 6)
STOCK = "stock fairseq"
FULL = "all heads"
BFLOAT16 = ", bfloat16"
UNPRUNED = HeadPlan.full(SHAPE)
PLANS: dict[str, HeadPlan | None] = {
    STOCK: None,
    FULL: UNPRUNED,
    "50% pruned": select.at_random(SHAPE, percent=50, seed=1),
    "75% pruned": select.at_random(SHAPE, percent=75, seed=1),
    "one head a layer": select.at_random(SHAPE, keep=dict.fromkeys(SHAPE, "111111"), seed=1),
}
PLANS |= {name + BFLOAT16: PLANS[name] for name in (FULL, "75% pruned")}
BEAM = 4

Sample = dict[str, Tensor]


def dictionary(size: int) -> Dictionary:
    """A dictionary of ``size`` words that mean nothing."""
    words = Dictionary()
    for number in range(size - words.nspecial):
        words.add_symbol(str(number))
    return words


def build(plan: HeadPlan | None, words: Dictionary, **options: str) -> Any:
    """The model with the heads of ``plan``; None is stock fairseq's.

    Args:
        options: of the plugin's architecture, such as ``autocast="bf16"``.
    """
    arch = "transformer" if plan is None else "transformer_headpruned"
    args = Namespace(arch=arch, share_all_embeddings=True, dropout=0.1)
    if plan is not None:
        args.head_plan = plan.to_json()
        for name, value in options.items():
            setattr(args, name, value)
    ARCH_CONFIG_REGISTRY[arch](args)
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    torch.manual_seed(1)
    return ARCH_MODEL_REGISTRY[arch].build_model(args, task).to(device())


def build_named(name: str, words: Dictionary) -> Any:
    """The model of one of ``PLANS``, with ``--autocast bf16`` where its name says so."""
    return build(PLANS[name], words, autocast="bf16" if name.endswith(BFLOAT16) else "none")


def random_batch(words: Dictionary, *, sentences: int, length: int) -> Sample:
    """Sentences of ``length`` random words, to be translated into themselves backwards."""
    generator = torch.Generator().manual_seed(1)
    source = torch.randint(words.nspecial, len(words), (sentences, length), generator=generator).to(
        device()
    )
    return {
        "src_tokens": source,  # B x S
        "src_lengths": torch.full((sentences,), length, device=device()),
        "prev_output_tokens": source.flip(1),  # B x T
    }


def training_step(model: Any, batch: Sample) -> None:
    """Forward and backward pass over one batch."""
    model.train()
    model.zero_grad()
    logits = model(**batch)[0]
    torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch["prev_output_tokens"].flatten()
    ).backward()


def beam_search(model: Any, batch: Sample, words: Dictionary, *, beam: int = BEAM) -> None:
    """Translate a batch, each sentence into as many words as the source has: no step is spared."""
    model.eval()
    for layer in model.decoder.layers:
        layer.make_generation_fast_()  # as fairseq-generate does
    length = batch["src_tokens"].size(1)
    search = SequenceGenerator(
        [model], words, beam_size=beam, max_len_b=length, max_len_a=0, min_len=length
    )
    net_input = {key: batch[key] for key in ("src_tokens", "src_lengths")}
    with torch.no_grad():
        found = search.generate([model], {"net_input": net_input})
    assert {len(best["tokens"]) for sentence in found for best in sentence} == {length + 1}
