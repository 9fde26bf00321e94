"""Tests of finding, downloading and reading the sources of WMT'14."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import pytest
from conftest import Site

from data_prep.lib import wmt14
from headprune.errors import DataError


def lines(prefix: str, count: int) -> bytes:
    return "".join(f"{prefix} {n} .\n" for n in range(count)).encode()


def sgm(prefix: str, count: int) -> bytes:
    body = "".join(f'<seg id="{n}">{prefix} {n}.</seg>\n' for n in range(count))
    return f'<srcset setid="x">\n<doc docid="1">\n{body}</doc>\n</srcset>\n'.encode()


def tgz(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return buffer.getvalue()


def published(target: str) -> dict[str, bytes]:
    """Write small archives with the structure of those at statmt.org."""
    both = f"{target}-en"
    # as in the real file, some lines of Europarl are empty on one side
    europarl = lines("Parlament", 40) + b"\n"
    archives = {
        "wmt13/training-parallel-europarl-v7.tgz": {
            "training/europarl-v7.cs-en.en": b"wrong\n",
            f"training/europarl-v7.{both}.{target}": europarl,
            f"training/europarl-v7.{both}.en": lines("parliament", 41),
        },
        "wmt13/training-parallel-commoncrawl.tgz": {
            f"commoncrawl.{both}.annotation": b"wrong\n",
            f"commoncrawl.{both}.{target}": lines("crawl", 50),
            f"commoncrawl.{both}.en": lines("crawl", 50),
        },
        "wmt14/training-parallel-nc-v9.tgz": {
            f"training/news-commentary-v9.{both}.{target}": lines("Kommentar", 30),
            f"training/news-commentary-v9.{both}.en": lines("commentary", 30),
        },
        "wmt15/wiki-titles.tgz": {
            "wiki/fi-en/titles.fi-en": b"wrong ||| wrong\n",
            "wiki/ru-en/wiki.ru-en": "".join(
                f"Заголовок {n} ||| Headline {n}\n" for n in range(20)
            ).encode(),
        },
        "wmt14/dev.tgz": {
            "dev/newstest2012.en": b"wrong\n",
            f"dev/newstest2013.{target}": lines("Nachricht", 6),
            "dev/newstest2013.en": lines("news", 6),
        },
        "wmt14/test-full.tgz": {
            f"test-full/newstest2014-{target}en-src.{target}.sgm": b"wrong\n",
            f"test-full/newstest2014-{target}en-src.en.sgm": sgm("test", 7),
            f"test-full/newstest2014-{target}en-ref.{target}.sgm": sgm("Probe", 7),
        },
    }
    return {f"/{name}": tgz(files) for name, files in archives.items()}


def unpack(name: str, target: str, folder: Path, *files: Path) -> tuple[list[str], list[str]]:
    prefix = folder / name
    wmt14.main(
        ["unpack", "--target", target, "--name", name, "--out", str(prefix)]
        + [str(file) for file in files]
    )
    english = Path(f"{prefix}.en").read_text().splitlines()
    return english, Path(f"{prefix}.{target}").read_text().splitlines()


@pytest.mark.parametrize(
    ("target", "names"),
    [
        ("de", ["europarl-v7", "commoncrawl", "news-commentary-v9", "valid", "test"]),
        ("fr", ["europarl-v7", "commoncrawl", "news-commentary-v9", "valid", "test"]),
        ("ru", ["commoncrawl", "news-commentary-v9", "wiki-titles", "yandex", "valid", "test"]),
    ],
)
def test_downloads_and_unpacks_all_sources(
    site: Site,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    target: str,
    names: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    site.files = published(target)
    arguments = ["list", "--target", target, "--mirror", site.url, "--no-known-checksums"]
    if target == "ru":
        with zipfile.ZipFile("1mcorpus.zip", "w") as archive:
            archive.writestr("corpus.en_ru.1m.en", "one\ntwo\n")
            archive.writestr("corpus.en_ru.1m.ru", "один\nдва\n")
        arguments += ["--yandex", "1mcorpus.zip"]
    wmt14.main(arguments)
    listed = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    assert [name for name, *_ in listed] == names
    assert len(list(Path("download").glob("*.tgz"))) == len(names) - (target == "ru")
    pairs = {name: unpack(name, target, tmp_path, *map(Path, files)) for name, *files in listed}
    assert all(len(english) == len(other) for english, other in pairs.values())
    assert pairs["commoncrawl"][0][49] == "crawl 49 ."
    assert pairs["test"] == ([f"test {n}." for n in range(7)], [f"Probe {n}." for n in range(7)])
    assert pairs["valid"][1][0] == "Nachricht 0 ."
    if target != "ru":
        assert len(pairs["europarl-v7"][0]) == 41
        assert pairs["europarl-v7"][1][40] == ""
    else:
        assert pairs["wiki-titles"][0][1] == "Headline 1"
        assert pairs["wiki-titles"][1][1] == "Заголовок 1"
        assert pairs["yandex"] == (["one", "two"], ["один", "два"])


def test_the_published_checksums_are_checked(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    site.files = published("de")
    with pytest.raises(DataError, match=r"europarl-v7\.tgz: sha256 is \w+, but 0224c7c7\w+ was"):
        wmt14.main(["list", "--target", "de", "--mirror", site.url])


def test_the_known_checksum_of_the_test_set_is_that_of_sacrebleu() -> None:
    from sacrebleu.dataset import DATASETS

    source = wmt14.held_out_source("test", "de")
    assert source.checksum == f"md5:{DATASETS['wmt14/full'].md5[0]}"
    assert DATASETS["wmt14/full"].data[0].endswith(source.path)
    for target in ("de", "ru"):
        files = [Path(name).name for name in DATASETS["wmt14/full"].langpairs[f"en-{target}"]]
        assert tuple(files) == wmt14.held_out_source("test", target).files[0]


def test_only_sgm_in_the_development_archive(tmp_path: Path) -> None:
    archive = tmp_path / "dev.tgz"
    archive.write_bytes(
        tgz(
            {"dev/newstest2013-src.en.sgm": sgm("a", 2), "dev/newstest2013-ref.de.sgm": sgm("b", 2)}
        )
    )
    assert unpack("valid", "de", tmp_path, archive) == (["a 0.", "a 1."], ["b 0.", "b 1."])


def found(
    capsys: pytest.CaptureFixture[str], folder: Path, target: str = "de"
) -> dict[str, list[str]]:
    wmt14.main(["list", "--target", target, "--folder", str(folder)])
    listed = [line.split("\t") for line in capsys.readouterr().out.splitlines()]
    return {name: [Path(file).name for file in files] for name, *files in listed}


def test_a_folder_of_plain_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("newstest2014.en-de.en.gz", "newstest2014.en-de.de.gz", "own.en.gz", "own.de"):
        (tmp_path / name).write_bytes(gzip.compress(b"x\n") if name.endswith("gz") else b"x\n")
    for name in ("newstest2014.en-ru.en", "newstest2014.en-ru.ru", "valid.en", "valid.de", "x.en"):
        (tmp_path / name).write_bytes(b"x\n")
    assert found(capsys, tmp_path) == {
        "plain-own": ["own.en.gz", "own.de"],
        "valid": ["valid.en", "valid.de"],
        "test": ["newstest2014.en-de.en.gz", "newstest2014.en-de.de.gz"],
    }
    wmt14.find_training(tmp_path, "de")
    assert capsys.readouterr().err == "note: x.en has no x.de, left out\n"


def test_a_folder_of_archives_and_plain_files(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, content in published("de").items():
        (tmp_path / Path(name).name).write_bytes(content)
    (tmp_path / "training-parallel-nc-v9.tgz").unlink()
    for name in ("own.en", "own.de"):
        (tmp_path / name).write_bytes(b"x\n")
    assert list(found(capsys, tmp_path)) == [
        "europarl-v7", "commoncrawl", "plain-own", "valid", "test"
    ]  # fmt: skip


@pytest.mark.parametrize("name", ["own\ttab", "own\nline"])
def test_names_that_cannot_be_listed(tmp_path: Path, name: str) -> None:
    for part in (name, "valid", "test"):
        for language in ("en", "de"):
            (tmp_path / f"{part}.{language}").write_text("x\n")
    with pytest.raises(DataError, match=r"own\?\w+: a name with a tab or line break; rename it"):
        wmt14.main(["list", "--target", "de", "--folder", str(tmp_path)])


@pytest.mark.parametrize(
    ("present", "told"),
    [
        (["valid", "test"], "no training data, neither training-parallel-europarl"),
        (["own", "test"], r"no valid set, neither dev\.tgz nor newstest2013\.en"),
        (["own", "valid"], r"no test set, neither test-full\.tgz nor newstest2014\.en"),
    ],
)
def test_a_folder_without_what_is_needed(tmp_path: Path, present: list[str], told: str) -> None:
    for name in present:
        for language in ("en", "de"):
            (tmp_path / f"{name}.{language}").write_text("x\n")
    with pytest.raises(DataError, match=told):
        wmt14.main(["list", "--target", "de", "--folder", str(tmp_path)])


def test_defects_name_the_archive(tmp_path: Path) -> None:
    archive = tmp_path / "training-parallel-nc-v9.tgz"
    names = [f"training/news-commentary-v9.de-en.{language}" for language in ("en", "de")]
    archive.write_bytes(tgz({names[0]: b"a\nb\n", names[1]: b"a\n"}))
    with pytest.raises(
        DataError, match=r"\.en in .*nc-v9\.tgz has 2 lines, .*\.de in .* has 1 lines"
    ):
        unpack("news-commentary-v9", "de", tmp_path, archive)
    archive.write_bytes(tgz({names[0]: b"a\n\xff\n", names[1]: b"a\nb\n"}))
    with pytest.raises(DataError, match=r"\.en in .*nc-v9\.tgz: line 2 is not valid UTF-8"):
        unpack("news-commentary-v9", "de", tmp_path, archive)
    assert [path.name for path in tmp_path.iterdir()] == [archive.name]


def test_a_headline_without_its_other_side(tmp_path: Path) -> None:
    (tmp_path / "wiki-titles.tgz").write_bytes(tgz({"wiki/ru-en/wiki.ru-en": b"a ||| b\nc\n"}))
    with pytest.raises(DataError, match="line 2 is not 'ONE"):
        unpack("wiki-titles", "ru", tmp_path, tmp_path / "wiki-titles.tgz")
