"""The loss of each example, independent of the batch that it is in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, mse_loss
from transformers.modeling_outputs import TokenClassifierOutput

from headprune.errors import UsageError
from hf_plugin.tasks.predictions import IGNORED


def example_losses(outputs: Any, labels: Tensor) -> Tensor:
    """The loss of each example (B,), independent of the other examples of the batch.

    Args:
        outputs: the outputs of a model with logits (B, C) or (B, T, V); C = 1 is regression.
        labels: (B,); or (B, C) of 0.0 and 1.0, where an example may have several labels and its
            loss is the mean over labels; or (B, T) with -100 for tokens that do not count, where it
            is the mean over tokens.

    Raises:
        UsageError: a model without such logits.
    """
    logits = getattr(outputs, "logits", None)
    if logits is None or logits.dim() not in (2, 3):
        raise UsageError("the model has no logits for labels; give one with a classifier")
    if logits.dim() == 2:
        if has_several_labels(labels):
            wanted = labels.to(logits.dtype)
            return binary_cross_entropy_with_logits(logits, wanted, reduction="none").mean(1)
        if logits.size(1) == 1:
            return mse_loss(logits.squeeze(1), labels.to(logits.dtype), reduction="none")
        return cross_entropy(logits, labels, reduction="none")
    counted = labels.ne(IGNORED)  # B x T
    each = cross_entropy(
        logits.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=IGNORED
    ).view_as(labels)  # B x T
    return each.sum(1) / counted.sum(1).clamp(min=1)


def text_losses(logits: Tensor, labels: Tensor) -> Tensor:
    """The sum of -log p, in nats, over the tokens of each text that are predicted: B.

    Args:
        logits: B x T x V, of a language model.
        labels: B x T, the tokens, padded on the right; -100 for those that do not count.
    """
    each = cross_entropy(
        logits[:, :-1].flatten(0, 1).float(),
        labels[:, 1:].flatten(),
        reduction="none",
        ignore_index=IGNORED,
    )
    return each.view(len(labels), -1).sum(1)


def predicted_tokens(labels: Sequence[int]) -> int:
    """The number of tokens over which ``text_losses`` takes the sum, of one text.

    Args:
        labels: the tokens, with or without padding on the right (-100).
    """
    return sum(label != IGNORED for label in labels[1:])


def labels_of_tokens_before(labels: Tensor) -> Tensor:
    """For each token the label of the next one, which a language model predicts there: B x T.

    The last token has none (-100).
    """
    return torch.cat([labels[:, 1:], torch.full_like(labels[:, :1], IGNORED)], dim=1)


def labels_of_tokens_after(labels: Tensor) -> Tensor:
    """The inverse: the labels of the next tokens as those of the tokens themselves, B x T.

    The first token has none (-100), and the label beyond the last one is left out.
    """
    return torch.cat([torch.full_like(labels[:, :1], IGNORED), labels[:, :-1]], dim=1)


def has_several_labels(labels: Tensor) -> bool:
    """Check if labels are B x C numbers of 0.0 and 1.0, and not the numbers of tokens."""
    return labels.dim() == 2 and labels.is_floating_point()


def correct_predictions(outputs: Any, labels: Tensor) -> Tensor | None:
    """Compare predicted classes with labels: (B,), bool; None if labels are not classes.

    Of a token classifier it is the share of right tokens, as a float.

    Args:
        outputs, labels: see ``example_losses``.
    """
    if isinstance(outputs, TokenClassifierOutput):
        assert outputs.logits is not None
        counted = labels.ne(IGNORED)  # B x T
        right = outputs.logits.argmax(-1).eq(labels) & counted
        return right.sum(1).double() / counted.sum(1).clamp(min=1)
    if has_several_labels(labels):
        return outputs.logits.gt(0).eq(labels.bool()).all(-1)  # type: ignore[no-any-return]
    if labels.dim() > 1 or outputs.logits.size(-1) == 1:
        return None
    predicted: Tensor = outputs.logits.argmax(-1)
    return predicted.eq(labels)
