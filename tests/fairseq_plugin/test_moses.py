"""fairseq's tokenizers ``moses`` and ``moses_truecased`` with codes of regions."""

from __future__ import annotations

from argparse import Namespace

import pytest
from fairseq.data.encoders import build_tokenizer

import fairseq_plugin  # noqa: F401  (registers the tokenizers)

TEXT = "I don't know the dog's name."
TOKENS = "I don &apos;t know the dog &apos;s name ."


def options(name: str, code: str) -> Namespace:
    return Namespace(tokenizer=name, source_lang=code, target_lang=code)


@pytest.mark.parametrize("code", ["en_GB", "en"])
def test_a_region_leaves_the_rules_of_the_language(code: str) -> None:
    tokenizer = build_tokenizer(options("moses", code))
    assert tokenizer.encode(TEXT) == TOKENS and tokenizer.decode(TOKENS) == TEXT
    truecased = build_tokenizer(options("moses_truecased", code))
    assert truecased.decode(TOKENS.replace("I don", "i don")) == TEXT


def test_the_options_stay_as_they_are() -> None:
    given = options("moses", "en_GB")
    build_tokenizer(given)
    assert given.target_lang == "en_GB"
