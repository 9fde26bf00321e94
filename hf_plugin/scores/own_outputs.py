"""Labels from a Hugging Face model's own outputs, and the divergence from them.

The loss of a regression is the squared error, the negative log-density (up to a constant) of a
normal distribution with variance 1/2. The divergence of two of these is the square of the
difference of their means.
"""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from transformers import PreTrainedModel

from headprune.divergences import bernoulli_divergence, divergence
from headprune.errors import UsageError
from headprune.scores.own_outputs import MOST_CLASSES, drawn, mean_over_tokens
from hf_plugin.one_translation import ONE_TRANSLATION
from hf_plugin.tasks.predictions import IGNORED

_MULTI_LABEL = "multi_label_classification"


def logits_of(outputs: object) -> Tensor:
    """The logits (B, C) or (B, T, V) in a model's outputs.

    Raises:
        UsageError: there are none.
    """
    logits = getattr(outputs, "logits", None)
    if not isinstance(logits, Tensor) or logits.dim() not in (2, 3):
        raise UsageError(
            "the model has no outputs that could stand for labels; give a classifier, a masked "
            "language model or a translation model"
        )
    return logits


def own_labels(
    model: PreTrainedModel, logits: Tensor, counted: Tensor, generator: torch.Generator
) -> list[Tensor]:
    """Labels by a model's own distribution; see ``headprune.scores.own_outputs.HasOwnOutputs``.

    Args:
        model: the model, for the kind of its outputs.
        logits: its outputs.
        counted: B x T, the tokens whose outputs count, where there is an output for each.

    Returns:
        Labels for ``example_losses``: all classes, one after the other, where every class counts by
        its probability; else one set of labels.
    """
    if logits.dim() == 3:
        labels = torch.full(logits.shape[:2], IGNORED, device=logits.device)
        labels[counted] = drawn(logits[counted], generator)
        return [labels]
    if model.config.problem_type == _MULTI_LABEL:
        uniform = torch.rand(logits.shape, generator=generator).to(logits)
        return [(uniform < logits.sigmoid()).float()]
    if logits.size(1) == 1:  # one standard deviation from the mean: its square is the expectation
        return [logits.squeeze(1) + 0.5**0.5]
    if logits.size(1) <= MOST_CLASSES:
        return [torch.full_like(logits[:, 0], number).long() for number in range(logits.size(1))]
    return [drawn(logits, generator)]


def are_weighted(model: PreTrainedModel, logits: Tensor) -> bool:
    """Check if ``own_labels`` are all classes, each of which counts by its probability."""
    return (
        logits.dim() == 2
        and model.config.problem_type != _MULTI_LABEL
        and 1 < logits.size(1) <= MOST_CLASSES
    )


def divergences(
    model: PreTrainedModel, reference: Tensor, logits: Tensor, counted: Tensor
) -> Tensor:
    """The divergence of each example's outputs from the reference's, (B,).

    Several labels, and several tokens, count by their mean, as in the loss.

    Args:
        model: the model, for the kind of its outputs.
        reference, logits: the logits of the reference and of the model.
        counted: see ``own_labels``.
    """
    if logits.dim() == 3:
        return mean_over_tokens(divergence(logits, reference), counted)
    if model.config.problem_type == _MULTI_LABEL:
        return bernoulli_divergence(logits, reference)
    if logits.size(1) == 1:
        return (reference - logits).square().squeeze(1)
    return divergence(logits, reference)


def translates(model: PreTrainedModel) -> bool:
    """Check if a model reads one text and writes another, token by token."""
    return bool(model.config.is_encoder_decoder) and model.can_generate()


@torch.no_grad()
def with_translations(model: PreTrainedModel, batch: dict[str, Tensor]) -> dict[str, Tensor]:
    """The batch with the model's own greedy translations as the input of its decoder.

    A translation has at most twice as many tokens as its source and ten more, whatever other texts
    are in the batch.

    Args:
        model: a model that translates, in evaluation mode.
        batch: the source texts.
    """
    # Tokenizers of other families give inputs that the model does not take, such as token types.
    accepted = inspect.signature(model.forward).parameters
    batch = {name: value for name, value in batch.items() if name in accepted}
    source = batch.get("attention_mask", torch.ones_like(batch["input_ids"]))  # B x S
    lengths = source.sum(1) * 2 + 10  # B
    longest = int(lengths.max())
    if positions := getattr(model.config, "max_position_embeddings", None):  # T5 has no last one
        longest = min(longest, positions)
    found = model.generate(  # type: ignore[operator]
        **batch, **ONE_TRANSLATION, num_beams=1, max_length=longest
    )
    end = model.generation_config.eos_token_id
    end = [] if end is None else end
    ends = torch.isin(found[:, 1:], torch.tensor(end, device=found.device))  # B x T
    # A token is an input unless the translation has ended with it or before it.
    ended = torch.cat([torch.zeros_like(ends[:, :1]), ends.cumsum(1)[:, :-1] > 0], dim=1)
    inputs = found[:, :-1]
    real = ~ended
    real[:, 1:] &= ~ends[:, :-1]
    real &= torch.arange(real.size(1), device=real.device) < lengths[:, None] - 1
    return {**batch, "decoder_input_ids": inputs, "decoder_attention_mask": real.long()}
