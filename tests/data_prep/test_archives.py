"""Taking files out of archives."""

from __future__ import annotations

import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from data_prep.lib.archives import extract, segments
from headprune.errors import DataError


def tar(path: Path, files: dict[str, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "to").mkdir()
    return tmp_path / "to"


def test_members_are_found_by_their_last_name(tmp_path: Path, folder: Path) -> None:
    archive = tar(tmp_path / "a.tgz", {"x/a.de": b"d", "./x/y/a.en": b"e", "z": b""})
    assert extract(archive, [["a.en", "a.de"]], folder) == [folder / "a.en", folder / "a.de"]
    assert (folder / "a.en").read_bytes() == b"e"


def test_zip(tmp_path: Path, folder: Path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("x/a.en", "e")
    assert extract(tmp_path / "a.zip", [["a.en"]], folder)[0].read_bytes() == b"e"


def test_the_first_whole_group_is_taken(tmp_path: Path, folder: Path) -> None:
    archive = tar(tmp_path / "a.tgz", {"c": b"", "d": b"", "a": b""})
    assert extract(archive, [["a", "b"], ["c", "d"]], folder) == [folder / "c", folder / "d"]


def test_a_name_that_leads_out_of_the_folder_stays_in_it(tmp_path: Path, folder: Path) -> None:
    archive = tar(tmp_path / "a.tgz", {"../../a.en": b"e"})
    assert extract(archive, [["a.en"]], folder) == [folder / "a.en"]
    assert not (tmp_path.parent / "a.en").exists()


def test_nothing_to_find(tmp_path: Path, folder: Path) -> None:
    archive = tar(tmp_path / "a.tgz", {"a.en": b"e"})
    with pytest.raises(DataError, match=r"a\.tgz: has not the files a\.en and a\.de nor b"):
        extract(archive, [["a.en", "a.de"], ["b"]], folder)


def test_missing_archive(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(DataError, match=r"a\.tgz: no such file"):
        extract(tmp_path / "a.tgz", [["a"]], folder)


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.9])
def test_a_cut_off_archive(tmp_path: Path, folder: Path, keep: float) -> None:
    content = b"".join(b"%d " % (n * n) for n in range(50_000))
    archive = tar(tmp_path / "a.tgz", {"a.en": content, "a.de": content})
    whole = archive.read_bytes()
    archive.write_bytes(whole[: int(len(whole) * keep)])
    with pytest.raises(DataError, match=r"a\.tgz: the archive is cut off or corrupt"):
        extract(archive, [["a.en", "a.de"]], folder)


@pytest.mark.parametrize("name", ["a.tgz", "a.zip"])
def test_no_archive_at_all(tmp_path: Path, folder: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"<html>Not what you asked for</html>" * 50)
    with pytest.raises(DataError, match=r"the archive is cut off or corrupt"):
        extract(tmp_path / name, [["a.en"]], folder)


def test_segments_as_sacrebleu_reads_them(tmp_path: Path) -> None:
    from sacrebleu.dataset.fake_sgml import FakeSGMLDataset

    lines = [
        '<srcset setid="newstest2014" srclang="any">',
        '<doc docid="1" genre="news" origlang="en">',
        "<p>",
        '<seg id="1">One &amp; "two".</seg>',
        '<seg id="2"> Two   spaces </seg>',
        "</p>",
        "</doc>",
        "</srcset>",
    ]
    source, target = tmp_path / "in.sgm", tmp_path / "out"
    source.write_text("\n".join(lines) + "\n")
    FakeSGMLDataset._convert_format(
        FakeSGMLDataset("x", data=[], langpairs={}), str(source), str(target)
    )
    ours = list(segments(lines))
    assert ours == target.read_text().splitlines()
    assert ours == ['One &amp; "two".', "Two spaces"]
