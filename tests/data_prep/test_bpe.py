"""Byte-pair encoding gives the same bytes as subword-nmt's own commands."""

from __future__ import annotations

import io
import random
from collections import Counter
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from subword_nmt.apply_bpe import BPE
from subword_nmt.learn_bpe import learn_bpe

from data_prep.lib import bpe, parallel
from headprune.errors import DataError


def made_up_text(lines: int, *, seed: int) -> list[str]:
    rng = random.Random(seed)
    syllables = ["ba", "ze", "und", "er", "ste", "ü", "ж", "ка", "&amp;", "@-@"]
    words = ["".join(rng.choices(syllables, k=rng.randrange(1, 5))) for _ in range(300)]
    return [" ".join(rng.choices(words, k=rng.randrange(1, 12))) for _ in range(lines)]


@pytest.fixture
def texts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    # so few lines a chunk that two workers are indeed started
    monkeypatch.setattr(parallel, "LINES_PER_CHUNK", 50)
    paths = [tmp_path / "train.en", tmp_path / "train.de"]
    for seed, path in enumerate(paths):
        path.write_text("".join(f"{line}\n" for line in made_up_text(1000, seed=seed)))
    return paths


@pytest.mark.parametrize("workers", [1, 2])
def test_learns_what_subword_nmt_learns(texts: list[Path], tmp_path: Path, workers: int) -> None:
    codes = tmp_path / "codes"
    bpe.main(
        ["learn", "--merges", "60", "--codes", str(codes), "--workers", str(workers)]
        + [str(path) for path in texts]
    )
    expected = io.StringIO()
    learn_bpe(io.StringIO("".join(path.read_text() for path in texts)), expected, 60)
    assert codes.read_text() == expected.getvalue()
    assert len(expected.getvalue().splitlines()) == 61


@given(
    counts=st.dictionaries(
        st.text("abcé", min_size=1, max_size=8), st.integers(1, 40), min_size=1, max_size=60
    ),
    merges=st.integers(1, 150),
)
def test_learning_is_subword_nmts_own(counts: dict[str, int], merges: int) -> None:
    # few letters: pairs that are equally frequent, and symbols that come of several merges
    assume(any(len(word) > 1 for word in counts))
    expected = io.StringIO()
    dictionary = "".join(f"{word} {count}\n" for word, count in sorted(counts.items()))
    with redirect_stderr(io.StringIO()):
        learn_bpe(io.StringIO(dictionary), expected, merges, is_dict=True)
    assert bpe.learn(Counter(counts), merges=merges)[0] == expected.getvalue()


@pytest.mark.parametrize("workers", [1, 2])
def test_applies_as_subword_nmt_does(texts: list[Path], tmp_path: Path, workers: int) -> None:
    codes, output, vocabulary = tmp_path / "codes", tmp_path / "out", tmp_path / "vocab"
    codes.write_text(
        bpe.learn(bpe.count_words(texts[1].read_text().splitlines(), workers=1), merges=40)[0]
    )
    bpe.main(
        ["apply", "--codes", str(codes), "--vocabulary", str(vocabulary)]
        + ["--workers", str(workers), str(texts[0]), str(output)]
    )
    splitter = BPE(io.StringIO(codes.read_text()))
    expected = [splitter.process_line(line) for line in texts[0].read_text().splitlines()]
    assert output.read_text() == "".join(f"{line}\n" for line in expected)
    pieces = " ".join(expected).split(" ")
    counts = dict(line.split(" ") for line in vocabulary.read_text().splitlines())
    assert {piece: pieces.count(piece) for piece in set(pieces)} == {
        piece: int(count) for piece, count in counts.items()
    }


def test_joining_the_pieces_gives_the_words(texts: list[Path]) -> None:
    lines = texts[0].read_text().splitlines()[:500]
    codes, _ = bpe.learn(bpe.count_words(lines, workers=1), merges=50)
    for line, split in zip(lines, bpe.split_lines(lines, codes=codes, workers=1), strict=True):
        assert (split + " ").replace("@@ ", "").rstrip() == line


def test_the_memory_of_words_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bpe, "WORDS_REMEMBERED", 10)
    codes, _ = bpe.learn(bpe.count_words(["abab abc bca"] * 5, workers=1), merges=3)
    split = bpe.make_splitter(codes)
    plain = BPE(io.StringIO(codes))
    for number in range(100):
        assert split(f"abab{number} abc") == plain.process_line(f"abab{number} abc")
    cache = next(
        cell.cell_contents
        for cell in split.__closure__ or ()
        if isinstance(cell.cell_contents, BPE)
    ).cache
    assert len(cache) <= 12


def test_too_small_a_text_gives_fewer_merges(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "text").write_text("ab ab ab\n")
    bpe.main(
        ["learn", "--merges", "50", "--codes", str(tmp_path / "codes"), str(tmp_path / "text")]
    )
    assert "only 1 of the 50 merges" in capsys.readouterr().err


def test_nothing_to_learn_from() -> None:
    with pytest.raises(DataError, match="no word of two or more characters"):
        bpe.learn(bpe.count_words(["a b c"], workers=1), merges=5)
