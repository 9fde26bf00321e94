"""Shortlists from training data, in the commands."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from fairseq_plugin.shortlist import make_shortlist
from headprune import DataError
from headprune.cli import app
from headprune.cli.translate import app as translate
from headprune.shortlist import Shortlist
from tests.fairseq_plugin.conftest import generate, hypotheses


def invoke(*arguments: str | Path) -> Result:
    return CliRunner().invoke(app, list(map(str, arguments)))


@pytest.fixture(scope="module")
def shortlist(full: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("shortlist") / "shortlist.txt"
    done = invoke("shortlist", full, "--best", "4", "--frequent", "10", "-o", path)
    assert done.exception is None and "target words for 30 source words" in done.stdout
    return path


def test_words_are_those_in_most_translations(corpus: Path, full: Path):
    """Counted with dictionaries of sets, sentence by sentence."""
    sides = [(corpus.parent / f"train.{language}").read_text() for language in ("en", "de")]
    frequent: Counter[str] = Counter()
    together: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for source, target in zip(*(side.splitlines() for side in sides), strict=True):
        frequent.update(set(target.split()))
        for word in set(source.split()):
            together[word].update(set(target.split()))
    made, coverage = make_shortlist(full, best=4, frequent=10)
    assert [frequent[word] for word in made.frequent] == sorted(frequent.values())[:-11:-1]
    assert made.best.keys() == together.keys()
    for word, words in made.best.items():
        assert words[0] == word  # the target is the source, reversed
        counts = sorted(together[word].values(), reverse=True)[:4]
        assert [together[word][each] for each in words] == counts
    assert coverage.share == 1.0 and 10 < coverage.words <= coverage.vocabulary


def test_generate_and_translate_use_it(corpus: Path, full: Path, shortlist: Path):
    out = generate(
        *(corpus, "--path", full, "--shortlist", shortlist, "--max-len-b=200"),
        "--required-batch-size-multiple=1",
    )
    expected = [words for _, (_, words) in sorted(hypotheses(out).items(), key=lambda i: int(i[0]))]
    text = str(corpus.parent / "test.en")
    for size in ("1", "9"):
        options = ("--beam=3", f"--batch-size={size}", "--input", text)
        done = CliRunner().invoke(translate, [str(full), *options, "--shortlist", str(shortlist)])
        assert done.stdout.splitlines() == expected
    words = Shortlist.load(shortlist)
    for source, target in zip(Path(text).read_text().splitlines(), expected, strict=True):
        lists = (words.frequent, *(words.best[word] for word in source.split()))
        assert set(target.split()) <= {word for each in lists for word in each}


def test_ctranslate2(corpus: Path, full: Path, shortlist: Path, tmp_path: Path):
    pytest.importorskip("ctranslate2")
    folder = tmp_path / "exported"
    options = ("--to", "ctranslate2", "--shortlist", shortlist, "-o", folder)
    assert invoke("export", full, *options).exception is None
    assert (folder / "vmap.txt").read_bytes() == shortlist.read_bytes()
    outputs = []
    for model in (full, folder):
        options = ("--beam=3", "--batch-size=1", "--input", str(corpus.parent / "test.en"))
        done = CliRunner().invoke(translate, [str(model), *options, "--shortlist", str(shortlist)])
        assert done.exception is None
        outputs.append(done.stdout.splitlines())
    same = [one == other for one, other in zip(*outputs, strict=True)]
    assert sum(same) >= 0.9 * len(same)  # they differ where the length limit is reached


def test_mistakes(full: Path, shortlist: Path, corpus: Path, tmp_path: Path):
    other = tmp_path / "other.txt"
    Shortlist(frequent=("w1", "w2"), best={"v1": ("w1",)}).save(other)
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    table = tmp_path / "table.txt"
    table.write_text("w1 w2\n")
    short = tmp_path / "short.txt"
    Shortlist(frequent=("w1", "w2"), best={"w1": ("w1",)}).save(short)
    for path, message in (
        (other, "other.txt: a shortlist of other dictionaries: the model's source dictionary"),
        (empty, "empty.txt: an empty shortlist"),
        (table, "table.txt: line 1 is not a source word, a tab and target words"),
        (short, "make the shortlist with --frequent 10 or more"),
        (tmp_path / "none", "none: cannot be read"),
        (full, "not UTF-8"),
    ):
        done = CliRunner().invoke(translate, [str(full), "--shortlist", str(path)], input="w1\n")
        assert message in str(done.exception) and "\n" not in str(done.exception)
    assert "Invalid value" in invoke("shortlist", full, "--best", "0", "-o", "x").output
    with pytest.raises(DataError, match="no binarised data of the split train"):
        folder = tmp_path / "dictionaries"
        folder.mkdir()
        for file in (*corpus.glob("dict.*"), *corpus.glob("valid.*")):
            (folder / file.name).write_bytes(file.read_bytes())
        make_shortlist(full, best=1, frequent=1, data=folder)
    out = generate(corpus, "--path", full, "--shortlist", str(empty), status=1)
    assert "an empty shortlist" in out and "Traceback" not in out
