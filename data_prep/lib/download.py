"""Downloads that go on where they were broken off, and are checked against checksums.

A file is fetched under the name ``NAME.part``; only when it is whole and its checksum is right does
it get its name, and its SHA-256 a line in ``SHA256SUMS`` beside it (a file for ``sha256sum -c``).
Later runs check it against that line.
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
from urllib.parse import unquote, urlsplit

from tqdm import tqdm

from data_prep.lib.cli import positive, run
from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically

SUMS = "SHA256SUMS"
_BLOCK = 1 << 18
# statuses that may pass: too many requests, and errors of the server or of what stands before it
_PASSING = {408, 425, 429, 500, 502, 503, 504}
_BROKEN = (urllib.error.URLError, http.client.HTTPException, ConnectionError, TimeoutError)


@dataclass(frozen=True)
class Patience:
    """How long to try: ``attempts`` in a row without a byte, with pauses that double.

    ``pause`` is the first pause and ``timeout`` the wait for an answer, both in seconds.
    """

    attempts: int = 5
    pause: float = 2.0
    timeout: float = 60.0


@dataclass(frozen=True)
class _Part:
    """The beginning of a file, and what its server said of the whole."""

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
    """A file's checksum in hexadecimal, by ``sha256`` or ``md5``."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, algorithm).hexdigest()


def read_sums(folder: Path) -> dict[str, str]:
    """The checksums that are on record in a folder, by file name."""
    path = folder / SUMS
    if not path.exists():
        return {}
    sums = {}
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), start=1):
        match = re.fullmatch(r"([0-9a-f]{64}) [ *](.+)", line)
        if not match:
            raise DataError(f"{path}: line {number} is not a checksum and a file name")
        sums[match[2]] = match[1]
    return sums


def _record(folder: Path, name: str, value: str) -> None:
    sums = read_sums(folder) | {name: value}
    lines = [f"{value}  {name}\n" for name, value in sorted(sums.items())]
    write_text_atomically(folder / SUMS, "".join(lines))


def _request(url: str, part: _Part) -> urllib.request.Request:
    request = urllib.request.Request(url, headers={"User-Agent": "Mozilla/5.0 (headprune)"})
    size, notes = part.size(), part.notes()
    if size and notes.get("url") == url:
        request.add_header("Range", f"bytes={size}-")
        # Without this, a file that changed on the server would be glued to its old beginning.
        if notes.get("validator"):
            request.add_header("If-Range", notes["validator"])
    return request


def _receive(url: str, part: _Part, patience: Patience) -> bool:
    """Fetch what is missing of a file, as far as it comes; whether it is whole now."""
    with urllib.request.urlopen(_request(url, part), timeout=patience.timeout) as answer:
        length = answer.headers.get("Content-Length")
        start = 0
        if answer.status == 206:
            told = re.fullmatch(
                r"bytes (\d+)-\d+/(\d+|\*)", answer.headers.get("Content-Range", "")
            )
            start = int(told[1]) if told else -1
            if start != part.size():
                part.remove()
                raise ConnectionError("the server sent another range than was asked for")
        whole = start + int(length) if length else None
        entity_tag = answer.headers.get("ETag", "")
        validator = entity_tag if entity_tag and not entity_tag.startswith("W/") else None
        notes = {"url": url, "validator": validator or answer.headers.get("Last-Modified")}
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
            # read1 hands over what has come even where the connection then breaks
            while block := answer.read1(_BLOCK):
                file.write(block)
                bar.update(len(block))
    return whole is None or part.size() == whole


def _fetch(url: str, part: _Part, patience: Patience) -> None:
    """Fetch a file into its part.

    Raises:
        DataError: the server has no such file, or the connection broke too often.
    """
    failures = 0
    while True:
        before = part.size()
        try:
            if _receive(url, part, patience):
                return
            reason = "the connection was closed early"
        except urllib.error.HTTPError as error:
            if error.code == 416:
                # Nothing is left to send, or the part is not of this file.
                told = re.fullmatch(r"bytes \*/(\d+)", error.headers.get("Content-Range", ""))
                if told and int(told[1]) == before:
                    return
                part.remove()
            elif error.code not in _PASSING:
                raise DataError(f"{url}: the server says {error.code} {error.reason}") from None
            reason = f"the server says {error.code} {error.reason}"
        except _BROKEN as error:
            reason = str(getattr(error, "reason", None) or error) or type(error).__name__
        failures = 1 if part.size() > before else failures + 1
        if failures >= patience.attempts:
            raise DataError(
                f"{url}: {reason}, after {patience.attempts} attempts; {part.size()} bytes are "
                "kept, run the same command again to go on"
            )
        print(f"{url}: {reason} at {part.size()} bytes; trying again", file=sys.stderr)
        time.sleep(patience.pause * 2 ** (failures - 1))


def download(
    url: str, folder: Path, *, checksum: str | None = None, patience: Patience | None = None
) -> Path:
    """Have a file in a folder, under the last part of its address.

    Args:
        url: http or https.
        folder: is made where it does not exist.
        checksum: the published checksum, as ``sha256:HEX`` or ``md5:HEX``.
        patience: with a server that does not answer well.

    Returns:
        the path of the file.

    Raises:
        DataError: there is no such file, the connection breaks too often, or a checksum differs.
    """
    if not url.isascii():
        raise UsageError(f"{url}: an address has no such letters; write them as %XX")
    name = unquote(urlsplit(url).path.rsplit("/", 1)[-1])
    if not name:
        raise UsageError(f"{url}: the address does not end in the name of a file")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    recorded = read_sums(folder).get(name)
    part = _Part(path.with_name(name + ".part"))
    fresh = not path.exists()
    if fresh:
        print(f"download: {url}", file=sys.stderr)
        _fetch(url, part, patience or Patience())
    candidate = part.path if fresh else path
    found = digest(candidate)
    if checksum:
        algorithm, expected = checksum.split(":", 1)
        actual = found if algorithm == "sha256" else digest(candidate, algorithm)
        if actual != expected:
            rejected = path.with_name(name + ".rejected")
            candidate.replace(rejected)
            part.remove()
            raise DataError(
                f"{url}: {algorithm} is {actual}, but {expected} was published; "
                f"the file is now {rejected}"
            )
    if recorded and recorded != found:
        again = "" if fresh else "delete the file to download it again, or "
        part.remove()
        raise DataError(
            f"{path}: SHA-256 is {found}, but {folder / SUMS} has {recorded} from the first "
            f"download; {again}delete that line if the change is meant"
        )
    if fresh:
        part.path.replace(path)
        part.remove()
    else:
        print(f"skip: {path} (there, checksum right)", file=sys.stderr)
    if not recorded:
        _record(folder, name, found)
    return path


def add_patience_options(parser: argparse.ArgumentParser) -> None:
    """Options of a command that downloads."""
    parser.add_argument("--attempts", type=positive, default=Patience.attempts)
    parser.add_argument(
        "--pause", type=float, default=Patience.pause, help="seconds before the second attempt"
    )


def patience_of(options: argparse.Namespace) -> Patience:
    """What the user asked for with `add_patience_options`."""
    return Patience(attempts=options.attempts, pause=options.pause)


def main(arguments: Sequence[str]) -> None:
    """Download files, and print where each one is."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.download", description=__doc__)
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER")
    add_patience_options(parser)
    parser.add_argument("urls", nargs="+", metavar="URL")
    options = parser.parse_args(arguments)
    for url in options.urls:
        print(download(url, options.to, patience=patience_of(options)))


if __name__ == "__main__":
    run(main)
