"""Scores from attention weights, worked out as they come: no map of a whole data set is kept.

All are means over queries that are real tokens; weights on padding are zero, and keys that are
padding do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from headprune.errors import DataError
from headprune.scores.head_scores import Values
from hf_plugin.families import Attention, attentions, family_of
from hf_plugin.scores.values import evaluating, mask_of, means, no_sums

Batch = Mapping[str, Tensor]

THRESHOLD = 0.01
"""Weights below it count as none for ``sparsity``."""

STATISTICS = ("confidence", "entropy", "sparsity", "hoyer", "distribution")
"""confidence: the largest weight (Voita et al. 2019). entropy: of the weights, in nats. sparsity:
share of the keys with a weight below the threshold. hoyer: Hoyer's sparsity of the weights (2004),
0 where they are even to 1 where one has all. distribution: Kullback-Leibler divergence, in nats, of
a head's weights from the mean of its layer's heads; redundant heads have little."""

_ON_REQUEST = ("deberta-v2",)
"""Families whose attention modules return their weights only when the model is asked for them."""


def attention_statistics(model: PreTrainedModel, batches: Iterable[Batch]) -> dict[str, Values]:
    """All of ``STATISTICS`` in one pass over the data.

    Args:
        model: it is evaluated without dropout and with eager attention, and left as it was.
        batches: model inputs. How the data are cut into batches does not matter.

    Raises:
        UsageError: a model that cannot be pruned.
        DataError: no data.
    """
    found = attentions(model)
    sums = {kind: no_sums(found) for kind in STATISTICS}
    counted = dict.fromkeys(found, 0)
    batch: Batch = {}
    options = {"output_attentions": True} if family_of(model) in _ON_REQUEST else {}

    def add(name: str, layer: int, weights: Tensor) -> None:
        mask = mask_of(name, batch)  # B x T
        keys = mask_of("ES" if name == "ED" else name, batch)  # B x S
        real = keys[:, None, :].expand(-1, mask.size(1), -1)  # B x T x S
        if name == "DS":  # a token attends to those before it
            real = real.tril()
        for kind, values in _statistics(weights.float(), real).items():  # B x H' x T
            sums[kind][name][layer] += (values * mask.unsqueeze(1)).sum((0, 2)).double().cpu()

    with evaluating(model), _eager(model), _watched(found, add), torch.no_grad():
        for batch in batches:
            model(**batch, **options)
            for name in found:
                counted[name] += int(mask_of(name, batch).sum())
    if not any(counted.values()):
        raise DataError("no example to compute scores on")
    return {kind: means(found, total, counted=counted) for kind, total in sums.items()}


def _statistics(weights: Tensor, real: Tensor) -> dict[str, Tensor]:
    """Each statistic, B x H' x T.

    Args:
        weights: B x H' x T x S.
        real: B x T x S, the keys that a query may attend to.
    """
    real = real.unsqueeze(1)  # B x 1 x T x S
    number = real.sum(-1).clamp(min=1)  # B x 1 x T
    mean = weights.mean(1, keepdim=True)  # B x 1 x T x S
    length = weights.square().sum(-1).sqrt()  # the weights' l2 norm; their l1 norm is 1
    root = number.sqrt()
    return {
        "confidence": weights.amax(-1),
        "entropy": -torch.special.xlogy(weights, weights).sum(-1),
        "sparsity": ((weights < THRESHOLD) & real).sum(-1) / number,
        "hoyer": torch.where(number > 1, (root - 1 / length) / (root - 1).clamp(min=1e-6), 1.0),
        "distribution": (
            torch.special.xlogy(weights, weights) - torch.special.xlogy(weights, mean)
        ).sum(-1),
    }


@contextmanager
def _eager(model: PreTrainedModel) -> Iterator[None]:
    """Other implementations of attention do not return the weights."""
    before = model.config._attn_implementation
    if before == "eager":
        yield
        return
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


@contextmanager
def _watched(
    found: Mapping[str, tuple[Attention, ...]], add: Callable[[str, int, Tensor], None]
) -> Iterator[None]:
    with ExitStack() as hooks:
        for name, layers in found.items():
            for layer, attention in enumerate(layers):
                if attention.present:
                    watch = _watch(name, layer, add)
                    hooks.callback(attention.module.register_forward_hook(watch).remove)
        yield


def _watch(
    name: str, layer: int, add: Callable[[str, int, Tensor], None]
) -> Callable[[nn.Module, Any, Any], None]:
    def watch(_: nn.Module, inputs: Any, outputs: Any) -> None:
        add(name, layer, outputs[1])

    return watch
