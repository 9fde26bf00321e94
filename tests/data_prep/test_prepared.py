"""Reading of prep.json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from data_prep.lib.prepared import PreparedCorpus
from headprune import DataError

FACTS = {"corpus": "toy", "pair": "en-de", "source_lang": "en", "target_lang": "de", "other": 1}


def corpus(folder: Path, **facts: Any) -> PreparedCorpus:
    (folder / "prep.json").write_text(json.dumps({**FACTS, **facts}))
    return PreparedCorpus.load(folder)


def test_the_name_is_as_in_signatures(tmp_path: Path) -> None:
    assert corpus(tmp_path).name == "toy.en-de"
    assert corpus(tmp_path, corpus=None).name is None


def test_the_corpus_of_a_binarised_folder(tmp_path: Path) -> None:
    assert PreparedCorpus.of_binarised(tmp_path / "bin") is None
    corpus(tmp_path)
    found = PreparedCorpus.of_binarised(tmp_path / "bin")
    assert found is not None and found.binarised == tmp_path / "bin"
    assert found.raw("test", "de") == tmp_path / "raw" / "test.de"


@pytest.mark.parametrize(
    ("facts", "flags"),
    [
        ({"tokenizer": "moses", "bpe": "subword_nmt"}, ["--tokenizer", "moses", "--remove-bpe"]),
        ({"tokenizer": None, "bpe": "subword_nmt"}, ["--remove-bpe"]),
        ({"tokenizer": None, "bpe": "sentencepiece"}, ["--remove-bpe", "sentencepiece"]),
    ],
)
def test_fairseq_generate_undoes_what_was_done(
    facts: dict[str, Any], flags: list[str], tmp_path: Path
) -> None:
    assert corpus(tmp_path, **facts).undo_flags == flags


def test_mistakes_are_one_line(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="prep.json: not the data preparation's .*: bpe is 3"):
        corpus(tmp_path, bpe=3)
    with pytest.raises(DataError, match="prep.json: does not name source_lang and target_lang"):
        _ = corpus(tmp_path, target_lang=None).languages
    with pytest.raises(DataError, match="nowhere/prep.json: cannot be read"):
        PreparedCorpus.load(tmp_path / "nowhere")
