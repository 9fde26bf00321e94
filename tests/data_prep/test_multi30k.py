"""Tests of downloading Multi30k and verifying its checksums."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest
from conftest import Site

from data_prep.lib import multi30k
from data_prep.lib.download import algorithm_of, digest
from headprune.errors import DataError


@pytest.fixture
def captions(site: Site) -> Site:
    """A server with files named like those of Multi30k, with other contents."""
    for name in multi30k.CHECKSUMS:
        site.files[f"/raw/{name}"] = gzip.compress(f"{name}\n".encode())
    return site


def test_every_file_has_a_checksum() -> None:
    assert set(multi30k.CHECKSUMS) == {
        f"{split}.{language}.gz" for split in multi30k.SPLITS for language in ("en", "de", "fr")
    }


def test_the_checksums_are_those_of_the_published_files(shared_data: Path) -> None:
    paths = sorted((shared_data / "multi30k").glob("*.gz"))
    assert len(paths) == 6
    for path in paths:
        algorithm, value = algorithm_of(multi30k.CHECKSUMS[path.name])
        assert digest(path, algorithm) == value


def test_other_files_at_the_address_of_the_authors_are_refused(
    captions: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(multi30k, "PUBLISHED_AT", f"{captions.url}/raw")
    arguments = ["--to", str(tmp_path), "--url", f"{captions.url}/raw/", "en", "de"]
    with pytest.raises(DataError, match=r"but \w+ was published.*--no-known-checksums takes it"):
        multi30k.main(arguments)
    assert not (tmp_path / "SHA256SUMS").exists()
    multi30k.main(["--no-known-checksums", *arguments])
    assert len(list(tmp_path.glob("*.gz"))) == 6


def test_other_files_at_another_address_are_noted(
    captions: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["--to", str(tmp_path), "--url", f"{captions.url}/raw", "fr", "en"]
    multi30k.main(arguments)
    notes = [line for line in capsys.readouterr().err.splitlines() if line.startswith("note:")]
    assert len(notes) == 1
    assert "not the published files of Multi30k: train.fr.gz, train.en.gz, val.fr.gz" in notes[0]
    captions.files |= {f"/raw/{split}.cs.gz": gzip.compress(b"x\n") for split in multi30k.SPLITS}
    multi30k.main([*arguments[:-1], "cs"])
    assert "note: no checksum of these files is published: train.cs.gz, " in capsys.readouterr().err
    multi30k.main([*arguments, "--no-known-checksums"])
    assert "note:" not in capsys.readouterr().err
