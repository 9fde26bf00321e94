"""Folders without a tokenizer, and tokenizers that do not know the text."""

from __future__ import annotations

import pytest
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordLevel
from tokenizers.pre_tokenizers import ByteLevel, Whitespace
from transformers import ByT5Tokenizer, PreTrainedTokenizerFast

from headprune.errors import DataError
from hf_plugin.tokenizers import load_tokenizer, require_vocabulary
from tests.hf_plugin.made import write_model
from tests.hf_plugin.models import FAMILIES, build

TEXTS = ["the old man sees a dog", "a cat likes the red dog"]


@pytest.mark.parametrize("family", FAMILIES)
def test_a_folder_without_a_tokenizer(family: str, tmp_path) -> None:
    build(family).save_pretrained(tmp_path)
    with pytest.raises(DataError, match="no tokenizer in the folder|cannot load a tokenizer"):
        load_tokenizer(str(tmp_path))


def test_a_config_alone_is_no_tokenizer(tmp_path) -> None:
    (write_model(tmp_path) / "tokenizer.json").unlink()
    with pytest.raises(DataError, match="no tokenizer in the folder|cannot load a tokenizer"):
        load_tokenizer(str(tmp_path))


def words_alone(*words: str) -> PreTrainedTokenizerFast:
    vocabulary = {word: number for number, word in enumerate(("[UNK]", *words))}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="[UNK]")


def test_how_much_may_be_unknown() -> None:
    require_vocabulary(words_alone("the", "a", "dog"), TEXTS)  # 6 of 12
    with pytest.raises(DataError, match="does not know 58% of the text's tokens"):
        require_vocabulary(words_alone("the", "a", "old"), TEXTS)
    with pytest.raises(DataError, match="does not know 100% of the text's tokens"):
        require_vocabulary(words_alone("el", "un"), TEXTS)
    require_vocabulary(words_alone(), [])


def test_words_that_are_dropped_are_unknown() -> None:
    tokenizer = Tokenizer(BPE({"<s>": 0, "</s>": 1}, []))
    tokenizer.pre_tokenizer = ByteLevel()
    with pytest.raises(DataError, match="does not know 100%"):
        require_vocabulary(PreTrainedTokenizerFast(tokenizer_object=tokenizer), TEXTS)


def test_bytes_and_characters_are_known() -> None:
    require_vocabulary(ByT5Tokenizer(), [*TEXTS, "Ελληνικά 中文"])
    vocabulary = {letter: number for number, letter in enumerate(ByteLevel.alphabet())}
    tokenizer = Tokenizer(BPE(vocabulary, []))
    tokenizer.pre_tokenizer = ByteLevel()
    require_vocabulary(PreTrainedTokenizerFast(tokenizer_object=tokenizer), TEXTS)
