"""Tests of holding out sentences from a list with repeated sentences."""

from __future__ import annotations

import gzip
import hashlib
import random
import zipfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.lib import tatoeba
from data_prep.lib.hold_out import HeldOut, hold_out
from headprune.errors import DataError


def keys(pairs: list[tuple[str, str]], side: int) -> set[str]:
    return {" ".join(pair[side].casefold().split()) for pair in pairs}


@settings(max_examples=50, deadline=None)
@given(st.data())
def test_no_sentence_is_in_two_sets(data: st.DataObject) -> None:
    sentence = st.sampled_from(["a", "A", "b", "c c", "C  c", "d", "e", "f", "g", "h"])
    pairs = data.draw(st.lists(st.tuples(sentence, sentence), min_size=1, max_size=60))
    sizes = (data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3)))
    try:
        valid, test = hold_out((pairs, pairs), sizes, seed=data.draw(st.integers(0, 99)))
    except DataError:
        return
    held_out = HeldOut([*valid, *test])
    train = [pair for pair in pairs if pair not in held_out]
    assert (len(valid), len(test)) == sizes
    for side in (0, 1):
        assert len(keys(valid, side)) == len(valid)
        assert not keys(valid, side) & keys(test, side)
        assert not keys(train, side) & (keys(valid, side) | keys(test, side))
    assert {*train, *valid, *test} <= set(pairs)
    dropped = [pair for pair in pairs if pair not in {*train, *valid, *test}]
    held = [*valid, *test]
    assert all(keys([p], 0) & keys(held, 0) or keys([p], 1) & keys(held, 1) for p in dropped)


def some_list(count: int) -> list[tuple[str, str]]:
    return [(f"sentence {n // 3}", f"Satz {n // 2}") for n in range(count)]


def test_the_order_of_the_list_does_not_matter() -> None:
    pairs = some_list(300)
    shuffled = random.Random(0).sample(pairs, len(pairs))
    assert hold_out((pairs, pairs), (10, 10), seed=1) == hold_out(
        (shuffled, shuffled), (10, 10), seed=1
    )


def test_the_seed_decides() -> None:
    pairs = some_list(300)
    assert hold_out((pairs, pairs), (5, 5), seed=1) != hold_out((pairs, pairs), (5, 5), seed=2)


@pytest.mark.parametrize("seed", range(5))
def test_empty_sentences_are_neither_held_out_nor_shared(seed: int) -> None:
    whole = [(f"source {n}", f"target {n}") for n in range(10)]
    halves = [(" ", f"only {n}") for n in range(5)] + [(f"alone {n}", "") for n in range(5)]
    pairs = halves + whole
    (held,) = hold_out((pairs, pairs), (10,), seed=seed)
    assert sorted(held) == whole
    assert not any(pair in HeldOut([*held, ("", "a sentence")]) for pair in halves)


def test_too_few_sentences() -> None:
    pairs = [("one", "eins"), ("two", "zwei")]
    with pytest.raises(DataError, match=r"only 2 different sentences .* of the 3 asked for"):
        hold_out((pairs, pairs), (1, 2), seed=1)


@pytest.mark.parametrize("kind", ["deu.txt", "deu.txt.gz", "deu-eng.zip"])
def test_reads_all_kinds_of_lists(tmp_path: Path, kind: str) -> None:
    text = "".join(f"{a}\t{b}\tCC-BY 2.0\n" for a, b in some_list(90))
    path = tmp_path / kind
    if kind.endswith(".zip"):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("_about.txt", "about")
            archive.writestr("deu.txt", text)
    else:
        path.write_bytes(gzip.compress(text.encode()) if kind.endswith(".gz") else text.encode())
    tatoeba.main([str(path), str(tmp_path / "list")])
    sides = [(tmp_path / f"list.{each}").read_text().splitlines() for each in ("en", "de")]
    assert list(zip(*sides, strict=True)) == some_list(90)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("one\teins\ntwo\n", "deu.txt: line 2 has no tab"),
        ("one\t \n", "deu.txt: line 1 has an empty sentence"),
        ("", "deu.txt: empty"),
    ],
)
def test_bad_lists(tmp_path: Path, text: str, told: str) -> None:
    (tmp_path / "deu.txt").write_text(text)
    with pytest.raises(DataError, match=told):
        list(tatoeba.read_list(tmp_path / "deu.txt"))


def test_releases_are_recognised(shared_data: Path) -> None:
    path = shared_data / "tatoeba_ende" / "deu.txt.gz"
    line = tatoeba.check_release(path, name="deu.txt.gz", expected=None)
    assert line == "deu.txt.gz: the release of 2018-05-13"


def test_an_unknown_release_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "deu.txt"
    path.write_text("one\teins\n")
    digest = hashlib.sha256(b"one\teins\n").hexdigest()
    line = tatoeba.check_release(path, name="deu.txt", expected=None)
    assert line.startswith("note: deu.txt: a release that is not known here")
    assert "\n" not in line and f"--sha256 {digest} " in line
    line = tatoeba.check_release(path, name="deu.txt", expected=digest.upper())
    assert line == "deu.txt: the release that was asked for"
    with pytest.raises(DataError, match="without --sha256 every list is taken"):
        tatoeba.check_release(path, name="deu.txt", expected="0" * 64)


def test_the_list_of_another_language(tmp_path: Path) -> None:
    text = "".join(f"sentence {n}\tphrase {n}\n" for n in range(40))
    with zipfile.ZipFile(tmp_path / "fra-eng.zip", "w") as archive:
        archive.writestr("fra.txt", text)
    arguments = ["--language", "fr", "--member", "fra.txt", str(tmp_path / "fra-eng.zip")]
    tatoeba.main([*arguments, str(tmp_path / "list")])
    assert (tmp_path / "list.fr").read_text().splitlines()[39] == "phrase 39"
