"""Tests of reading and writing parallel text."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.lib import compressed, corpus
from headprune.errors import DataError


def write_bytes(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


@pytest.mark.parametrize("name", ["text", "text.gz"])
def test_reads_plain_and_gzip(tmp_path: Path, name: str) -> None:
    path = write_bytes(tmp_path / name, "один\r\nzwei \n\nlast".encode())
    assert list(corpus.read(path)) == ["один", "zwei ", "", "last"]


def test_byte_order_mark_is_dropped(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "text", b"\xef\xbb\xbfone\ntwo\n")
    assert list(corpus.read(path)) == ["one", "two"]


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n", codec="utf-8"))))
def test_every_reader_counts_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    path = tmp_path_factory.mktemp("lines") / "text"
    path.write_bytes("".join(f"{line}\n" for line in lines).encode())
    corpus.write_lines(corpus.read(path), path)
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) == len(lines)
    with open(path, encoding="utf-8") as file:
        assert len(list(file)) == len(lines)
    assert path.read_bytes().count(b"\n") == len(lines)


def test_ordinary_lines_come_back_as_they_were(tmp_path: Path) -> None:
    lines = ["  two  spaces ", 'quotes "“„', "\ttab", "non\u00a0breaking"]
    corpus.write_lines(lines, tmp_path / "text")
    assert list(corpus.read(tmp_path / "text")) == lines


def test_invalid_utf8_is_named_by_line_and_byte(tmp_path: Path) -> None:
    path = write_bytes(tmp_path / "text", b"good\nba\xffd\n")
    with pytest.raises(DataError, match=r"text: line 2 is not valid UTF-8 \(byte 3 of the line\)"):
        list(corpus.read(path))


def test_cut_off_gzip(tmp_path: Path) -> None:
    path = tmp_path / "text.gz"
    content = gzip.compress(b"".join(b"line %d\n" % i for i in range(20000)))
    path.write_bytes(content[: len(content) // 2])
    with pytest.raises(DataError, match=r"text\.gz: the compressed file is cut off after line \d+"):
        list(corpus.read(path))


@pytest.mark.parametrize(
    "content",
    [b"no gzip at all\n", gzip.compress(b"x\n" * 9999)[:-8] + b"8" * 8],
    ids=["not gzip", "wrong checksum"],  # gzip's header holds the time: no stable id of its own
)
def test_corrupt_gzip(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "text.gz").write_bytes(content)
    with pytest.raises(DataError, match=r"text\.gz: not a sound gzip file"):
        list(corpus.read(tmp_path / "text.gz"))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"nothing\.en: no such file"):
        list(corpus.read(tmp_path / "nothing.en"))


@pytest.mark.parametrize(("left", "right"), [(3, 5), (5, 3), (0, 2), (1, 0)])
def test_unequal_sides_are_named_with_both_counts(tmp_path: Path, left: int, right: int) -> None:
    write_bytes(tmp_path / "a", b"x\n" * left)
    write_bytes(tmp_path / "b", b"x\n" * right)
    with pytest.raises(DataError, match=f"a has {left} lines, .*b has {right} lines"):
        list(corpus.read_parallel(tmp_path / "a", tmp_path / "b"))


def test_empty_corpus(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"")
    write_bytes(tmp_path / "b", b"")
    with pytest.raises(DataError, match=r"a and .*b: empty"):
        list(corpus.read_parallel(tmp_path / "a", tmp_path / "b"))


def test_nothing_is_written_of_a_broken_corpus(tmp_path: Path) -> None:
    write_bytes(tmp_path / "a", b"x\n" * 3)
    write_bytes(tmp_path / "b", b"x\n" * 2)
    arguments = [str(tmp_path / name) for name in ("a", "b", "out.a", "out.b")]
    with pytest.raises(DataError):
        corpus.main(arguments)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b"]


@pytest.mark.parametrize("name", ["a.en", "a.en.gz"])
def test_a_line_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(corpus, "LONGEST_LINE", 100)
    text = b"short\n" + b"x" * 99 + b"\n" + bytes(5000)
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith("gz") else text)
    with pytest.raises(DataError, match=rf"{name}: line 3 is longer than 100 bytes"):
        list(corpus.read(tmp_path / name))


def test_a_gzip_file_that_unpacks_without_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compressed, "FREE_BYTES", 1 << 16)
    (tmp_path / "a.gz").write_bytes(gzip.compress(b"a\n" * (1 << 20)))
    with pytest.raises(DataError, match=r"a\.gz: unpacks to more than \d+ bytes"):
        list(corpus.read(tmp_path / "a.gz"))
