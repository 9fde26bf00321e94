"""Scores without labels: the model's own outputs in the place of labels.

Let p be the model's output distribution for an input and q the distribution with a unit masked.

- ``ablation`` and ``alone`` are then KL(p || q), the divergence of the masked model's outputs.
- The gradient of KL(p || q) with respect to the gates is 0 at the unpruned model, where q = p, so
  scores by gradients use the gradient of -log q(y) for labels y that the model itself gives: each
  score is its expectation over y ~ p. For ``fisher`` that is the Fisher information of the gates,
  which is the Hessian of KL(p || q) there (Martens 2020): the divergence after
  masking units is 1/2 of its quadratic form to second order.

The self-supervised mode of TextPruner (Yang et al. 2022) takes the gradient of the cross-entropy
with the outputs of a copy of the model; before anything is pruned, that gradient too is 0 but for
the rounding of the copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Protocol, runtime_checkable

import torch
from torch import Tensor

from headprune.errors import UsageError
from headprune.model import Batch, RunnableModel

DIVERGENCE = "divergence"
"""The metric of ablation without labels: KL(p || q), in nats."""

GRADIENTS = "gradients"
"""The purpose of passes over the data that compute gradients."""

MOST_CLASSES = 16
"""The largest number of classes whose labels are all used; of more, one is drawn."""


@runtime_checkable
class HasOwnOutputs(Protocol):
    """A runnable model that gives its own outputs in the place of labels."""

    def own_labels(self, batch: Batch, generator: torch.Generator) -> Iterator[Batch]:
        """The batch with labels of the model's own distribution.

        Args:
            batch: examples without labels.
            generator: the source of random labels. What it draws for an example does not depend on
                the examples beside it, as long as their order stays the same.

        Yields:
            The batch once for each possible label, which ``outcome`` weighs by its probability; or
            once, with labels that were drawn at random.
        """

    def with_own_outputs(self, batch: Batch) -> Batch:
        """The batch with the model's outputs at present.

        ``outcome`` then gives each example's divergence from them as its loss.
        """


def without_labels(
    model: RunnableModel, batches: Callable[[str], Iterable[Batch]], *, seed: int
) -> Callable[[str], Iterator[Batch]]:
    """A function like ``batches``, whose batches have the model's own outputs for labels.

    Args:
        model: the unpruned model.
        batches: function from the purpose of a pass to batches without labels.
        seed: the seed of labels that are drawn.

    Raises:
        UsageError: the model cannot give its own outputs.
    """
    if not isinstance(model, HasOwnOutputs):
        raise UsageError("models of this kind cannot be scored without labels")

    def labelled(purpose: str) -> Iterator[Batch]:
        generator = torch.Generator().manual_seed(seed)
        for batch in batches(purpose):
            if purpose == GRADIENTS:
                yield from model.own_labels(batch, generator)
            else:
                yield model.with_own_outputs(batch)

    return labelled


def drawn(logits: Tensor, generator: torch.Generator) -> Tensor:
    """Draw a class for each row of logits, N x C: (N,)."""
    uniform = torch.rand(len(logits), 1, generator=generator).to(logits.device)
    cumulative = logits.float().softmax(-1).cumsum(-1)  # N x C
    classes = torch.searchsorted(cumulative, uniform * cumulative[:, -1:], right=True)
    return classes.squeeze(1).clamp(max=logits.size(-1) - 1)


def mean_over_tokens(values: Tensor, counted: Tensor) -> Tensor:
    """The mean over each example's counted tokens: (B,) of B x T.

    Args:
        values: B x T.
        counted: B x T, bool.
    """
    return values.masked_fill(~counted, 0).sum(1) / counted.sum(1).clamp(min=1)
