"""Translations of Hugging Face models, as their generation config says (beam, length penalty)."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from datasets import Dataset
from torch import Tensor
from transformers import PreTrainedModel

from headprune.backends import BATCH_SIZE
from headprune.errors import UsageError
from headprune.model import evaluating
from hf_plugin.one_translation import ONE_TRANSLATION
from hf_plugin.scores.run import batches_of, order_in_batches
from hf_plugin.tokenizers import Reader, as_tokenizer


@torch.no_grad()
def translations(
    model: PreTrainedModel,
    reader: Reader,
    encoded: Dataset,
    *,
    max_length: int,
    beam: int | None = None,
    batch_size: int = BATCH_SIZE,
) -> list[str]:
    """Translate examples; the translations are in their order.

    Args:
        model: a model that translates.
        reader: its tokenizer.
        encoded: examples of sentence pairs, from ``hf_plugin.finetuning.training.encode``, or
            source texts alone.
        max_length: the largest number of tokens of a translation.
        beam: the width of the beam search; None: that of the generation config.
        batch_size: the number of examples that are translated together.
    """
    width = {} if beam is None else {"num_beams": beam}
    tokenizer = as_tokenizer(reader)
    assert model.generation_config is not None
    written: list[str] = []
    with evaluating(model):
        for batch in batches_of(encoded, tokenizer, size=batch_size):
            found = model.generate(  # type: ignore[operator]
                **source_of(model, batch), **ONE_TRANSLATION, **width, max_new_tokens=max_length
            )
            # Not all tokenizers know their tokens of languages as special ones.
            first = 1 if model.generation_config.forced_bos_token_id is None else 2
            written += tokenizer.batch_decode(found[:, first:], skip_special_tokens=True)
    texts = dict(zip(order_in_batches(encoded, tokenizer), written, strict=True))
    return [texts[number].strip() for number in range(len(texts))]


def source_of(model: PreTrainedModel, batch: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The inputs of the encoder in a batch of sentence pairs, on the device of the model."""
    accepted = inspect.signature(model.forward).parameters
    return {
        name: value.to(model.device)
        for name, value in batch.items()
        if name in accepted and name != "labels"
    }


def set_target_language(model: PreTrainedModel, reader: Reader, *, name: str) -> None:
    """Make a multilingual model (NLLB, M2M100, mBART) write the target language of its tokenizer.

    The decoder is given the token of the language as the labels of a training have it: most models
    begin their labels with it, so that it is the first token that they write; the first mBART and
    PLBart end theirs with it, which makes it the token that the decoder starts with. A model whose
    generation config names the token keeps it.

    Args:
        name: the name of the model, for messages.

    Raises:
        UsageError: neither says which language the model is to write.
    """
    tokenizer: Any = as_tokenizer(reader)
    config = model.generation_config
    if not hasattr(tokenizer, "tgt_lang") or config is None:
        return
    if config.forced_bos_token_id is not None:
        return
    if tokenizer.tgt_lang is None:
        if config.decoder_start_token_id in getattr(tokenizer, "lang_code_to_id", {}).values():
            return
        raise UsageError(
            f"{name}: nothing says which language it is to write; save its tokenizer with src_lang "
            "and tgt_lang: AutoTokenizer.from_pretrained(FOLDER, src_lang=..., tgt_lang=...)"
            ".save_pretrained(FOLDER)"
        )
    if hasattr(tokenizer, "get_lang_id"):  # M2M100, whose tokens have another name
        language = tokenizer.get_lang_id(tokenizer.tgt_lang)
    else:
        language = tokenizer.convert_tokens_to_ids(tokenizer.tgt_lang)
    if tokenizer(text_target="")["input_ids"][0] == language:
        config.forced_bos_token_id = language
    else:
        config.decoder_start_token_id = language
