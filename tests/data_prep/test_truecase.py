"""Truecasing, which detruecasing undoes."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from sacremoses import MosesTruecaser

from data_prep.lib import truecase
from data_prep.lib.bpe import learn
from data_prep.lib.text import TextProcessing
from data_prep.lib.tokenise import make_tokeniser
from headprune.errors import DataError

RAW = [
    "The dog sees Anna. The cat sees the dog.",
    'Anna says: "A dog is in the house."',
    "A cat sleeps in a house of the US.",
    "Does us help? Yes, it does.",
]


@pytest.fixture
def tokens() -> list[str]:
    return list(map(make_tokeniser("en"), RAW))


def test_first_words_get_their_usual_case(tokens: list[str], tmp_path: Path) -> None:
    model, source, target = (tmp_path / name for name in ("model", "tok", "true"))
    source.write_text("".join(f"{line}\n" for line in tokens))
    truecase.main(["learn", "--model", str(model), str(source)])
    truecase.main(["apply", "--model", str(model), "--workers", "1", str(source), str(target)])
    lines = target.read_text().splitlines()
    assert lines == [
        "the dog sees Anna . the cat sees the dog .",
        "Anna says : &quot; a dog is in the house . &quot;",
        "a cat sleeps in a house of the US .",
        "does us help ? Yes , it does .",
    ]
    restore = truecase.make_detruecaser()
    # Moses does not take a closing quotation mark for the end of a sentence.
    assert [" ".join(restore(line.split())) for line in lines] == tokens


def test_the_model_is_the_one_that_moses_learns(tokens: list[str], tmp_path: Path) -> None:
    reference = MosesTruecaser()
    reference.train([line.split() for line in tokens], save_to=str(tmp_path / "model"))
    assert truecase.learn(tokens) == (tmp_path / "model").read_text()
    with pytest.raises(DataError, match="no words to learn truecasing from"):
        truecase.learn(["Hallo ."])


def test_text_of_a_truecased_corpus_comes_back(tokens: list[str], tmp_path: Path) -> None:
    codes, model = tmp_path / "codes", tmp_path / "truecase.en"
    codes.write_text(learn(Counter(" ".join(tokens).split()), merges=5)[0])
    model.write_text(truecase.learn(tokens))
    processing = TextProcessing(
        source_lang="en",
        target_lang="en",
        tokenizer="moses",
        bpe="subword_nmt",
        file=codes,
        truecaser=model,
    )
    split, join = processing.splitter(), processing.joiner()
    assert "".join(split(RAW[0])).replace("@@", "").startswith("thedogsees")
    assert [join(split(line)) for line in RAW] == RAW

    model.write_text("word (many)\n")
    with pytest.raises(DataError, match=r"truecase\.en: no model for truecasing"):
        processing.splitter()
