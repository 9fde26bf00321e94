"""Divergences of a model's outputs from a reference model's."""

from __future__ import annotations

from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, kl_div, log_softmax


def divergence(outputs: Tensor, reference: Tensor, *, temperature: float = 1.0) -> Tensor:
    """T^2 KL(reference || outputs) of softmax outputs, in nats (Hinton et al. 2015, section 2).

    Args:
        outputs, reference: logits, ... x C.
        temperature: T.

    Returns:
        ..., in float32.

    Raises:
        ValueError: the shapes differ.
    """
    if outputs.shape != reference.shape:
        raise ValueError(f"logits of shapes {tuple(outputs.shape)} and {tuple(reference.shape)}")
    q, p = (log_softmax(each.float() / temperature, dim=-1) for each in (outputs, reference))
    terms = kl_div(q, p, reduction="none", log_target=True)  # ... x C
    return temperature**2 * terms.sum(-1)


def bernoulli_divergence(outputs: Tensor, reference: Tensor, *, temperature: float = 1.0) -> Tensor:
    """The same for labels that are independent of one another: the mean of their divergences.

    Args:
        outputs, reference: logits, ... x C; sigmoids are the probabilities of the labels.
        temperature: T.

    Returns:
        ..., in float32.
    """
    outputs, reference = outputs.float() / temperature, reference.float() / temperature
    targets = reference.sigmoid()
    terms = binary_cross_entropy_with_logits(outputs, targets, reduction="none")  # ... x C
    entropy = binary_cross_entropy_with_logits(reference, targets, reduction="none")
    return temperature**2 * (terms - entropy).mean(-1)
