"""Random inputs to compare two forms of a model on."""

from __future__ import annotations

import inspect

import torch
from torch import Tensor
from transformers import PreTrainedModel

SHAPES = ((2, 7), (1, 3), (5, 20))
"""Numbers of sentences and tokens of the compared batches."""

_CHOICES = 3


def random_batch(
    model: PreTrainedModel, sentences: int, length: int, *, seed: int
) -> dict[str, Tensor]:
    """Draw random inputs, B x T each (B x choices x T for multiple choice); the last is padding.

    Args:
        model: a model whose inputs are tokens.
        sentences: B.
        length: T.
        seed: seed of the tokens.
    """
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    padding = config.pad_token_id or 0
    ids = torch.randint(0, config.vocab_size, (sentences, length), generator=generator)
    ids[ids == padding] = (padding + 1) % config.vocab_size
    if config.is_encoder_decoder and isinstance(end := config.eos_token_id, int):
        ids[ids == end] = next(i for i in range(config.vocab_size) if i not in (padding, end))
        ids[:, length - 2] = end  # BART classifies at the end of each sentence
    ids[-1, length - 1 :] = padding
    batch = {"input_ids": ids, "attention_mask": (ids != padding).long()}
    arguments = inspect.signature(model.forward).parameters
    kinds = getattr(config, "type_vocab_size", 0)
    if kinds > 1 and "token_type_ids" in arguments:
        batch["token_type_ids"] = torch.randint(0, kinds, ids.shape, generator=generator)
    if "MultipleChoice" in type(model).__name__:
        batch = {name: ids.unsqueeze(1).repeat(1, _CHOICES, 1) for name, ids in batch.items()}
    if config.is_encoder_decoder and "decoder_input_ids" in arguments:
        batch["decoder_input_ids"] = ids
    return batch
