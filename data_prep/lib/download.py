"""Downloads that resume after an interruption and are verified by checksums.

A file is downloaded as ``NAME.part``. When it is complete and its checksum is right, it is renamed,
and its SHA-256 is added to ``SHA256SUMS`` beside it (a file for ``sha256sum -c``). Later runs check
the file against this line. If no checksum was published, an archive is read to its end, and an
empty file or a web page is refused.
"""

from __future__ import annotations

import argparse
import hashlib
import http.client
import json
import re
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote_to_bytes, urlsplit

from tqdm import tqdm

from data_prep.lib.archives import printable, verify
from data_prep.lib.cli import positive, run
from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically

SUMS = "SHA256SUMS"
_BLOCK = 1 << 18
# Temporary statuses: timeouts, too many requests, and errors of the server or of a gateway.
_TEMPORARY = {408, 425, 429, 500, 502, 503, 504}
_BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)
_LONGEST_NAME = 255 - len(".rejected")
_LONGEST_PAUSE = 3600.0
_WEB_PAGE = re.compile(
    rb"(\xef\xbb\xbf)?\s*(<!--.*?-->\s*)*<(!doctype\s+html|html)\b", re.IGNORECASE | re.DOTALL
)


@dataclass(frozen=True)
class Patience:
    """Limits on repeated attempts to download a file.

    Attributes:
        attempts: the number of consecutive attempts without progress after which to give up.
        pause: seconds before the second attempt; each further pause is twice as long.
        timeout: seconds to wait for an answer.
    """

    attempts: int = 5
    pause: float = 2.0
    timeout: float = 60.0


@dataclass(frozen=True)
class _Part:
    """A partly downloaded file, with notes on the server's description of the whole file."""

    path: Path

    @property
    def notes_path(self) -> Path:
        return self.path.with_name(self.path.name + ".json")

    def size(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def notes(self) -> dict[str, Any]:
        try:
            notes: dict[str, Any] = json.loads(self.notes_path.read_text(encoding="utf-8"))
            return notes
        except (OSError, ValueError):
            return {}

    def remove(self) -> None:
        self.path.unlink(missing_ok=True)
        self.notes_path.unlink(missing_ok=True)


def digest(path: Path, algorithm: str = "sha256") -> str:
    """Compute a file's checksum in hexadecimal, with ``sha256`` or ``md5``."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def algorithm_of(checksum: str) -> tuple[str, str]:
    """Split a checksum such as ``sha256:HEX`` into algorithm and value."""
    algorithm, value = checksum.split(":", 1)
    return algorithm, value


def read_sums(folder: Path) -> dict[str, str]:
    """Read the recorded checksums of a folder, by file name."""
    path = folder / SUMS
    if not path.exists():
        return {}
    sums = {}
    lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    for number, line in enumerate(lines[:-1] if not lines[-1] else lines, start=1):
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
        if not match:
            raise DataError(f"{path}: line {number} is not a checksum and a file name")
        sums[match[2]] = match[1]
    return sums


def _record(folder: Path, name: str, value: str) -> None:
    sums = read_sums(folder) | {name: value}
    lines = [f"{value}  {name}\n" for name, value in sorted(sums.items())]
    write_text_atomically(folder / SUMS, "".join(lines))


def check_address(url: str) -> str:
    """Check an address to download from, and return the file name at its end.

    The name is decoded: ``%20`` becomes a space.

    Raises:
        UsageError: the address is not an http or https address, or does not end in a file name.
    """
    shown = printable(url)
    if not url.isascii():
        raise UsageError(f"{shown}: an address has no such letters; write them as %XX")
    if not url.isprintable() or " " in url:
        raise UsageError(
            f"{shown}: an address has no spaces or control characters; write them as %XX"
        )
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise UsageError(f"{shown}: not an address ({error})") from None
    if parts.scheme not in ("http", "https"):
        raise UsageError(f"{shown}: not an http:// or https:// address")
    labels = (host or "").rstrip(".").split(".")
    if port == 0 or not all(0 < len(label) < 64 for label in labels):
        raise UsageError(f"{shown}: not an address (no server can have this name or port)")
    if "@" in parts.netloc:
        raise UsageError("an address with a user name or password cannot be downloaded from")
    try:
        name = unquote_to_bytes(parts.path.rsplit("/", 1)[-1]).decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError(f"{shown}: its %XX are not UTF-8") from None
    if name in ("", ".", ".."):
        raise UsageError(f"{shown}: the address does not end in the name of a file")
    if "/" in name or not name.isprintable():
        raise UsageError(f"{shown}: {printable(name)!r} cannot be the name of a file")
    if len(name.encode()) > _LONGEST_NAME or name == SUMS:
        raise UsageError(f"{shown}: the name at its end is too long, or taken; download it by hand")
    return name


class _Redirects(urllib.request.HTTPRedirectHandler):
    """Follow redirections to http and https only; urllib would also follow them to ftp."""

    def redirect_request(
        self,
        request: urllib.request.Request,
        answer: Any,
        code: int,
        message: str,
        headers: Any,
        address: str,
    ) -> urllib.request.Request | None:
        if urlsplit(address).scheme not in ("http", "https"):
            raise DataError(
                f"{request.full_url}: redirects to {printable(address)}, "
                "which is not an http:// or https:// address"
            )
        return super().redirect_request(request, answer, code, message, headers, address)


def _opener() -> urllib.request.OpenerDirector:
    """Create an opener for http and https addresses only (not file:, ftp: or data:)."""
    opener = urllib.request.OpenerDirector()
    for handler in (
        urllib.request.ProxyHandler(),
        urllib.request.HTTPHandler(),
        urllib.request.HTTPSHandler(),
        urllib.request.HTTPDefaultErrorHandler(),
        _Redirects(),
        urllib.request.HTTPErrorProcessor(),
        urllib.request.UnknownHandler(),
    ):
        opener.add_handler(handler)
    return opener


def _request(url: str, part: _Part) -> urllib.request.Request:
    request = urllib.request.Request(url, headers={"User-Agent": "Mozilla/5.0 (headprune)"})
    size, notes = part.size(), part.notes()
    if size and notes.get("url") == url:
        request.add_header("Range", f"bytes={size}-")
        # Without this, a file that changed on the server would be appended to its old beginning.
        if notes.get("validator"):
            request.add_header("If-Range", notes["validator"])
    return request


def _size(text: str, *, url: str) -> int:
    """Parse a number of bytes in a server's answer."""
    if not re.fullmatch(r"[0-9]{1,18}", text):
        raise DataError(f"{url}: the server sends an invalid length, {printable(text[:40])!r}")
    return int(text)


def _receive(url: str, part: _Part, patience: Patience) -> bool:
    """Download the missing rest of a file, or a part of it; True if the file is complete."""
    with _opener().open(_request(url, part), timeout=patience.timeout) as answer:
        length = answer.headers.get("Content-Length")
        start = 0
        whole = None
        if answer.status == 206:
            sent_range = re.fullmatch(
                r"bytes ([0-9]{1,18})-[0-9]{1,18}/([0-9]{1,18}|\*)",
                answer.headers.get("Content-Range", ""),
            )
            start = int(sent_range[1]) if sent_range else -1
            if start != part.size():
                part.remove()
                raise ConnectionError("the server sent another range than was asked for")
            if sent_range and sent_range[2] != "*":
                whole = int(sent_range[2])
        if length is not None and whole is None:
            whole = start + _size(length, url=url)
        entity_tag = answer.headers.get("ETag", "")
        validator = entity_tag if entity_tag and not entity_tag.startswith("W/") else None
        notes = {
            "url": url,
            "validator": validator or answer.headers.get("Last-Modified"),
            "length": whole,
        }
        write_text_atomically(part.notes_path, json.dumps(notes))
        with (
            open(part.path, "ab" if start else "wb") as file,
            tqdm(
                desc=part.path.stem,
                total=whole,
                initial=start,
                unit="B",
                unit_scale=True,
                disable=None,
                leave=False,
            ) as bar,
        ):
            # read1 returns the received bytes even if the connection breaks afterwards
            while block := answer.read1(_BLOCK):
                file.write(block)
                bar.update(len(block))
    if whole is not None and part.size() > whole:
        part.remove()
        raise ConnectionError(f"the server sent more than the {whole} bytes that it announced")
    return whole is None or part.size() == whole


def _fetch(url: str, part: _Part, patience: Patience) -> None:
    """Download a file to its ``.part`` file, in several attempts if necessary.

    Raises:
        DataError: the server has no such file, or the connection broke too often.
    """
    failures = 0
    # Downloading a deleted part again does not count as progress.
    largest = 0
    while True:
        before = part.size()
        try:
            if _receive(url, part, patience):
                return
            reason = "the connection was closed early"
        except urllib.error.HTTPError as error:
            if error.code == 416:
                # Nothing is left to send, or the part is not of this file.
                sent_range = re.fullmatch(
                    r"bytes \*/([0-9]{1,18})", error.headers.get("Content-Range", "")
                )
                announced = part.notes().get("length")
                if sent_range and int(sent_range[1]) == before and announced in (None, before):
                    return
                part.remove()
            elif error.code not in _TEMPORARY:
                raise DataError(
                    f"{url}: the server says {error.code} {printable(str(error.reason))}"
                ) from None
            reason = f"the server says {error.code} {printable(str(error.reason))}"
        except ValueError as error:
            # an invalid address in a redirection, or invalid headers
            raise DataError(
                f"{url}: the server's answer cannot be read ({printable(str(error))})"
            ) from None
        except _BROKEN as error:
            reason = str(getattr(error, "reason", None) or error) or type(error).__name__
            reason = printable(reason)
        failures = 1 if part.size() > largest else failures + 1
        largest = max(largest, part.size())
        if failures >= patience.attempts:
            raise DataError(
                f"{url}: {reason}, after {patience.attempts} attempts; {part.size()} bytes are "
                "kept, run the same command again to resume"
            )
        print(f"{url}: {reason} at {part.size()} bytes; trying again", file=sys.stderr)
        time.sleep(min(patience.pause * 2 ** min(failures - 1, 20), _LONGEST_PAUSE))


def _check_content(url: str, path: Path, name: str) -> None:
    """Check the content of a file without a published checksum.

    Raises:
        DataError: it is empty, a web page under another name, or a broken archive.
    """
    with open(path, "rb") as file:
        beginning = file.read(2048)
    if not beginning:
        raise DataError(f"{url}: the file is empty")
    if not name.endswith((".html", ".htm")) and _WEB_PAGE.match(beginning):
        raise DataError(f"{url}: is a web page, not the file {name}; open the address in a browser")
    try:
        verify(path, name=name)
    except DataError as error:
        reason = str(error).removeprefix(f"{path}: ")
        raise DataError(f"{url}: {reason}") from None


def download(
    url: str, folder: Path, *, checksum: str | None = None, patience: Patience | None = None
) -> Path:
    """Download a file into a folder unless it is there, and verify its checksum.

    Args:
        url: an http or https address; the file gets the name at its end.
        folder: created if it does not exist.
        checksum: the published checksum, as ``sha256:HEX`` or ``md5:HEX``.
        patience: limits on repeated attempts.

    Returns:
        The path of the file.

    Raises:
        UsageError: an address that cannot be downloaded from; see `check_address`.
        DataError: the file does not exist, the connection breaks too often, a checksum differs, or
            the content does not match the name (empty, a web page, a damaged archive).
    """
    name = check_address(url)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    recorded = read_sums(folder).get(name)
    part = _Part(path.with_name(name + ".part"))
    is_new = not path.exists()
    if is_new:
        print(f"download: {url}", file=sys.stderr)
        _fetch(url, part, patience or Patience())
    candidate = part.path if is_new else path
    sha256 = digest(candidate)
    if checksum:
        algorithm, expected = algorithm_of(checksum)
        actual = sha256 if algorithm == "sha256" else digest(candidate, algorithm)
        if actual != expected:
            advice = "--no-known-checksums takes it nevertheless"
            if is_new:
                rejected = path.with_name(name + ".rejected")
                candidate.replace(rejected)
                part.remove()
                advice = f"the file is now {rejected}; renamed to {path}, {advice}"
            raise DataError(
                f"{url if is_new else path}: {algorithm} is {actual}, but {expected} was "
                f"published; {advice}"
            )
    if recorded and recorded != sha256:
        again = "" if is_new else "delete the file to download it again, or "
        part.remove()
        raise DataError(
            f"{path}: SHA-256 is {sha256}, but {folder / SUMS} has {recorded} from the first "
            f"download; {again}delete that line if the change is meant"
        )
    if not recorded and not checksum:
        try:
            _check_content(url, candidate, name)
        except DataError:
            part.remove()
            raise
    if is_new:
        part.path.replace(path)
        part.remove()
    else:
        print(f"skip: {path} (there, checksum right)", file=sys.stderr)
    if not recorded:
        _record(folder, name, sha256)
    return path


def _seconds(text: str) -> float:
    """An argparse type: a number of seconds, up to an hour."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds") from None
    if not 0 <= value <= _LONGEST_PAUSE:
        raise argparse.ArgumentTypeError(f"{text} is not between 0 and {_LONGEST_PAUSE:.0f}")
    return value


def add_patience_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of a command that downloads."""
    parser.add_argument("--attempts", type=positive, default=Patience.attempts)
    parser.add_argument(
        "--pause", type=_seconds, default=Patience.pause, help="seconds before the second attempt"
    )


def patience_of(options: argparse.Namespace) -> Patience:
    """Read the values of the options that `add_patience_options` adds."""
    return Patience(attempts=options.attempts, pause=options.pause)


def main(arguments: Sequence[str]) -> None:
    """Download files, and print the path of each."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.download", description=__doc__)
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    add_patience_options(parser)
    parser.add_argument("urls", nargs="+", metavar="URL")
    options = parser.parse_args(arguments)
    for url in options.urls:
        check_address(url)
    for url in options.urls:
        print(download(url, options.to, patience=patience_of(options)))


if __name__ == "__main__":
    run(main)
