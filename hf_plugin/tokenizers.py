"""Load a model's tokenizer, and check that it knows the vocabulary of a text."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from inspect import signature
from itertools import islice
from pathlib import Path

from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.image_processing_base import ImageProcessingMixin

from headprune.errors import DataError, UsageError
from hf_plugin.image_processors import load_image_processor
from hf_plugin.places import place, reporting
from hf_plugin.tasks.task import Task

_WORDS = 1000
"""Number of words, from the beginning of a text, that are checked."""

_MOST_UNKNOWN = 0.5
"""Largest accepted share of unknown tokens."""


Reader = PreTrainedTokenizerBase | ImageProcessingMixin
"""Makes the inputs of a model: a tokenizer, or an image processor."""


def load_reader(name: str, task: Task) -> Reader:
    """Load the tokenizer or the image processor of a model, by the task that it has.

    Raises:
        DataError: there is none.
        UsageError: see ``load_tokenizer``.
    """
    if task.is_of_images:
        return load_image_processor(name)
    return load_tokenizer(name, of_words=task.is_of_words)


def as_tokenizer(reader: Reader) -> PreTrainedTokenizerBase:
    """The reader of a model of text.

    Raises:
        TypeError: an image processor.
    """
    if not isinstance(reader, PreTrainedTokenizerBase):
        raise TypeError(f"{type(reader).__name__} is no tokenizer")
    return reader


def load_tokenizer(name: str, *, of_words: bool = False) -> PreTrainedTokenizerBase:
    """Load the tokenizer of the folder, or of the hub's model, ``name``.

    Args:
        name: the folder, or the name on the hub.
        of_words: whether it is to tokenize texts that are split into words.

    Raises:
        DataError: there is no tokenizer (transformers would create one without a vocabulary).
        UsageError: ``name`` is the default model, and is not installed; or the tokenizer takes no
            plain texts, or does not tell the words of its tokens.
    """
    folder = place(name)
    with reporting(f"{name}: cannot load a tokenizer"):
        tokenizer: PreTrainedTokenizerBase = AutoTokenizer.from_pretrained(
            folder, trust_remote_code=False
        )
        if of_words and getattr(tokenizer, "add_prefix_space", None) is False:
            # Byte-level tokens tell the beginning of a word by the space before it.
            tokenizer = AutoTokenizer.from_pretrained(
                folder, trust_remote_code=False, add_prefix_space=True
            )
    if "boxes" in signature(type(tokenizer).__call__).parameters:
        raise UsageError(
            f"{name}: its tokenizer takes words with their places on a page (bbox), which texts do "
            "not have; give a folder with a tokenizer of texts of the same vocabulary"
        )
    if of_words and not tokenizer.is_fast:
        raise UsageError(
            f"{name}: its tokenizer does not tell which word a token is of, so words cannot have "
            "labels; give a model with a fast tokenizer (tokenizer.json)"
        )
    files = sorted(set(tokenizer.vocab_files_names.values()))
    if (
        files
        and Path(folder).is_dir()
        and not any((Path(folder) / file).exists() for file in files)
    ):
        raise DataError(
            f"{name}: no tokenizer in the folder (none of {', '.join(files)}); write it there with "
            "tokenizer.save_pretrained(folder)"
        )
    return tokenizer


def padding_tokenizer(tokenizer: PreTrainedTokenizerBase) -> PreTrainedTokenizerBase:
    """The tokenizer, or a copy of it, that pads on the right and has a token for that.

    Tokenizers of language models often pad on the left, for generation. There the first token of a
    text would be predicted from padding, and in models with absolute positions (GPT-2) all tokens
    would be at other positions than without padding. The attention mask and the labels leave
    padding out, so any token will do where there is none for it.
    """
    if tokenizer.pad_token is not None and tokenizer.padding_side == "right":
        return tokenizer
    padding = copy.deepcopy(tokenizer)
    padding.padding_side = "right"
    if padding.pad_token is None:
        padding.pad_token = tokenizer.eos_token or tokenizer.convert_ids_to_tokens(0)
    return padding


def set_padding(model: PreTrainedModel, reader: Reader) -> None:
    """Name the token for padding in the config of a classifier that has none.

    Classifiers on language models (GPT-2) read the output at the last token before the padding, and
    refuse batches where they do not know it.
    """
    of_sequences = "SequenceClassification" in type(model).__name__
    if not of_sequences or not isinstance(reader, PreTrainedTokenizerBase):
        return
    if getattr(model.config, "pad_token_id", None) is None:
        model.config.pad_token_id = padding_tokenizer(reader).pad_token_id


def require_vocabulary(tokenizer: PreTrainedTokenizerBase, texts: Iterable[str]) -> None:
    """Check that the tokenizer knows at least half of the tokens at the beginning of a text.

    Raises:
        DataError: more than half are unknown. A word that the tokenizer drops counts as one unknown
            token.
    """
    words = list(islice((word for text in texts for word in text.split()), _WORDS))
    if not words:
        return
    unknown = known = 0
    for numbers in tokenizer(words, add_special_tokens=False)["input_ids"]:
        tokens = tokenizer.convert_ids_to_tokens(numbers)
        missing = sum(number == tokenizer.unk_token_id for number in numbers)
        unknown += missing or not numbers
        # The mark of a word's beginning is not a part of the text.
        known += sum(token != "\u2581" for token in tokens) - missing
    share = unknown / (unknown + known)
    if share > _MOST_UNKNOWN:
        raise DataError(
            f"{tokenizer.name_or_path}: its tokenizer does not know {share:.0%} of the text's "
            f"tokens ({len(tokenizer)} entries in its vocabulary); give a model with the tokenizer "
            "that it was trained with"
        )
