"""Tests of the scripts as a user calls them."""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
import signal
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Script, Site
from test_wmt14 import published

from data_prep.lib.text import TextProcessing

SCRIPTS = ["bitext.sh", "multi30k.sh", "numbers.sh", "tatoeba.sh", "wmt14.sh"]
DIVIDED = ["divide", "tok.en", "tok.de", "bpe.learn", "bpe.en", "bpe.de", "bin", "prep.json"]
STEPS_AFTER_RAW = ["tok.en", "tok.de", "bpe.learn", "bpe.en", "bpe.de", "bin", "prep.json"]


def steps(done: subprocess.CompletedProcess[str], verb: str) -> list[str]:
    """List the names of the steps that were run or skipped."""
    return [
        line.removeprefix(f"{verb}:").split()[0]
        for line in done.stderr.splitlines()
        if line.startswith(f"{verb}:") and "checksum" not in line
    ]


def contents(folder: Path) -> dict[str, bytes]:
    """Read all files except those that record when and how the others were made."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and ".steps" not in path.parts and path.name != "preprocess.log"
    }


@pytest.mark.parametrize("name", SCRIPTS)
def test_help_teaches(script: Script, name: str) -> None:
    done = script(name, "--help")
    assert done.returncode == 0
    assert done.stdout.startswith(f"Usage: {name} --out DIR")
    for part in ("--merges", "--workers", "--bpe", "Example", "prep.json"):
        assert part in done.stdout
    assert "MERGES" not in done.stdout
    assert all(len(line) <= 92 for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", SCRIPTS)
@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ([], "--out is needed"),
        (["--out", "x", "--nonsense"], "unknown option '--nonsense'"),
        (["--out", "x", "stray"], "unknown option 'stray'"),
        (["--out"], "--out needs a value"),
        (["--out", "x", "--merges", "many"], "--merges: 'many' is not a whole number"),
        (["--out", "x", "--merges=0"], "--merges: 0 is less than 1"),
        (["--out", "x", "--workers", "0"], "--workers: 0 is less than 1"),
        (["--out", "x", "--bpe", "wordpiece"], "neither subword-nmt nor sentencepiece"),
        (["--out", "x", "--pair", "en"], "--pair: 'en' is not "),
        (["--out", "x", "--python", "no-such-python"], "cannot run 'no-such-python'"),
    ],
)
def test_bad_usage(
    script: Script, tmp_path: Path, name: str, arguments: list[str], told: str
) -> None:
    done = script(name, *arguments)
    assert done.returncode == 2
    assert told in done.stderr
    assert done.stderr.startswith("error: ") and done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "arguments", "told"),
    [
        ("wmt14.sh", ["--yandex", "f"], "--yandex is for --pair en-ru alone"),
        ("wmt14.sh", ["--ratio", "0.5"], "--ratio: '0.5' is not a number from 1"),
        ("wmt14.sh", ["--mirror", "ftp://x"], "not an http:// or https:// address"),
        ("wmt14.sh", ["--pause", "9" * 30], "is not a number of seconds below 1000"),
        ("wmt14.sh", ["--mirror", "http://user:word@x"], "is not a valid address"),
        ("bitext.sh", [], "--pair is needed"),
        ("bitext.sh", ["--name", "a|b"], "--name: 'a|b' is not a name of letters"),
        ("bitext.sh", ["--pair", "en-en", "--train", "x"], "has one language twice"),
        ("bitext.sh", ["--valid", "x", "--valid-lines", "5"], "--valid-lines goes without --valid"),
        ("multi30k.sh", ["--pair", "de-de"], "has one language twice"),
        ("wmt14.sh", ["--pair", "en-hi"], "no training data of 'en-hi' to download; give --from-"),
        ("wmt14.sh", ["--pair", "de-fr", "--from-dir", "x"], "is not one of: en-XX, XX-en; see b"),
        ("bitext.sh", ["--pair", "en-de", "--hold-out-by", "fr"], "'fr' is not one of: en de"),
        ("bitext.sh", ["--pair", "english"], "'english' is not source-target"),
        ("bitext.sh", ["--pair", "en-ru"], "--train is needed"),
        (
            "bitext.sh",
            ["--pair", "en-ja", "--train", "x", "--truecase"],
            "--truecase goes with --bpe subword-nmt",
        ),
        ("multi30k.sh", ["--url", "http://"], "is not a valid address"),
        ("multi30k.sh", ["--url", "http://a b/"], "is not a valid address"),
        ("tatoeba.sh", ["--url", "file:///etc/passwd"], "not an http:// or https:// address"),
        ("tatoeba.sh", ["--pair", "en-xx"], "the name of the list of 'xx' is not known"),
        ("tatoeba.sh", ["--sha256", "abc"], "--sha256: 'abc' is not 64 hexadecimal digits"),
        ("multi30k.sh", ["--from-dir", "a", "--url", "http://x"], "not both"),
        ("numbers.sh", ["--train", "-3"], "--train: '-3' is not a whole number"),
    ],
)
def test_bad_usage_of_one(script: Script, name: str, arguments: list[str], told: str) -> None:
    done = script(name, "--out", "x", *arguments)
    assert (done.returncode, told in done.stderr) == (2, True), done.stderr


@pytest.fixture
def captions(tmp_path: Path) -> Path:
    """Write a folder with the file names of Multi30k, some of the files compressed."""
    folder = tmp_path / "captions of mine"
    folder.mkdir()
    for name, count in (("train", 60), ("val", 8), ("test_2016_flickr", 9)):
        for language, words in (
            ("en", "A well-known man isn't reading a book"),
            ("de", "Ein Mann liest „kein“ Buch"),
        ):
            text = "".join(f"{words} number {n}.\n" for n in range(count)).encode()
            if name == "val":
                (folder / f"{name}.{language}").write_bytes(text)
            else:
                (folder / f"{name}.{language}.gz").write_bytes(gzip.compress(text))
    return folder


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        ({"val.en": None}, "val.en: no such file, nor "),
        ({"val.en": b"one\n"}, "val.en has 1 lines, "),
        ({"val.en": b"\xff\n" * 8}, "val.en: line 1 is not valid UTF-8"),
        ({"val.en": b"", "val.de": b""}, "val.de: empty, no line to read"),
        ({"train.en.gz": gzip.compress(b"a\n" * 60)[:-12]}, "train.en.gz: the compressed file"),
    ],
)
def test_bad_data(
    script: Script,
    captions: Path,
    python: str,
    spoil: dict[str, bytes | None],
    told: str,
) -> None:
    for name, content in spoil.items():
        (captions / name).unlink()
        if content is not None:
            (captions / name).write_bytes(content)
    done = script("multi30k.sh", "--out", "out", "--from-dir", captions, "--python", python)
    errors = [line for line in done.stderr.splitlines() if line.startswith("error:")]
    assert done.returncode == 1
    assert len(errors) == 1 and told in errors[0]
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1] == errors[0]


NUMBERS = ["--train", "60", "--valid", "5", "--test", "5", "--merges", "60"]


def test_a_second_preparation_waits_for_the_first(tmp_path: Path, python: str) -> None:
    (tmp_path / "out").mkdir()
    command = ["bash", str(ROOT / "data_prep" / "numbers.sh"), "--out", "out", *NUMBERS]
    with open(tmp_path / "out" / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(
            [*command, "--python", python],
            cwd=tmp_path,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stderr is not None
        assert process.stderr.readline() == (
            f"note: another preparation is at work in {tmp_path / 'out'}; waiting for it to end\n"
        )
        assert process.poll() is None
    assert process.stderr.readline() == "run:  raw\n"
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stderr.close()


@pytest.mark.slow
def test_names_of_folders_that_mean_something_else(
    script: Script, tmp_path: Path, python: str
) -> None:
    (tmp_path / "elsewhere" / "out").mkdir(parents=True)
    for name in ("-", "out"):
        done = script(
            "numbers.sh", "--out", name, *NUMBERS, "--python", python, "--workers", 1,
            CDPATH=str(tmp_path / "elsewhere"),
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert (tmp_path / name / "prep.json").is_file()
    assert not list((tmp_path / "elsewhere" / "out").iterdir())
    assert {path.name for path in tmp_path.iterdir()} == {"-", "out", "elsewhere"}


def test_more_numbers_than_there_are(script: Script, tmp_path: Path, python: str) -> None:
    done = script("numbers.sh", "--out", "out", "--train", "99999999", "--python", python)
    assert done.returncode == 2
    assert done.stderr == (
        "error: there are 21185060 different sentences, fewer than the 100000999 asked for; "
        "give smaller --train, --valid and --test\n"
    )
    assert not list(tmp_path.iterdir())
    assert "21,185,060" in script("numbers.sh", "--help").stdout


def test_a_release_of_tatoeba_can_be_asked_for(script: Script, tmp_path: Path, python: str) -> None:
    text = "".join(f"sentence number {n}\tSatz Nummer {n}\n" for n in range(20))
    (tmp_path / "deu.txt").write_text(text)
    done = script(
        "tatoeba.sh", "--out", "out", "--from-dir", ".", "--sha256", "0" * 64, "--python", python
    )
    assert done.returncode == 1
    digest = hashlib.sha256(text.encode()).hexdigest()
    assert done.stderr.splitlines()[-1] == (
        f"error: {tmp_path}/deu.txt: SHA-256 of its text is {digest}, not {'0' * 64}; "
        "without --sha256 every list is taken"
    )


@pytest.mark.slow
def test_multi30k_all_the_way(
    script: Script, captions: Path, tmp_path: Path, python: str, site: Site
) -> None:
    common = ("--from-dir", captions.name, "--python", python, "--workers", 1)
    done = script("multi30k.sh", "--out", "made/here", "--merges", 30, *common)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "made" / "here"
    assert steps(done, "run") == ["raw.train", "raw.valid", "raw.test", *STEPS_AFTER_RAW]

    prep = json.loads((out / "prep.json").read_text())
    assert prep["counts"] == {"train": 60, "valid": 8, "test": 9}
    assert (prep["source_lang"], prep["target_lang"], prep["merges"]) == ("en", "de", 30)
    assert (prep["tokenizer"], prep["bpe"]) == ("moses", "subword_nmt")
    assert (out / prep["bpe_codes"]).is_file() and (out / prep["reference"]).is_file()
    assert len(prep["sources"]) == 6 and len(prep["sources"][0]["sha256"]) == 64
    assert prep["dictionary_sizes"]["en"] == prep["dictionary_sizes"]["de"]
    expected = {"codes", "vocab.en", "vocab.de"}
    expected |= {f"{split}.{lang}" for split in ("train", "valid", "test") for lang in ("en", "de")}
    assert {path.name for path in (out / "bpe").iterdir()} == expected
    assert (out / "raw" / "test.de").read_text().startswith("Ein Mann liest „kein“ Buch number 0.")
    assert (out / "tok" / "test.en").read_text().startswith("A well @-@ known man isn &apos;t")
    assert (out / "bin" / "dict.en.txt").read_bytes() == (out / "bin" / "dict.de.txt").read_bytes()
    before = contents(out)

    # nothing to do, and the number of workers is no reason
    done = script("multi30k.sh", "--out", "made/here", "--merges", 30, *common[:-1], 2)
    assert (done.returncode, steps(done, "run")) == (0, [])
    assert len(steps(done, "skip")) == 10

    # other merges: the tokens stay
    done = script("multi30k.sh", "--out", "made/here", "--merges", 20, *common)
    assert steps(done, "run") == ["bpe.learn", "bpe.en", "bpe.de", "bin", "prep.json"]
    assert json.loads((out / "prep.json").read_text())["merges"] == 20

    # sentencepiece in the same folder
    done = script(
        "multi30k.sh", "--out", "made/here", "--bpe", "sentencepiece", "--merges", 45, *common
    )
    assert steps(done, "run") == ["bpe.learn", "bpe.en", "bpe.de", "bin", "prep.json"], done.stderr
    prep = json.loads((out / "prep.json").read_text())
    assert (prep["tokenizer"], prep["bpe"]) == (None, "sentencepiece")
    assert (out / prep["sentencepiece_model"]).is_file()

    # the same files from a server: the same bytes as the first time
    site.files = {
        f"/raw/{path.name.removesuffix('.gz')}.gz": path.read_bytes()
        if path.suffix == ".gz"
        else gzip.compress(path.read_bytes())
        for path in captions.iterdir()
    }
    site.break_after["/raw/train.en.gz"] = [100]
    done = script(
        "multi30k.sh", "--out", "fetched", "--url", f"{site.url}/raw/", "--merges", 30,
        "--python", python, "--workers", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    fetched = contents(tmp_path / "fetched")
    for name, content in before.items():
        if name != "prep.json":
            assert fetched[name] == content, name
    assert b"train.en.gz" in fetched["download/SHA256SUMS"]
    notes = [line for line in done.stderr.splitlines() if line.startswith("note:")]
    assert len(notes) == 1 and "not the published files of Multi30k: train.en.gz" in notes[0]


# Stops a step where it is about to rename its Nth output; there it waits to be killed.
STOP = """
import os, signal, sys
name, renames = os.environ["STOP_IN"].split()
if sys.orig_argv[2:4] == ["data_prep.lib.steps", name]:
    left = int(renames)
    def stopping(rename):
        def stop(*arguments, **options):
            global left
            left -= 1
            if left == 0:
                print("stopped in", name, file=sys.stderr, flush=True)
                while True:
                    signal.pause()
            rename(*arguments, **options)
        return stop
    os.replace, os.rename = stopping(os.replace), stopping(os.rename)
"""


@pytest.mark.slow
def test_a_killed_preparation_goes_on(script: Script, tmp_path: Path, python: str) -> None:
    arguments = ["--pair", "en-ru", "--train", 300, "--valid", 20, "--test", 20, "--merges", 60]
    arguments += ["--python", python, "--workers", 1]
    whole = script("numbers.sh", "--out", "whole", *arguments)
    assert whole.returncode == 0, whole.stderr
    (tmp_path / "stop").mkdir()
    (tmp_path / "stop" / "sitecustomize.py").write_text(STOP)
    # the second and third outputs, or the stamp, after some outputs are in place
    for name, renames in (("raw", 4), ("tok.ru", 2), ("bpe.learn", 2), ("bpe.ru", 3), ("bin", 1)):
        process = subprocess.Popen(
            ["bash", str(ROOT / "data_prep" / "numbers.sh"), "--out", "killed"]
            + [str(argument) for argument in arguments],
            cwd=tmp_path,
            env={
                **os.environ,
                "PYTHONPATH": str(tmp_path / "stop"),
                "STOP_IN": f"{name} {renames}",
            },
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        assert process.stderr is not None
        seen = ""
        for line in process.stderr:
            seen += line
            if line == f"stopped in {name}\n":
                os.killpg(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, seen
        process.stderr.close()
        assert not (tmp_path / "killed" / "prep.json").exists()
    done = script("numbers.sh", "--out", "killed", *arguments)
    assert done.returncode == 0, done.stderr
    assert steps(done, "run")[-2:] == ["bin", "prep.json"]
    assert contents(tmp_path / "killed") == contents(tmp_path / "whole")


@pytest.mark.slow
def test_tatoeba_all_the_way(script: Script, tmp_path: Path, python: str, site: Site) -> None:
    text = "".join(f"sentence number {n // 3}\tSatz Nummer {n // 2}\n" for n in range(200))
    site.files["/anki/deu%20eng.txt.gz?today"] = gzip.compress(text.encode())
    options = ["--valid", 5, "--test", 6, "--merges", 30, "--python", python, "--workers", 1]
    done = script(
        "tatoeba.sh", "--out", "out", "--url", f"{site.url}/anki/deu%20eng.txt.gz?today",
        "--pair=de-en", "--separate-dictionaries", *options,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert steps(done, "run")[:2] == ["unpack", "corpora.tok.deu.de"]
    prep = json.loads((tmp_path / "out" / "prep.json").read_text())
    assert (prep["pair"], prep["counts"]["valid"], prep["counts"]["test"]) == ("de-en", 5, 6)
    assert prep["joined_dictionary"] is False
    dictionaries = [tmp_path / "out" / "bin" / f"dict.{lang}.txt" for lang in ("de", "en")]
    assert dictionaries[0].read_bytes() != dictionaries[1].read_bytes()
    assert (tmp_path / "out" / "bin" / "train.de-en.de.bin").is_file()
    (source,) = prep["sources"]
    assert source["file"].endswith(".gz") and prep["seed"] == 1
    held_out = (tmp_path / "out/raw/test.en").read_text()

    # The other direction, from a file, has the same sets; the list of any other language serves.
    (tmp_path / "yue.txt").write_text(text)
    done = script("tatoeba.sh", "--out", "yue", "--from-dir", ".", "--pair", "en-yue", *options)
    assert done.returncode == 0, done.stderr
    assert "note: sentencepiece, since the Moses tokeniser does not know yue" in done.stderr
    assert (tmp_path / "yue/raw/test.en").read_text() == held_out


@pytest.mark.slow
def test_wmt14_all_the_way(script: Script, tmp_path: Path, python: str, site: Site) -> None:
    site.files = published("de")
    site.break_after["/wmt13/training-parallel-commoncrawl.tgz"] = [50]
    arguments = ["--out", "out", "--mirror", site.url, "--merges", 20, "--python", python]
    arguments += ["--workers", 1, "--pause", 0.01, "--attempts", 2]
    done = script("wmt14.sh", *arguments, "--pairs", 100)
    assert done.returncode == 1
    assert "but 0224c7c7" in done.stderr
    (tmp_path / "out/download/training-parallel-europarl-v7.tgz.rejected").unlink()

    arguments.append("--no-known-checksums")
    done = script("wmt14.sh", *arguments, "--pairs", 121)
    assert done.returncode == 1
    last = done.stderr.splitlines()[-1]
    assert last.startswith("error: only 120 clean pairs") and "for the 121 asked for" in last

    done = script("wmt14.sh", *arguments, "--pairs", 100)
    assert done.returncode == 0, done.stderr
    assert steps(done, "run") == DIVIDED
    out = tmp_path / "out"
    prep = json.loads((out / "prep.json").read_text())
    assert prep["counts"] == {"train": 100, "valid": 6, "test": 7}
    assert prep["seed"] == 1 and prep["options"]["pairs"] == "100"
    assert prep["options"]["corpora"] == "europarl-v7 commoncrawl news-commentary-v9"
    assert {Path(each["file"]).suffix for each in prep["sources"]} == {".tgz"}
    assert prep["cleaning"] == {
        "pairs": 121,
        "kept": 100,
        "held_out": 0,
        "not_drawn": 20,
        "dropped": {"empty side": 1},
        "dropped_from_valid": 0,
    }
    assert (out / "raw/test.de").read_text().startswith("Probe 0.\n")
    drawn = (out / "raw/train.en").read_text()

    # another seed draws anew, but does not tokenise the corpora again
    done = script("wmt14.sh", *arguments, "--pairs", 100, "--seed", 2)
    assert done.returncode == 0, done.stderr
    assert steps(done, "run")[0] == "divide"
    assert "corpora.tok.commoncrawl.de" in steps(done, "skip")
    assert (out / "raw/train.en").read_text() != drawn

    # what is there is checked
    with open(out / "download/dev.tgz", "ab") as archive:
        archive.write(b"x")
    done = script("wmt14.sh", *arguments, "--pairs", 100, "--seed", 2)
    assert done.returncode == 1
    assert "download/dev.tgz: SHA-256 is" in done.stderr


@pytest.mark.slow
def test_wmt14_from_a_folder_with_sentencepiece(
    script: Script, tmp_path: Path, python: str
) -> None:
    source = tmp_path / "texts"
    source.mkdir()
    for name, content in published("ru").items():
        (source / Path(name).name).write_bytes(content)
    done = script(
        "wmt14.sh", "--out", "out", "--pair", "en-ru", "--from-dir", source, "--pairs", "all",
        "--bpe", "sentencepiece", "--merges", 60, "--python", python, "--workers", 1,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert not any("tok" in step for step in steps(done, "run"))
    prep = json.loads((tmp_path / "out" / "prep.json").read_text())
    assert prep["counts"]["train"] == 50 + 30 + 20
    assert not (tmp_path / "out" / "tok").exists()


@pytest.mark.slow
def test_real_captions(script: Script, shared_data: Path, tmp_path: Path, python: str) -> None:
    """bin/ has every sentence, and undoing the processing gives the raw references."""
    small = tmp_path / "small"
    small.mkdir()
    for name, count in (("train", 2000), ("val", 200), ("test_2016_flickr", 200)):
        for language in ("en", "de"):
            with gzip.open(shared_data / "multi30k" / f"{name}.{language}.gz", "rt") as file:
                text = "".join(line for _, line in zip(range(count), file, strict=False))
            (small / f"{name}.{language}").write_text(text)
    done = script(
        "multi30k.sh", "--out", "out", "--from-dir", small, "--merges", 500, "--python", python,
        "--workers", 2,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    log = (tmp_path / "out" / "bin" / "preprocess.log").read_text()
    assert "2000 sents" in log and log.count("200 sents") == 4


@pytest.mark.slow
def test_sentence_pairs_of_ones_own(script: Script, tmp_path: Path, python: str) -> None:
    folder = tmp_path / "pairs"
    folder.mkdir()
    for split, numbers in (("test", range(6)), ("valid", range(6, 11)), ("train", range(11, 51))):
        for language, words in (("en", "A man reads a book"), ("ru", "Человек читает книгу")):
            text = "".join(f"{words} {n}.\n" for n in numbers).encode()
            if split == "train":
                (folder / f"{split}.{language}.gz").write_bytes(gzip.compress(text))
            else:
                (folder / f"{split}.{language}").write_bytes(text)
    done = script(
        "bitext.sh", "--out", "out", "--from-dir", "pairs", "--pair", "en-ru", "--merges", 30,
        "--python", python, "--workers", 1, "--truecase",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    prep = json.loads((tmp_path / "out" / "prep.json").read_text())
    assert (prep["pair"], prep["corpus"], prep["merges"]) == ("en-ru", "bitext", 30)
    assert prep["counts"] == {"train": 40, "valid": 5, "test": 6}
    assert (tmp_path / "out" / "raw" / "test.ru").read_text().startswith("Человек читает книгу 0.")
    assert (tmp_path / "out" / "bin" / "train.en-ru.ru.bin").is_file()
    assert prep["truecasers"] == {"en": "bpe/truecase.en", "ru": "bpe/truecase.ru"}
    assert prep["generate_options"][:2] == ["--tokenizer", "moses_truecased"]
    assert (tmp_path / "out/true/test.en").read_text().startswith("a man reads a book 0 .\n")
    processing = TextProcessing.of_preparation(
        tmp_path / "out" / "bin", source_lang="en", target_lang="ru"
    )
    assert processing is not None
    line = (tmp_path / "out/bpe/test.en").read_text().splitlines()[0]
    assert " ".join(processing.splitter()("A man reads a book 0.")) == line
    assert processing.joiner()(line.split()) == "A man reads a book 0."
