"""Binarised texts are identical to those of fairseq-preprocess."""

from __future__ import annotations

from pathlib import Path

import pytest
from fairseq import options
from fairseq_cli import preprocess

from data_prep.lib import binarise
from headprune.errors import DataError

# Equal counts, an empty line, white space of all kinds, and tokens that are fairseq's own symbols.
TRAINING = {
    "en": "b a b c\na d <unk> </s>\n\nthe\u00a0same  the\u3000same\t.\n<s> <pad> z\n",
    "de": "ä b ä ö\nc@@ d\n \ndas gleiche das\u2009gleiche .\nmadeupword0000 y y\n",
}
UNSEEN = "never seen b .\n\nthe d\n"


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    folder = tmp_path / "bpe"
    folder.mkdir()
    for language, training in TRAINING.items():
        (folder / f"train.{language}").write_text(training, "utf-8")
        (folder / f"valid.{language}").write_text(UNSEEN, "utf-8")
        (folder / f"test.{language}").write_text(UNSEEN + training, "utf-8")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.suffix != ".log"}


@pytest.mark.parametrize("joined", [True, False], ids=["joined", "separate"])
def test_as_fairseq_preprocess(texts: Path, tmp_path: Path, joined: bool) -> None:
    languages = ["--source-lang", "en", "--target-lang", "de"]
    binarise.main(
        [*languages, *([] if joined else ["--separate-dictionaries"])]
        + [str(texts), str(tmp_path / "ours")]
    )
    arguments = [*languages, *(["--joined-dictionary"] if joined else [])]
    for split in (*binarise.SPLITS, "test"):
        arguments += [f"--{split}pref", str(texts / split)]
    parser = options.get_preprocessing_parser()
    preprocess.main(parser.parse_args([*arguments, "--destdir", str(tmp_path / "theirs")]))

    ours, theirs = contents(tmp_path / "ours"), contents(tmp_path / "theirs")
    assert sorted(ours) == sorted(theirs) and len(ours) == 14
    assert [name for name in ours if ours[name] != theirs[name]] == []
    assert (ours["dict.en.txt"] == ours["dict.de.txt"]) is joined


def test_the_log_counts_unknown_tokens(texts: Path, tmp_path: Path) -> None:
    arguments = ["--source-lang=en", "--target-lang=de", str(texts), str(tmp_path / "out")]
    binarise.main(arguments)
    log = (tmp_path / "out" / "preprocess.log").read_text("utf-8").splitlines()
    assert len(log) == 8
    assert log[1].endswith("0.000% replaced (by <unk>)")  # a token <unk> is no other's place
    # "never" and "seen"; three of the nine are ends of sentences
    assert log[2] == f"[en] {texts / 'valid.en'}: 3 sents, 9 tokens, 22.222% replaced (by <unk>)"


def test_what_fails_leaves_what_was_there(texts: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    arguments = ["--source-lang=en", "--target-lang=de", str(texts), str(out)]
    binarise.main(arguments)
    before = contents(out)
    (texts / "test.de").write_bytes(b"sound\nbro\xffken\n")
    with pytest.raises(DataError, match=r"test\.de: line 2 is not valid UTF-8"):
        binarise.main(arguments)
    (texts / "test.de").unlink()
    with pytest.raises(DataError, match=r"test\.de: no such file"):
        binarise.main(arguments)
    assert contents(out) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["bpe", "out"]
