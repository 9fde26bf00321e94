"""Tests of cleaning and sampling."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from data_prep.lib import bitext, sample
from data_prep.lib.bitext import Cleaning
from headprune.errors import DataError

ROOT = Path(__file__).resolve().parents[2]


def words(count: int) -> str:
    return " ".join(["w"] * count)


@pytest.mark.parametrize(
    ("source", "target", "clean"),
    [
        (1, 1, True),
        (0, 0, False),
        (0, 1, False),
        (1, 0, False),
        (2, 3, True),
        (3, 2, True),
        (2, 4, False),
        (7, 10, True),
        (7, 11, False),
        (250, 250, True),
        (251, 250, False),
        (250, 251, False),
    ],
)
def test_clean_is_what_clean_corpus_n_keeps(source: int, target: int, clean: bool) -> None:
    limits = Cleaning(ratio=1.5, longest=250)
    assert (limits.reason_to_drop(words(source), words(target)) is None) is clean


@settings(deadline=None)
@given(st.integers(0, 60), st.integers(0, 60), st.integers())
def test_takes_exactly_as_many_as_asked(wanted: int, more: int, seed: int) -> None:
    drawn = list(sample.selection(wanted, wanted + more, seed=seed))
    assert len(drawn) == wanted + more
    assert sum(drawn) == wanted
    assert drawn == list(sample.selection(wanted, wanted + more, seed=seed))


def test_every_item_is_taken_equally_often() -> None:
    taken: Counter[int] = Counter()
    for seed in range(4000):
        taken.update(i for i, is_in in enumerate(sample.selection(3, 10, seed=seed)) if is_in)
    # 1200 expected of each; the standard deviation is 29
    assert all(abs(taken[item] - 1200) < 150 for item in range(10))


def corpora(folder: Path) -> None:
    """Write two corpora, raw and tokenised, in which every third pair is not clean."""
    for kind in ("raw", "tok"):
        (folder / kind).mkdir(parents=True)
    for name, count in (("first", 30), ("second", 60)):
        for language in ("en", "de"):
            raw = [f"{name}{language}{n} ." for n in range(count)]
            tok = [
                f"{line} {words(5)}" if n % 3 == 0 and language == "de" else line
                for n, line in enumerate(raw)
            ]
            (folder / "raw" / f"{name}.{language}").write_text("\n".join(raw) + "\n")
            (folder / "tok" / f"{name}.{language}").write_text("\n".join(tok) + "\n")


@pytest.fixture
def draw(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Draw a sample of the two corpora into raw/train and tok/train of the current folder."""
    monkeypatch.chdir(tmp_path)
    corpora(Path("corpora"))

    def run(*options: str) -> None:
        bitext.main(
            ["divide", "--source-lang", "en", "--target-lang", "de", "--ratio", "1.5", *options]
            + ["--raw-folder", "corpora/raw", "--tok-folder", "corpora/tok", "--valid", "given"]
            + ["--test", "given", "--keep-overlap", "--max-length", "250", "first", "second"]
        )

    for folder in ("raw", "tok"):
        Path(folder).mkdir()
    for language in ("en", "de"):
        Path(f"given.{language}").write_text("given\n")
    return run


def test_all_columns_are_drawn_together_and_in_order(draw: Callable[..., None]) -> None:
    draw("--pairs", "40", "--seed", "7")
    columns = [
        Path(f"{kind}/train.{language}").read_text().splitlines()
        for kind in ("raw", "tok")
        for language in ("en", "de")
    ]
    english, german, english_tokens, german_tokens = columns
    assert len(english) == 40
    assert english == english_tokens and german == german_tokens
    assert [line.replace("en", "de") for line in english] == german
    numbers = [(line[:5], int(line.split()[0].split("en")[1])) for line in english]
    assert all(number % 3 for _, number in numbers)
    order = [(name != "first", number) for name, number in numbers]
    assert order == sorted(order)


def test_the_seed_decides(draw: Callable[..., None]) -> None:
    drawn = []
    for seed in ("1", "1", "2"):
        draw("--pairs", "30", "--seed", seed)
        drawn.append(Path("raw/train.en").read_text())
    assert drawn[0] == drawn[1] != drawn[2]


def test_too_few_clean_pairs_names_both_numbers(draw: Callable[..., None]) -> None:
    with pytest.raises(DataError, match=r"only 60 clean pairs .* for the 61 asked for"):
        draw("--pairs", "61", "--seed", "1")
    assert not Path("raw/train.en").exists()
    draw("--seed", "1")
    assert Path("raw/train.en").read_text().count("\n") == 60


@pytest.mark.slow
def test_memory_is_flat_in_the_number_of_lines(tmp_path: Path) -> None:
    peaks = []
    for count in (5_000, 500_000):
        (tmp_path / "raw").mkdir(exist_ok=True)
        for language in ("en", "de"):
            with open(tmp_path / "raw" / f"text.{language}", "w") as file:
                file.writelines(f"a line of some words with number {n}\n" for n in range(count))
            for split in ("valid", "test"):
                (tmp_path / "raw" / f"{split}.{language}").write_text("given\n")
        program = (
            "import resource, sys; from data_prep.lib import bitext; bitext.main(sys.argv[1:]);"
            "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        done = subprocess.run(
            [sys.executable, "-c", program, "divide", "--source-lang", "en", "--target-lang", "de"]
            + ["--pairs", str(count // 2), "--seed", "1", "--raw-folder", "raw", "--ratio", "1.5"]
            + ["--max-length", "250", "--valid", "raw/valid", "--test", "raw/test", "text"]
            + ["--keep-overlap"],
            cwd=tmp_path,
            env={"PYTHONPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=True,
        )
        peaks.append(int(done.stdout))
    # kilobytes; the longer text alone has 40 MB
    assert peaks[1] - peaks[0] < 4000
