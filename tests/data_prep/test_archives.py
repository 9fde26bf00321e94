"""Tests of extracting files from archives."""

from __future__ import annotations

import gzip
import io
import random
import stat
import tarfile
import zipfile
from pathlib import Path
from typing import Any, cast

import pytest

from data_prep.lib import compressed
from data_prep.lib.archives import extract, segments, verify
from headprune.errors import DataError


def tar(path: Path, files: dict[str, bytes], mode: str = "w:gz") -> Path:
    with tarfile.open(path, cast(Any, mode)) as archive:
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
    with pytest.raises(DataError, match=r"a\.tgz: lacks files; it needs a\.en and a\.de or b"):
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


TEXT = b"".join(b"sentence %d\n" % number for number in range(1000))


def flipped(path: Path, position: int) -> Path:
    """Flip one bit of the file."""
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(bytes(content))
    return path


def stored(path: Path, files: dict[str, bytes]) -> Path:
    """Write an uncompressed .tgz, in which only the checksum reveals a change."""
    plain = tar(path.with_suffix(".tar"), files, mode="w")
    path.write_bytes(gzip.compress(plain.read_bytes(), compresslevel=0))
    plain.unlink()
    return path


@pytest.mark.parametrize("member", ["a.en", "b"])
def test_a_changed_byte_is_found_by_the_checksum(tmp_path: Path, folder: Path, member: str) -> None:
    # b comes after all that is asked for
    archive = stored(tmp_path / "a.tgz", {"a.en": TEXT, "b": TEXT})
    place = archive.read_bytes().index(b"sentence 500")
    if member == "b":
        place = archive.read_bytes().index(b"sentence 500", place + 1)
    assert extract(archive, [["a.en"]], folder)
    flipped(archive, place)
    with pytest.raises(DataError, match=r"a\.tgz: the archive is cut off or corrupt.*CRC"):
        extract(archive, [["a.en"]], folder)
    with pytest.raises(DataError, match="CRC"):
        verify(archive)


def test_a_damaged_header_is_not_the_end(tmp_path: Path, folder: Path) -> None:
    archive = tar(tmp_path / "a.tar", {"a.en": TEXT, "b.en": TEXT}, mode="w")
    flipped(archive, archive.read_bytes().index(b"b.en"))
    with pytest.raises(DataError, match=r"corrupt, at a\.en \(a damaged header, or no end\)"):
        extract(archive, [["a.en"]], folder)


@pytest.mark.parametrize("kind", ["gz", "bz2", "xz"])
@pytest.mark.parametrize("damage", ["changed", "cut off"])
def test_every_compression_is_checked(tmp_path: Path, folder: Path, kind: str, damage: str) -> None:
    noise = random.Random(1).randbytes(100_000)
    archive = tar(tmp_path / f"a.tar.{kind}", {"a.en": noise}, mode=f"w:{kind}")
    assert extract(archive, [["a.en"]], folder)
    content = archive.read_bytes()
    if damage == "changed":
        flipped(archive, len(content) // 2)
    else:
        archive.write_bytes(content[:-20])
    with pytest.raises(DataError, match=rf"a\.tar\.{kind}: the archive is cut off or corrupt"):
        extract(archive, [["a.en"]], folder)


def zipped(path: Path, files: dict[str, bytes], method: int = zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def with_fields(path: Path, *, local: int, central: int, value: int) -> Path:
    """Change a field of two bytes in both headers of a zip archive's only member."""
    content = bytearray(path.read_bytes())
    for signature, offset in ((b"PK\x03\x04", local), (b"PK\x01\x02", central)):
        position = content.index(signature) + offset
        content[position : position + 2] = value.to_bytes(2, "little")
    path.write_bytes(bytes(content))
    return path


def test_a_zip_with_a_changed_byte(tmp_path: Path, folder: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"a.en": TEXT})
    flipped(archive, archive.read_bytes().index(b"sentence 500"))
    with pytest.raises(DataError, match=r"corrupt, at a\.en \(Bad CRC-32"):
        extract(archive, [["a.en"]], folder)


def test_an_encrypted_zip(tmp_path: Path, folder: Path) -> None:
    archive = with_fields(zipped(tmp_path / "a.zip", {"a.en": TEXT}), local=6, central=8, value=1)
    with pytest.raises(DataError, match=r"a\.en in .*a\.zip: encrypted; unpack it"):
        extract(archive, [["a.en"]], folder)


def test_an_unsupported_compression(tmp_path: Path, folder: Path) -> None:
    archive = with_fields(zipped(tmp_path / "a.zip", {"a.en": TEXT}), local=8, central=10, value=98)
    with pytest.raises(DataError, match=r"a\.zip: compression method 98 is not supported"):
        extract(archive, [["a.en"]], folder)


def test_a_corrupt_lzma_zip(tmp_path: Path, folder: Path) -> None:
    archive = zipped(tmp_path / "a.zip", {"a.en": TEXT}, zipfile.ZIP_LZMA)
    content = bytearray(archive.read_bytes())
    start = 30 + len("a.en")
    content[start + 9 : start + 200] = bytes([255]) * 191
    archive.write_bytes(bytes(content))
    with pytest.raises(DataError, match=r"a\.zip: the archive is cut off or corrupt, at a\.en"):
        extract(archive, [["a.en"]], folder)


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compressed, "FREE_BYTES", 1 << 20)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("name", ["a.tgz", "a.zip", "a.tar"])
def test_what_unpacks_without_end_is_refused(tmp_path: Path, folder: Path, name: str) -> None:
    zeros = bytes(20 << 20)
    if name == "a.zip":
        archive = zipped(tmp_path / name, {"a.en": zeros}, zipfile.ZIP_DEFLATED)
    elif name == "a.tgz":
        # not even what is not asked for
        archive = tar(tmp_path / name, {"z": zeros, "a.en": b"e"})
    else:
        # a file with holes
        archive = tmp_path / name
        with tarfile.open(archive, "w", format=tarfile.PAX_FORMAT) as sparse:
            info = tarfile.TarInfo("a.en")
            info.size = 3
            info.pax_headers = {
                "GNU.sparse.size": str(10**12),
                "GNU.sparse.map": "0,3",
                "GNU.sparse.name": "a.en",
            }
            sparse.addfile(info, io.BytesIO(b"abc"))
    with pytest.raises(DataError, match=r"unpacks to more than \d+ bytes, 100 times its size"):
        extract(archive, [["a.en"]], folder)
    assert sum(path.stat().st_size for path in folder.iterdir()) <= 3 << 20


def test_a_header_without_end_is_refused(tmp_path: Path, folder: Path) -> None:
    with tarfile.open(tmp_path / "a.tgz", "w:gz", format=tarfile.PAX_FORMAT) as archive:
        info = tarfile.TarInfo("a.en")
        info.pax_headers = {"comment": "x" * (20 << 20)}
        archive.addfile(info)
    with pytest.raises(DataError, match=r"corrupt, at its beginning \(a header of \d+ bytes\)"):
        extract(tmp_path / "a.tgz", [["a.en"]], folder)


def test_links_are_passed_over(tmp_path: Path, folder: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    with tarfile.open(tmp_path / "a.tgz", "w:gz") as archive:
        for kind, name in ((tarfile.SYMTYPE, "a.en"), (tarfile.LNKTYPE, "a.de")):
            info = tarfile.TarInfo(name)
            info.type, info.linkname = kind, str(tmp_path / "secret")
            archive.addfile(info)
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as linked:
        entry = zipfile.ZipInfo("a.en")
        entry.external_attr = (stat.S_IFLNK | 0o777) << 16
        linked.writestr(entry, str(tmp_path / "secret"))
    for name in ("a.tgz", "a.zip"):
        with pytest.raises(DataError, match="lacks files"):
            extract(tmp_path / name, [["a.en"], ["a.de"]], folder)
    assert not list(folder.iterdir())


def test_names_are_shown_on_one_line(tmp_path: Path, folder: Path) -> None:
    archive = tar(tmp_path / "a.tar", {"x\n\x1b[31mred": TEXT, "b.en": TEXT}, mode="w")
    flipped(archive, archive.read_bytes().index(b"b.en"))
    with pytest.raises(DataError) as caught:
        extract(archive, [["a.en"]], folder)
    assert "at x??[31mred (" in str(caught.value)


@pytest.mark.parametrize("name", ["a.txt.gz", "a.tgz", "a.zip"])
def test_verify_reads_to_the_end(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "a.zip":
        zipped(path, {"x": TEXT})
    elif name == "a.tgz":
        stored(path, {"x": TEXT})
    else:
        path.write_bytes(gzip.compress(TEXT, compresslevel=0))
    verify(path)
    flipped(path, path.read_bytes().index(b"sentence 500"))
    # under another name it is not looked into
    verify(path, name="a.txt")
    with pytest.raises(DataError, match="CRC"):
        verify(path)
