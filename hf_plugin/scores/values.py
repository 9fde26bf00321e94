"""What all scores of a model share: how it is run, what counts, and where the numbers go."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headprune.scores.head_scores import Values
from hf_plugin.families import Attention
from hf_plugin.scores.losses import IGNORED


@contextmanager
def evaluating(model: PreTrainedModel) -> Iterator[None]:
    """The model without dropout, within this context."""
    training = model.training
    model.eval()
    try:
        yield
    finally:
        model.train(training)


def mask_of(component: str, batch: Mapping[str, Tensor]) -> Tensor:
    """Which positions are real tokens, on the side of the component's queries: B x T, bool."""
    if component == "ES":
        mask = batch.get("attention_mask")
        return batch["input_ids"].ne(-1) if mask is None else mask.bool()
    mask = batch.get("decoder_attention_mask")
    if mask is not None:
        return mask.bool()
    if "labels" in batch:
        return batch["labels"].ne(IGNORED)
    return batch["decoder_input_ids"].ne(-1)


Sums = dict[str, list[Tensor]]
"""For each component, for each layer, a number (H',) for each head that has weights."""


def no_sums(found: Mapping[str, tuple[Attention, ...]]) -> Sums:
    """Zeros to add to."""
    return {
        name: [torch.zeros(len(attention.present), dtype=torch.float64) for attention in layers]
        for name, layers in found.items()
    }


def means(
    found: Mapping[str, tuple[Attention, ...]], sums: Sums, *, counted: Mapping[str, int]
) -> Values:
    """The sums, each divided by what was counted of its component."""
    divided = {
        name: [total / max(counted[name], 1) for total in layers] for name, layers in sums.items()
    }
    return as_values(found, divided)


def as_values(
    found: Mapping[str, tuple[Attention, ...]], numbers: Mapping[str, Sequence[Tensor]]
) -> Values:
    """For each component and layer numbers (H',) of the heads that have weights, put in place."""
    values: dict[str, list[list[float | None]]] = {}
    for name, layers in found.items():
        values[name] = []
        for attention, row in zip(layers, numbers[name], strict=True):
            by_head = dict(zip(attention.present, row.tolist(), strict=True))
            values[name].append(
                [
                    by_head[head] if head in attention.kept else None
                    for head in range(attention.heads)
                ]
            )
    return values
