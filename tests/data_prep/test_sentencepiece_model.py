"""Tests of the sentencepiece model."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_prep.lib import sentencepiece_model
from headprune.errors import DataError

TEXT = "Ein Mann läuft.\nA man is running over the green grass.\nZwei Hunde, drei Katzen!\n" * 30


@pytest.fixture
def text(tmp_path: Path) -> Path:
    path = tmp_path / "text"
    path.write_text(TEXT)
    return path


def test_fairseq_can_join_the_pieces(text: Path, tmp_path: Path) -> None:
    model, output = tmp_path / "sentencepiece.model", tmp_path / "out"
    sentencepiece_model.main(["learn", "--merges", "60", "--model", str(model), str(text)])
    sentencepiece_model.main(["apply", "--model", str(model), str(text), str(output)])
    pieces = output.read_text().splitlines()
    # what fairseq's --remove-bpe sentencepiece does
    joined = [line.replace(" ", "").replace("\u2581", " ").strip() for line in pieces]
    assert joined == TEXT.splitlines()
    assert model.with_suffix(".vocab").read_text().count("\n") == 60
    assert any(len(line.split()) < len(raw) for line, raw in zip(pieces, joined, strict=True))


def test_the_same_text_gives_the_same_model(text: Path, tmp_path: Path) -> None:
    models = [tmp_path / "one.model", tmp_path / "two.model"]
    for model in models:
        sentencepiece_model.train([text], size=60, model=model)
    assert (
        models[0].with_suffix(".vocab").read_bytes() == models[1].with_suffix(".vocab").read_bytes()
    )


@pytest.mark.parametrize(
    ("size", "told"), [(9000, "give --merges of at most"), (4, "give --merges of at least")]
)
def test_a_size_that_the_text_does_not_give(
    text: Path, tmp_path: Path, size: int, told: str
) -> None:
    with pytest.raises(DataError, match=f"cannot make {size} pieces .* {told} \\d+"):
        sentencepiece_model.train([text], size=size, model=tmp_path / "sentencepiece.model")
    assert [path.name for path in tmp_path.iterdir()] == ["text"]
