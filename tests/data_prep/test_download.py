"""Tests of downloads from a local server that behaves and fails like real ones."""

from __future__ import annotations

import gzip
import hashlib
import io
import zipfile
from pathlib import Path

import pytest
from conftest import Site

from data_prep.lib.download import SUMS, Patience, check_address, download, read_sums
from headprune.errors import DataError, UsageError

BODY = bytes(range(256)) * 4000
QUICK = Patience(attempts=3, pause=0.01, timeout=10)


def fetch(site: Site, folder: Path, checksum: str | None = None) -> Path:
    return download(f"{site.url}/dir/a.bin", folder, checksum=checksum, patience=QUICK)


@pytest.fixture(autouse=True)
def content(site: Site) -> None:
    site.files["/dir/a.bin"] = BODY


def ranges_asked(site: Site) -> list[str | None]:
    return [asked for _, asked in site.asked]


def test_fetches_and_records(site: Site, tmp_path: Path) -> None:
    path = fetch(site, tmp_path / "to")
    assert path == tmp_path / "to" / "a.bin"
    assert path.read_bytes() == BODY
    digest = hashlib.sha256(BODY).hexdigest()
    assert (tmp_path / "to" / SUMS).read_text() == f"{digest}  a.bin\n"
    assert {item.name for item in path.parent.iterdir()} == {"a.bin", SUMS}


def test_the_second_time_asks_for_nothing(
    site: Site, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fetch(site, tmp_path)
    fetch(site, tmp_path)
    assert len(site.asked) == 1
    assert "skip:" in capsys.readouterr().err


def test_a_broken_connection_is_resumed(site: Site, tmp_path: Path) -> None:
    site.break_after["/dir/a.bin"] = [300_000, 200_000]
    assert fetch(site, tmp_path).read_bytes() == BODY
    assert ranges_asked(site) == [None, "bytes=300000-", "bytes=500000-"]


def test_what_a_run_had_is_kept_for_the_next(site: Site, tmp_path: Path) -> None:
    site.break_after["/dir/a.bin"] = [300_000, 0, 0, 0]
    with pytest.raises(DataError, match="closed early, after 3 attempts; 300000 bytes are kept"):
        fetch(site, tmp_path)
    assert not (tmp_path / "a.bin").exists()
    assert not (tmp_path / SUMS).exists()
    site.break_after.clear()
    site.asked.clear()
    assert fetch(site, tmp_path).read_bytes() == BODY
    assert ranges_asked(site) == ["bytes=300000-"]


def test_a_server_without_ranges_starts_again(site: Site, tmp_path: Path) -> None:
    site.ranges = False
    site.break_after["/dir/a.bin"] = [300_000]
    assert fetch(site, tmp_path).read_bytes() == BODY
    assert ranges_asked(site) == [None, "bytes=300000-"]


def test_a_file_that_changed_in_between_starts_again(site: Site, tmp_path: Path) -> None:
    site.break_after["/dir/a.bin"] = [300_000, 0, 0, 0]
    with pytest.raises(DataError):
        fetch(site, tmp_path)
    site.break_after.clear()
    site.files["/dir/a.bin"] = BODY[::-1]
    site.etag = '"two"'
    assert fetch(site, tmp_path).read_bytes() == BODY[::-1]


def test_a_file_of_another_address_starts_again(site: Site, tmp_path: Path) -> None:
    site.break_after["/dir/a.bin"] = [300_000, 0, 0, 0]
    with pytest.raises(DataError):
        fetch(site, tmp_path)
    site.files["/mirror/a.bin"] = BODY[::-1]
    site.etag = None
    path = download(f"{site.url}/mirror/a.bin", tmp_path, patience=QUICK)
    assert path.read_bytes() == BODY[::-1]


def test_a_part_that_is_whole_is_taken(site: Site, tmp_path: Path) -> None:
    site.break_after["/dir/a.bin"] = [300_000, 0, 0, 0]
    with pytest.raises(DataError):
        fetch(site, tmp_path)
    (tmp_path / "a.bin.part").write_bytes(BODY)
    assert fetch(site, tmp_path).read_bytes() == BODY
    assert ranges_asked(site)[-1] == f"bytes={len(BODY)}-"


def test_no_length_is_no_obstacle(site: Site, tmp_path: Path) -> None:
    site.length = False
    assert fetch(site, tmp_path).read_bytes() == BODY


def test_errors_that_may_pass_are_tried_again(site: Site, tmp_path: Path) -> None:
    site.statuses["/dir/a.bin"] = [503, 429]
    assert fetch(site, tmp_path).read_bytes() == BODY
    assert len(site.asked) == 3


def test_not_found_is_final(site: Site, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"/dir/b\.bin: the server says 404 Not Found"):
        download(f"{site.url}/dir/b.bin", tmp_path, patience=QUICK)
    assert len(site.asked) == 1
    assert not list(tmp_path.iterdir())


def test_nobody_answers(tmp_path: Path) -> None:
    # port 9 (discard) has no server on any machine that runs tests
    with pytest.raises(DataError, match=r"127\.0\.0\.1:9/a: .*refused, after 3 attempts"):
        download("http://127.0.0.1:9/a", tmp_path, patience=QUICK)


@pytest.mark.parametrize("algorithm", ["sha256", "md5"])
def test_the_published_checksum(site: Site, tmp_path: Path, algorithm: str) -> None:
    right = hashlib.new(algorithm, BODY).hexdigest()
    fetch(site, tmp_path, f"{algorithm}:{right}")
    wrong = hashlib.new(algorithm, b"other").hexdigest()
    with pytest.raises(DataError, match=f"{algorithm} is {right}, but {wrong} was published"):
        fetch(site, tmp_path / "2", f"{algorithm}:{wrong}")
    assert (tmp_path / "2" / "a.bin.rejected").read_bytes() == BODY
    # A file that was taken without a checksum stays where it is.
    fetch(site, tmp_path / "3")
    with pytest.raises(DataError, match="3/a.bin: .* was published; --no-known-checksums takes it"):
        fetch(site, tmp_path / "3", f"{algorithm}:{wrong}")
    assert (tmp_path / "3" / "a.bin").read_bytes() == BODY
    fetch(site, tmp_path / "3")
    assert not (tmp_path / "2" / "a.bin").exists()
    assert read_sums(tmp_path / "2") == {}


def test_a_file_that_changed_on_disk(site: Site, tmp_path: Path) -> None:
    path = fetch(site, tmp_path)
    path.write_bytes(BODY[:-1])
    with pytest.raises(DataError, match=r"a\.bin: SHA-256 is \w+, but .*SHA256SUMS has \w+"):
        fetch(site, tmp_path)
    path.unlink()
    assert fetch(site, tmp_path).read_bytes() == BODY


def test_a_file_that_changed_at_its_source(site: Site, tmp_path: Path) -> None:
    fetch(site, tmp_path).unlink()
    site.files["/dir/a.bin"] = b"other"
    with pytest.raises(DataError, match="delete that line if the change is meant"):
        fetch(site, tmp_path)
    assert not (tmp_path / "a.bin").exists()


def test_sums_of_several_files_stay(site: Site, tmp_path: Path) -> None:
    site.files["/b"] = b"b"
    download(f"{site.url}/b", tmp_path, patience=QUICK)
    fetch(site, tmp_path)
    assert sorted(read_sums(tmp_path)) == ["a.bin", "b"]


def test_a_broken_list_of_sums(site: Site, tmp_path: Path) -> None:
    (tmp_path / SUMS).write_text("nonsense\n")
    with pytest.raises(DataError, match="SHA256SUMS: line 1 is not a checksum"):
        fetch(site, tmp_path)


def test_an_address_without_a_file(site: Site, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not end in the name of a file"):
        download(f"{site.url}/dir/", tmp_path, patience=QUICK)


@pytest.mark.parametrize(
    ("url", "message"),
    [
        ("file:///etc/passwd", "not an http:// or https:// address"),
        ("data:text/plain,x", "not an http:// or https:// address"),
        ("ftp://server/a", "not an http:// or https:// address"),
        ("/etc/passwd", "not an http:// or https:// address"),
        ("http:///a", "not an address"),
        ("http://[::1/a", "not an address"),
        ("http://server:99999/a", "not an address"),
        ("http://server:port/a", "not an address"),
        (f"http://{'x' * 64}.org/a", "not an address"),
        ("http://a..b/a", "not an address"),
        ("http://user:word@server/a", "with a user name or password cannot"),
        ("http://server/a b", "no spaces or control characters"),
        ("http://server/a\nb", "no spaces or control characters"),
        ("http://server/ä", "no such letters; write them as %XX"),
        ("http://server/a%00", "cannot be the name of a file"),
        ("http://server/a%0ab", "cannot be the name of a file"),
        ("http://server/..%2f..%2fetc%2fpasswd", "cannot be the name of a file"),
        ("http://server/%2e%2e", "does not end in the name of a file"),
        ("http://server/%ff", "are not UTF-8"),
        ("http://server/" + "a" * 250, "too long"),
        ("http://server/SHA256SUMS", "or taken"),
    ],
)
def test_addresses_that_are_none(tmp_path: Path, url: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        download(url, tmp_path / "to", patience=QUICK)
    assert not list(tmp_path.iterdir())


def test_names_are_decoded() -> None:
    assert check_address("http://[::1]:8080/dir/deu%20%C3%A4.zip?x=/y#z") == "deu ä.zip"


@pytest.mark.parametrize(
    "target", ["ftp://127.0.0.1/a.bin", "file:///etc/passwd", "data:text/plain,x"]
)
def test_redirections_stay_on_the_web(site: Site, tmp_path: Path, target: str) -> None:
    site.redirects["/dir/a.bin"] = target
    with pytest.raises(DataError, match=r"/dir/a\.bin: .*(is not an http:// or|not allowed)"):
        fetch(site, tmp_path)
    assert not list(tmp_path.iterdir())


def test_redirections_are_followed(site: Site, tmp_path: Path) -> None:
    site.files["/other"] = b"other"
    site.redirects["/dir/a.bin"] = "/other"
    assert fetch(site, tmp_path).read_bytes() == b"other"


def test_a_redirection_to_no_address(site: Site, tmp_path: Path) -> None:
    site.redirects["/dir/a.bin"] = "http://[nowhere/"
    with pytest.raises(DataError, match="the server's answer cannot be read"):
        fetch(site, tmp_path)


@pytest.mark.parametrize("length", ["many", "-5", "1e6", "9" * 5000])
def test_invalid_lengths(site: Site, tmp_path: Path, length: str) -> None:
    site.announced["/dir/a.bin"] = length
    with pytest.raises(DataError, match="the server sends an invalid length, '"):
        fetch(site, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_body_that_stays_shorter_than_announced(site: Site, tmp_path: Path) -> None:
    # The server has no further bytes when the client asks for the missing ones.
    site.announced["/dir/a.bin"] = str(len(BODY) + 10)
    with pytest.raises(DataError, match="after 3 attempts"):
        fetch(site, tmp_path)
    assert not (tmp_path / "a.bin").exists()
    assert not (tmp_path / SUMS).exists()


def test_an_empty_file(site: Site, tmp_path: Path) -> None:
    site.files["/dir/a.bin"] = b""
    with pytest.raises(DataError, match=r"/dir/a\.bin: the file is empty"):
        fetch(site, tmp_path)
    assert not list(tmp_path.iterdir())


PAGE = b"\n<!-- x -->\n<!DOCTYPE html>\n<html><body>Please log in</body></html>"


@pytest.mark.parametrize("name", ["a.bin", "deu-eng.zip", "train.en.gz", "dev.tgz"])
def test_a_web_page_is_not_taken_for_the_file(site: Site, tmp_path: Path, name: str) -> None:
    site.files[f"/{name}"] = PAGE
    with pytest.raises(DataError, match=rf"/{name}: is a web page, not the file {name}"):
        download(f"{site.url}/{name}", tmp_path, patience=QUICK)
    assert not list(tmp_path.iterdir())
    site.files["/page.html"] = PAGE
    download(f"{site.url}/page.html", tmp_path, patience=QUICK)


def test_a_broken_archive_is_not_recorded(site: Site, tmp_path: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        archive.writestr("deu.txt", BODY)
    broken = bytearray(buffer.getvalue())
    broken[1000] ^= 1
    site.files["/deu-eng.zip"] = bytes(broken)
    site.files["/train.en.gz"] = gzip.compress(BODY)[:-4]
    for name in ("deu-eng.zip", "train.en.gz"):
        with pytest.raises(DataError, match=rf"/{name}: the archive is cut off or corrupt"):
            download(f"{site.url}/{name}", tmp_path, patience=QUICK)
    assert not list(tmp_path.iterdir())


def test_a_list_of_sums_in_another_encoding(site: Site, tmp_path: Path) -> None:
    (tmp_path / SUMS).write_bytes(b"\xff\xfe0\n")
    with pytest.raises(DataError, match="SHA256SUMS: line 1 is not a checksum"):
        fetch(site, tmp_path)
