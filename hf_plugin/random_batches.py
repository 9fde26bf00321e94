"""Random inputs to compare two forms of a model on."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel

SHAPES = ((2, 7), (1, 3), (5, 20))
"""Numbers of sentences and tokens of the compared batches."""

_CHOICES = 3


def compared_batches(model: PreTrainedModel) -> list[dict[str, Tensor]]:
    """Batches of ``SHAPES``, with sentences no longer than the model takes."""
    most = most_tokens(model)
    # Where the feed-forward layers run in chunks, all are equally long.
    chunk = max(1, getattr(model.config, "chunk_size_feed_forward", 0) or 0)
    batches = []
    for seed, (sentences, tokens) in enumerate(SHAPES):
        length = tokens if most is None else min(tokens, most)
        length = max(chunk, length // chunk * chunk)
        batches.append(random_batch(model, sentences, length, seed=seed))
    return batches


def most_tokens(model: PreTrainedModel) -> int | None:
    """The largest number of tokens that the model's positions allow; None without a limit."""
    positions: int | None = getattr(model.config, "max_position_embeddings", None)
    if not positions:
        return None  # T5's relative positions have no end
    embeddings = getattr(getattr(model.base_model, "embeddings", None), "position_embeddings", None)
    if (padding := getattr(embeddings, "padding_idx", None)) is not None:
        positions -= padding + 1  # positions begin after the padding's index
    return positions


def random_batch(
    model: PreTrainedModel, sentences: int, length: int, *, seed: int
) -> dict[str, Tensor]:
    """Draw random inputs, B x T each (B x choices x T for multiple choice); the last is padding.

    Images and sounds have the size that the model's config names, in place of T, and the type of
    the model's weights.

    Args:
        model: a model whose inputs are tokens, images or spectrograms.
        sentences: B.
        length: T.
        seed: seed of the inputs.
    """
    # An outline has no weights, and what is exported from a model takes float32.
    dtype = torch.float32 if model.device.type == "meta" else model.dtype
    drawn = _drawn(model, sentences, length, seed=seed)
    return {
        name: tensor.to(dtype) if tensor.is_floating_point() else tensor
        for name, tensor in drawn.items()
    }


def _drawn(model: PreTrainedModel, sentences: int, length: int, *, seed: int) -> dict[str, Tensor]:
    """Draw the inputs; floating-point numbers in float32."""
    generator = torch.Generator().manual_seed(seed)
    config = model.config
    if size := _spectrogram_or_image(config, model.main_input_name):
        drawn = torch.randn(sentences, *size, generator=generator)
        batch = {model.main_input_name: drawn}
        if "noise" in inspect.signature(model.forward).parameters:  # ViT-MAE leaves patches out
            patches = (size[-1] // config.patch_size) * (size[-2] // config.patch_size)
            batch["noise"] = torch.rand(sentences, patches, generator=generator)
        if not config.is_encoder_decoder:
            return batch
    else:
        batch = _tokens(model, sentences, length, generator=generator)
    arguments = inspect.signature(model.forward).parameters
    if config.is_encoder_decoder and "decoder_input_ids" in arguments:
        tokens = _tokens(model, sentences, length, generator=generator)
        batch["decoder_input_ids"] = batch.get("input_ids", tokens["input_ids"])
    return batch


def _tokens(
    model: PreTrainedModel, sentences: int, length: int, *, generator: torch.Generator
) -> dict[str, Tensor]:
    config = model.config
    padding = config.pad_token_id or 0
    vocabulary = getattr(config, "vocab_size", 0) or _CHARACTERS
    length = max(length, getattr(config, "downsampling_rate", 1))  # of CANINE's characters
    ids = torch.randint(0, vocabulary, (sentences, length), generator=generator)
    ids[ids == padding] = (padding + 1) % vocabulary
    if config.is_encoder_decoder and isinstance(end := config.eos_token_id, int):
        ids[ids == end] = next(i for i in range(vocabulary) if i not in (padding, end))
        ids[:, length - 2] = end  # BART classifies at the end of each sentence
    ids[-1, length - 1 :] = padding
    batch = {"input_ids": ids, "attention_mask": (ids != padding).long()}
    arguments = inspect.signature(model.forward).parameters
    kinds = getattr(config, "type_vocab_size", 0)
    if isinstance(kinds, int) and kinds > 1 and "token_type_ids" in arguments:
        batch["token_type_ids"] = torch.randint(0, kinds, ids.shape, generator=generator)
    if "bbox" in arguments:
        batch["bbox"] = _boxes(config, ids, generator=generator)
    if "MultipleChoice" in type(model).__name__:
        batch = {name: ids.unsqueeze(1).repeat(1, _CHOICES, 1) for name, ids in batch.items()}
    return batch


_CHARACTERS = 1000
"""The number of characters that are drawn from, for models without a vocabulary."""


def _boxes(config: Any, ids: Tensor, *, generator: torch.Generator) -> Tensor:
    """The places of tokens on a page, B x T x 4: left, top, right, bottom."""
    largest = getattr(config, "max_2d_position_embeddings", 1000)
    corners = torch.randint(0, largest // 2, (*ids.shape, 2, 2), generator=generator)
    boxes = corners.cumsum(-2).flatten(-2)  # the second corner is below and to the right
    return boxes / largest if config.model_type.endswith("bros") else boxes


def inputs_name(model: PreTrainedModel, length: int) -> str:
    """Name of a model's inputs that have the size of its config; empty where they are tokens.

    Args:
        length: the number of tokens of a decoder's text.

    Returns:
        Such as ``images of 224 x 224 pixels``, or ``spectrograms of 1024 x 128``.
    """
    size = _spectrogram_or_image(model.config, model.main_input_name)
    if not size:
        return ""
    width = f"{size[-2]} x {size[-1]}"
    if model.main_input_name == "pixel_values":
        return f"images of {width} pixels"
    texts = f" with {length} tokens each" if model.config.is_encoder_decoder else ""
    return f"spectrograms of {width}{texts}"


def encoder_positions(model: PreTrainedModel) -> int | None:
    """The number of positions of each input of the encoder; None where they are tokens.

    Those of an image or a spectrogram are its patches, and the tokens beside them.
    """
    size = _spectrogram_or_image(model.config, model.main_input_name)
    if not size:
        return None
    if model.config.is_encoder_decoder:  # Whisper
        return int(model.config.max_source_positions)
    embeddings = model.base_model.get_submodule("embeddings")
    # Some embeddings draw: those of ViT-MAE choose the patches that they mask.
    with torch.no_grad(), torch.random.fork_rng():
        embedded = embeddings(torch.zeros(1, *size, dtype=model.dtype, device=model.device))
    states: Tensor = embedded if isinstance(embedded, Tensor) else embedded[0]  # 1 x T x C
    return states.size(1)


def _spectrogram_or_image(config: Any, name: str) -> tuple[int, ...]:
    """The size of one example, without the batch; empty if examples are tokens."""
    if name == "pixel_values":
        size = config.image_size
        height, width = size if isinstance(size, (list, tuple)) else (size, size)
        return config.num_channels, height, width
    if name == "input_values":  # AST
        return config.max_length, config.num_mel_bins
    if name == "input_features":  # Whisper halves the length
        return config.num_mel_bins, 2 * config.max_source_positions
    return ()
