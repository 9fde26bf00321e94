"""Sentence pairs of one's own: formats, cleaning, held-out sets, languages without spaces."""

from __future__ import annotations

import gzip
import json
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import Script

from data_prep.lib import bitext, manifest
from data_prep.lib.add_test import add, leaked_pairs
from data_prep.lib.hold_out import key
from data_prep.lib.languages import length, subwords_for
from data_prep.lib.pairs import read_pairs
from headprune.errors import DataError, UsageError

ENDE = ("en", "de")
NEW = [("A new sentence.", "Ein neuer Satz.")]
TMX = """<?xml version="1.0"?>
<tmx version="1.4"><header/><body>
<tu><tuv xml:lang="de-DE"><seg>Eine Katze.</seg></tuv><tuv xml:lang="en-US">
<seg>A <bpt i="1">&lt;b&gt;</bpt>cat<ept i="1">&lt;/b&gt;</ept>.</seg></tuv></tu>
<tu><tuv lang="EN"><seg>Only English</seg></tuv></tu>
<tu><tuv lang="EN"><seg>Two <hi>dogs</hi>
  run.</seg></tuv><tuv lang="DE"><seg>Zwei Hunde laufen.</seg></tuv></tu>
</body></tmx>"""
PACKED = gzip.compress(TMX.encode())


def write_sides(
    prefix: Path, pairs: list[tuple[str, str]], languages: tuple[str, str] = ENDE
) -> str:
    for side, language in enumerate(languages):
        text = "".join(f"{pair[side]}\n" for pair in pairs)
        Path(f"{prefix}.{language}").write_text(text, encoding="utf-8")


def test_every_format_gives_the_same_pairs(tmp_path: Path) -> None:
    clean = [("A cat.", "Eine Katze."), ("Two dogs run.", "Zwei Hunde laufen.")]
    table = "".join(f"{source}\t{target}\tmore\n" for source, target in clean)
    swapped = "".join(f"{target}\t{source}\n" for source, target in clean)
    files = {
        "a.tsv": table.encode(),
        "b.txt.gz": gzip.compress(table.encode()),
        "c.de-en.tsv": swapped.encode(),
        "d.tmx": TMX.encode(),
        "e.tmx.gz": gzip.compress(TMX.encode()),
    }

    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        assert list(read_pairs(str(tmp_path / name), ENDE)) == clean, name
    write_sides(tmp_path / "f", clean)
    (tmp_path / "f.de.gz").write_bytes(gzip.compress((tmp_path / "f.de").read_bytes()))
    (tmp_path / "f.de").unlink()
    assert list(read_pairs(str(tmp_path / "f"), ENDE)) == clean


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("x.tsv", b"one\teins\ntwo\n", "x.tsv: line 2 has no tab between two sentences"),
        ("x.tsv", b"", "x.tsv: there is no pair in it"),
        ("x.tmx", TMX[:-20].encode(), "x.tmx: not a whole TMX file"),
        ("x.tmx.gz", PACKED[:-9], "x.tmx.gz: not a whole TMX file"),
        ("x.tmx.gz", PACKED[:-8] + bytes(4) + PACKED[-4:], "x.tmx.gz: not a whole TMX file .CRC"),
        ("x.tmx.gz", PACKED[:20] + b"\xff" * 9 + PACKED[29:], "x.tmx.gz: not .* TMX file .Error"),
        ("x.tmx", TMX.replace("de-DE", "fr").replace("DE", "FR").encode(), "none of its 3 transl"),
        ("x.none", b"", "x.none: no such file, nor .*x.none.gz"),
    ],
)
def test_damaged_sources_are_named(name: str, content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / ("x" if name == "x.none" else name)
    path.write_bytes(content)
    with pytest.raises(DataError, match=message):
        list(read_pairs(str(path), ("none", "de") if name == "x.none" else ENDE))


@pytest.mark.parametrize(
    ("name", "languages", "order"),
    [
        ("trade-en-de.tsv", ("en", "de"), None),
        ("reddit-en-it.tsv", ("en", "it"), None),
        ("news.ru-en.tsv", ("en", "ru"), "ru, en"),
        ("en-de_of_de-en.tsv", ("en", "de"), None),
        ("DE-EN.tsv", ("en", "de"), "de, en"),
    ],
)
def test_the_order_of_a_table_is_a_whole_word_of_its_name(
    name: str,
    languages: tuple[str, str],
    order: str | None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (tmp_path / name).write_text("one\ttwo\n")
    expected = ("two", "one") if order else ("one", "two")
    assert list(read_pairs(str(tmp_path / name), languages)) == [expected]
    note = f"note: reads {tmp_path / name} as {order}\n" if order else ""
    assert capsys.readouterr().err == note


@pytest.mark.parametrize(
    ("header", "pairs"),
    [
        ("en\tde", [("A cat.", "Eine Katze.")]),
        ("en-US\tDE", [("A cat.", "Eine Katze.")]),
        ("Source\tTarget\tscore", [("A cat.", "Eine Katze.")]),
        ("de\ten", [("Eine Katze.", "A cat.")]),
        ("en\tfr", [("en", "fr"), ("A cat.", "Eine Katze.")]),
    ],
)
def test_a_header_is_no_pair(
    header: str, pairs: list[tuple[str, str]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "x.tsv"
    path.write_text(f"{header}\nA cat.\tEine Katze.\n")
    assert list(read_pairs(str(path), ENDE)) == pairs
    assert ("skips the header" in capsys.readouterr().err) == (len(pairs) == 1)


def test_regions_of_a_language_are_kept_apart(tmp_path: Path) -> None:
    path = tmp_path / "x.tmx"
    variants = (("pt-PT", "comboio"), ("pt-BR", "trem"), ("en-US", "railroad"), ("en", "train"))
    sides = "".join(f'<tuv xml:lang="{code}"><seg>{text}</seg></tuv>' for code, text in variants)
    path.write_text(f"<tmx><body><tu>{sides}</tu></body></tmx>")

    def pair(*languages: str) -> tuple[str, str]:
        (read,) = read_pairs(str(path), (languages[0], languages[1]))
        return read

    assert pair("pt_BR", "pt_PT") == ("trem", "comboio")
    assert pair("en", "pt") == ("train", "comboio")
    assert pair("en_GB", "pt_BR") == ("railroad", "trem")
    with pytest.raises(DataError, match="has both pt and pt_BR, with exactly these codes"):
        pair("pt", "pt_BR")


def test_a_large_tmx_file_takes_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.tmx"
    unit = '<tu><tuv lang="en"><seg>A cat.</seg></tuv><tuv lang="de"><seg>Rex</seg></tuv></tu>\n'
    path.write_text(f"<tmx><header/><body>{unit * 2000}</body></tmx>")
    tracemalloc.start()
    try:
        assert sum(1 for _ in read_pairs(str(path), ENDE)) == 2000
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 1_000_000  # 2.4 MB with all units in memory


Divide = Callable[..., dict[str, object]]


@pytest.fixture
def divide(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Divide:
    """Divide the corpus ``corpus`` in the current folder; returns the report."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "raw").mkdir()

    def run(*arguments: str, languages: tuple[str, str] = ENDE) -> dict[str, object]:
        bitext.main(
            [
                *("divide", "--raw-folder", ".", "--source-lang", languages[0]),
                *("--target-lang", languages[1], "--seed", "1", "--ratio", "1.5"),
                *("--max-length", "9", "corpus", *arguments),
            ]
        )
        report: dict[str, object] = json.loads(Path("dropped.json").read_text())
        return report

    return run


def sides(split: str, languages: tuple[str, str] = ENDE) -> list[list[str]]:
    return [Path(f"raw/{split}.{each}").read_text("utf-8").splitlines() for each in languages]


def test_dropped_pairs_are_counted_and_listed(divide: Divide) -> None:
    good = [(f"good sentence number {n}", f"guter Satz Nummer {n}") for n in range(5)]
    bad = [
        ("", "leer"),
        ("one two three", "eins zwei"),  # 1.5 times as long is still clean
        ("one two three four", "eins zwei"),
        (" ".join("x" * 10), " ".join("y" * 10)),
        ("A  TEST sentence", "etwas anderes hier"),
    ]
    write_sides(Path("corpus"), [*good, *bad])
    write_sides(Path("given"), [("a test sentence", "ein Testsatz"), ("other", "anderer")])
    write_sides(Path("checked"), [("other", "andres"), ("something else", "noch etwas")])
    report = divide("--test", "given", "--valid", "checked")
    assert report == {
        "pairs": 10,
        "kept": 6,
        "held_out": 0,
        "dropped": {
            "empty side": 1,
            "length ratio": 1,
            "too long": 1,
            "in a held-out set": 1,
        },
        "dropped_from_valid": 1,
    }
    assert sides("train")[0] == [*(source for source, _ in good), "one two three"]
    assert sides("valid") == [["something else"], ["noch etwas"]]
    listed = Path("dropped.tsv").read_text().splitlines()
    assert listed[:2] == ["reason\tpair\ten\tde", "empty side\t6\t\tleer"]
    assert listed[-1].startswith("in a held-out set\t10\tA  TEST sentence\t")

    everything = divide("--test", "given", "--valid", "checked", "--keep-all")
    assert everything["kept"] == 10 and len(sides("valid")[0]) == 2


def test_held_out_sets_share_no_sentence_and_follow_the_seed(divide: Divide) -> None:
    numbers = random.Random(0)
    words = [f"w{n}" for n in range(20)]
    pairs = [
        (f"{numbers.choice(words)} {numbers.choice(words)}", f"{numbers.choice(words)} x")
        for _ in range(400)
    ]
    write_sides(Path("corpus"), pairs)
    report = divide("--valid-lines", "3", "--test-lines", "2")
    first = {split: sides(split) for split in ("train", "valid", "test")}
    assert [len(first[split][0]) for split in ("valid", "test")] == [3, 2]
    for side in (0, 1):
        sets = [{key(line) for line in each[side]} for each in first.values()]
        assert not sets[0] & sets[1] and not sets[0] & sets[2] and not sets[1] & sets[2]
    dropped = report["dropped"]
    assert isinstance(dropped, dict) and set(dropped) == {"in a held-out set"}
    assert report["held_out"] == 5 and report["pairs"] == 400
    assert divide("--valid-lines", "3", "--test-lines", "2") == report
    assert {split: sides(split) for split in first} == first
    divide("--valid-lines", "3", "--test-lines", "2", "--seed", "2")
    assert sides("test") != first["test"]
    whole = divide("--valid-lines", "3", "--test-lines", "2", "--keep-all")
    assert {split: sides(split) for split in ("valid", "test")} == {
        split: first[split] for split in ("valid", "test")
    }
    assert whole["kept"] == report["kept"]  # what is held out is never trained on
    turned = divide(
        *("--valid-lines", "3", "--test-lines", "2", "--hold-out-by", "de"), languages=("en", "de")
    )
    assert turned["held_out"] == 5 and sides("test") != first["test"]
    for name, language in (("corpus", "en"), ("corpus", "de")):
        Path(f"{name}.{language}").rename(f"{name}.{language}.tmp")
    Path("corpus.de.tmp").rename("corpus.en")
    Path("corpus.en.tmp").rename("corpus.de")
    held_out = sides("test")
    divide("--valid-lines", "3", "--test-lines", "2", "--hold-out-by", "en")
    assert sides("test") == held_out[::-1]
    with pytest.raises(DataError, match="different sentences can be held out of the 900 asked for"):
        divide("--valid-lines", "500", "--test-lines", "400")


def test_too_few_clean_pairs_to_hold_out_of(divide: Divide) -> None:
    write_sides(Path("corpus"), [("", ""), ("one two", "eins zwei"), ("", "leer")])
    with pytest.raises(DataError, match="only 1 clean pairs .* to hold out 2 more; give more --tr"):
        divide()
    assert not any(Path("raw").iterdir())
    write_sides(Path("corpus"), [(f"good sentence {n}", f"guter Satz {n}") for n in range(4)])
    with pytest.raises(DataError, match=r"no pair is left for training, of 4 \(4 held out\)"):
        divide("--valid-lines", "2", "--test-lines", "2")


def test_given_sets_may_overlap_and_a_sample_is_drawn(divide: Divide) -> None:
    pairs = [(f"good sentence {n}", f"guter Satz {n}") for n in range(30)]
    write_sides(Path("corpus"), [*pairs, ("", "leer")])
    write_sides(Path("given"), pairs[:3])
    write_sides(Path("checked"), pairs[2:5])
    given = ("--test", "given", "--valid", "checked")
    report = divide(*given, "--keep-overlap")
    assert (report["kept"], report["dropped"]) == (30, {"empty side": 1})
    assert sides("valid")[0] == [source for source, _ in pairs[2:5]]
    report = divide(*given, "--pairs", "10")
    assert (report["kept"], report["not_drawn"]) == (10, 15)
    assert report["dropped"] == {"in a held-out set": 5, "empty side": 1}
    drawn = sides("train")
    assert set(zip(*drawn, strict=True)) <= set(pairs[5:])
    # They stay in the order of the corpus.
    assert drawn[0] == sorted(drawn[0], key=lambda line: int(line.split()[-1]))
    with pytest.raises(DataError, match="only 25 clean pairs .of corpus; .* for the 26 asked for"):
        divide(*given, "--pairs", "26")
    assert sides("train") == drawn


def test_languages_without_spaces_are_measured_in_characters(divide: Divide) -> None:
    lengths = [length(text) for text in ("two words", "两个词 ok", "ここ3つ", "สอง")]
    assert lengths == [2, 4, 4, 3]
    # Each is 1.5 times as many characters as words, up to the last.
    pairs = [(f"the cat number {n}", f"这只猫第{n}号") for n in range(60)]
    write_sides(Path("corpus"), [*pairs, ("one", "这是一个很长的")], ("en", "zh"))
    report = divide("--valid-lines", "2", "--test-lines", "2", languages=("en", "zh"))
    assert report["dropped"] == {"length ratio": 1}


def test_an_added_test_set_is_compared_with_the_training_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("raw").mkdir()
    write_sides(
        Path("raw/test1"),
        [("A  cat.", "Ein Kater."), ("Two dogs.", "Zwei  hunde."), ("A fox.", "Eine Katze!"), *NEW],
    )
    assert leaked_pairs("test1", ENDE) is None  # no training text to compare with
    assert "raw/train.en" in capsys.readouterr().err
    write_sides(Path("raw/train"), [("a cat.", "Eine Katze."), ("x", "Zwei Hunde.")])
    assert leaked_pairs("test1", ENDE) == 2
    assert capsys.readouterr().err == (
        "warning: test1: 2 of 4 pairs have a sentence in the training set\n"
    )
    write_sides(Path("raw/test2"), NEW)
    assert leaked_pairs("test2", ENDE) == 0 and not capsys.readouterr().err


def test_a_copy_of_a_preparation_takes_a_test_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has all but the stamps of the steps; see prepared.sh."""
    monkeypatch.chdir(tmp_path)
    for folder in ("raw", "bpe", "bin"):
        Path(folder).mkdir()
    write_sides(Path("raw/train"), [("A cat.", "Eine Katze.")])
    Path("bpe/codes").write_text("#version: 0.2\na t</w>\n")
    for language in ENDE:
        Path(f"bin/dict.{language}.txt").write_text("n@@ 2\n. 1\n")
    facts = {"source_lang": "en", "target_lang": "de", "tokenizer": "moses", "bpe": "subword_nmt"}
    Path("prep.json").write_text(json.dumps({**facts, "bpe_codes": "bpe/codes", "counts": {}}))
    write_sides(Path("more"), NEW)
    assert add("more") == "test1"
    assert json.loads(Path("prep.json").read_text())["counts"] == {"test1": 1}
    assert Path("bin/test1.en-de.de.bin").is_file()


def test_test_sets_of_an_earlier_preparation_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("raw").mkdir()
    for name in ("test", "test1", "train"):
        write_sides(Path("raw") / name, NEW)
    manifest.warn_of_other_tests(("test", "test1"), ENDE)
    assert not capsys.readouterr().err
    manifest.warn_of_other_tests(("test",), ENDE)
    assert capsys.readouterr().err.startswith("warning: raw/test1.de: of an earlier preparation")


def test_a_language_decides_the_tools() -> None:
    assert subwords_for(("en", "de")) == "subword-nmt"
    assert subwords_for(("en", "zh_CN")) == subwords_for(("th", "en")) == "sentencepiece"
    assert subwords_for(("en", "de"), given="sentencepiece") == "sentencepiece"
    with pytest.raises(UsageError, match="the Moses tokeniser does not know the language ja;"):
        subwords_for(("en", "ja"), given="subword-nmt")


def test_files_of_the_user_in_the_folders_of_the_script_are_refused(
    script: Script, tmp_path: Path, python: str
) -> None:
    """It would take them for those of a calling script, and clean nothing."""
    raw = tmp_path / "out" / "raw"
    raw.mkdir(parents=True)
    for name in ("train", "valid", "test"):
        write_sides(raw / name, NEW)
    common = ("bitext.sh", "--out", "out", "--python", python)
    for options in (("--from-dir", raw), ("--train", raw / "mine")):
        done = script(*common, "--pair", "en-de", *options)
        assert done.returncode == 2
        assert "lies where this script writes; move your files" in done.stderr
        assert not (tmp_path / "out" / "prep.json").exists()


@pytest.mark.parametrize(
    "option",
    ["--test more", "--test-lines=5", "--keep-all", "--merges 50", "--truecase", "--pairs 7"],
)
def test_a_test_set_is_added_with_the_options_of_its_preparation(
    option: str, script: Script, tmp_path: Path, python: str
) -> None:
    (tmp_path / "out").mkdir()
    done = script(
        "bitext.sh", "--out", "out", "--python", python, "--add-test", "a", *option.split()
    )
    name = option.replace("=", " ").split()[0]
    assert done.returncode == 2
    assert f"--add-test goes with --out alone, without {name}" in done.stderr


@pytest.mark.slow
def test_a_region_leaves_the_rules_of_the_language(
    script: Script, tmp_path: Path, python: str
) -> None:
    pairs = [(f"I don't know dog {n}.", f"Ich kenne Hund {n} nicht.") for n in range(60)]
    write_sides(tmp_path / "my", pairs, ("en_GB", "de"))
    arguments = ("--pair", "en_GB-de", "--train", "my", "--merges", 20, "--workers", 1)
    done = script("bitext.sh", "--out", "out", *arguments, "--python", python)
    assert done.returncode == 0, done.stderr
    for split in ("train", "valid"):
        lines = (tmp_path / "out" / "tok" / f"{split}.en_GB").read_text().splitlines()
        assert lines and all(line.startswith("I don &apos;t know dog ") for line in lines)
    prep = json.loads((tmp_path / "out" / "prep.json").read_text())
    assert prep["tokenizer_languages"] == {"en_GB": "en", "de": "de"}


@pytest.mark.slow
def test_chinese_from_a_table_all_the_way(script: Script, tmp_path: Path, python: str) -> None:
    numbers = random.Random(1)
    rows = []
    for _ in range(120):
        animal, place, count = (numbers.randrange(9) for _ in range(3))
        rows.append(f"cat{animal} is in house{place} {count}\t猫{animal}在房子{place}里{count}")
    (tmp_path / "my.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
    arguments = ("--pair", "en-zh", "--train", "my.tsv", "--merges", 60, "--workers", 1)
    arguments += ("--name", "cats")
    done = script("bitext.sh", "--out", "out", *arguments, "--python", python)
    assert done.returncode == 0, done.stderr
    assert "note: sentencepiece, since the Moses tokeniser does not know zh" in done.stderr
    prep = json.loads((tmp_path / "out" / "prep.json").read_text())
    assert (prep["tokenizer"], prep["bpe"]) == (None, "sentencepiece")
    assert prep["corpus"] == "cats"
    assert prep["sacrebleu_tokenizers"] == {"en": "13a", "zh": "zh"}
    counts = prep["counts"]
    assert prep["cleaning"]["pairs"] == 120 and counts["valid"] == counts["test"] >= 10

    (tmp_path / "more.tsv").write_text("cat3 is in house5 6\t猫3在房子5里6\n", encoding="utf-8")
    done = script("bitext.sh", "--out", "out", "--add-test", "more.tsv", "--python", python)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "out"
    assert (out / "bin" / "test1.en-zh.zh.bin").is_file()
    prep = json.loads((out / "prep.json").read_text())
    assert prep["counts"] == {**counts, "test1": 1}
    assert set(prep["in_training"]) == {"test1"}
    # The codes are those of the preparation, and a second run finds everything in its place.
    line = (out / "raw" / "test.en").read_text().splitlines()[0]
    (tmp_path / "same.en").write_text(line + "\n")
    (tmp_path / "same.zh").write_text((out / "raw" / "test.zh").read_text().splitlines()[0] + "\n")
    again = script("bitext.sh", "--out", "out", "--add-test", "same", "--python", python)
    assert again.returncode == 0, again.stderr
    split = [(out / "bpe" / f"{name}.zh").read_text().splitlines()[0] for name in ("test", "test2")]
    assert split[0] == split[1]
    done = script("bitext.sh", "--out", "out", *arguments, "--python", python)
    assert done.returncode == 0 and "run:" not in done.stderr, done.stderr
