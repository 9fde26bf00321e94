"""Extract files from .tgz and .zip archives, and sentences from WMT's .sgm files."""

from __future__ import annotations

import re
import stat
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePosixPath
from typing import IO, Any, BinaryIO, cast

from data_prep.lib.compressed import check_size, is_damage, largest_size, open_any
from headprune.errors import DataError

_BLOCK = 1 << 20
# Size limit of a header of a tar archive, with names and attributes; it is read as a whole.
_LONGEST_HEADER = 1 << 24
_END_OF_TAR = bytes(tarfile.BLOCKSIZE)
_ENCRYPTED = 0x1

Member = tuple[str, Callable[[], IO[bytes]]]


def printable(name: str) -> str:
    """Replace line breaks and control characters in a name from an archive or an address."""
    return "".join(character if character.isprintable() else "?" for character in name)


class _Forward:
    """A stream for `tarfile` that is read from front to back.

    ``last`` contains the bytes of the last read; at the end of an archive, its end mark.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._position = 0
        self.last = b""

    def tell(self) -> int:
        return self._position

    def seek(self, position: int) -> int:
        if position < self._position:
            raise tarfile.ReadError("a member begins before the end of another")
        while self._position < position and self.read(min(_BLOCK, position - self._position)):
            pass
        return self._position

    def read(self, size: int) -> bytes:
        if size > _LONGEST_HEADER:
            raise tarfile.ReadError(f"a header of {size} bytes")
        self.last = self._file.read(size)
        self._position += len(self.last)
        return self.last


def _tar_members(archive: Path) -> Iterator[Member]:
    """Iterate over the regular files of a tar archive, and read its checksum at the end."""
    with open_any(archive) as file:
        stream = _Forward(file)
        with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as tar:
            while (member := tar.next()) is not None:
                cast(Any, tar).members.clear()  # keeps the use of memory constant
                if member.isfile():
                    yield (
                        member.name,
                        cast("Callable[[], IO[bytes]]", partial(tar.extractfile, member)),
                    )
        # tarfile treats a damaged header as the end of the archive.
        if stream.last != _END_OF_TAR:
            raise tarfile.ReadError("a damaged header, or no end")
        while stream.read(_BLOCK):
            pass


def _zip_members(archive: Path) -> Iterator[Member]:
    """Iterate over the regular files of a zip archive; each has its own checksum."""
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            if not info.is_dir() and not stat.S_ISLNK(info.external_attr >> 16):
                yield info.filename, partial(_open_zipped, zipped, info)


def _open_zipped(zipped: zipfile.ZipFile, info: zipfile.ZipInfo) -> IO[bytes]:
    label = f"{printable(info.filename)} in {zipped.filename}"
    if info.flag_bits & _ENCRYPTED:
        raise DataError(f"{label}: encrypted; unpack it with its password, and give the files")
    try:
        return zipped.open(info)
    except NotImplementedError:
        raise DataError(
            f"{label}: compression method {info.compress_type} is not supported; "
            "unpack it with another program, and give the files"
        ) from None


def _members(archive: Path) -> Iterator[Member]:
    return _zip_members(archive) if archive.suffix == ".zip" else _tar_members(archive)


@contextmanager
def _naming_damage(archive: Path, last: list[str], *, advice: str = "") -> Iterator[None]:
    """Turn errors of damaged data into a DataError that names the damaged member."""
    try:
        yield
    except Exception as error:
        if isinstance(error, DataError) or not is_damage(error):
            raise
        raise DataError(
            f"{archive}: the archive is cut off or corrupt, at {printable(last[0])} "
            f"({printable(str(error)) or 'early end'}){advice}"
        ) from None


def _blocks(file: IO[bytes], limit: int, name: str) -> Iterator[bytes]:
    size = 0
    while block := file.read(_BLOCK):
        size += len(block)
        check_size(size, limit, name=name)
        yield block


def extract(archive: Path, groups: Sequence[Sequence[str]], folder: Path) -> list[Path]:
    """Copy files from an archive into a folder.

    Members are identified by the last part of their names; links are skipped. Files are written to
    ``folder`` only. The whole archive is read, so that its checksums are verified.

    Args:
        archive: a .tgz (or other tar) or .zip archive.
        groups: names of files that belong together; the groups are in order of preference.
        folder: receives the files, under the last part of their names.

    Returns:
        The paths of the files of the first group that is complete in the archive.

    Raises:
        DataError: the archive is missing, cut off, corrupt, encrypted or unpacks to far more than
            text does, or contains none of the groups.
    """
    if not archive.is_file():
        raise DataError(f"{archive}: no such file")
    limit = largest_size(archive)
    wanted = {name for group in groups for name in group}
    extracted: set[str] = set()
    last = ["its beginning"]
    with _naming_damage(archive, last, advice="; delete it to download it again"):
        for name, open_member in _members(archive):
            last[0] = name
            base = PurePosixPath(name).name
            if base not in wanted or base in extracted:
                continue
            with open_member() as file, open(folder / base, "wb") as output:
                for block in _blocks(file, limit, f"{base} in {archive}"):
                    output.write(block)
            extracted.add(base)
    for group in groups:
        if extracted.issuperset(group):
            return [folder / name for name in group]
    needed = " or ".join(" and ".join(group) for group in groups)
    raise DataError(f"{archive}: lacks files; it needs {needed}")


def verify(path: Path, *, name: str | None = None) -> None:
    """Verify the checksums in a compressed file by reading it to its end.

    Args:
        path: the file.
        name: the name whose ending tells the format (.zip, .tgz and .tar.*, .gz, .bz2, .xz), if it
            differs from the file's own name. Files of other formats are not read.

    Raises:
        DataError: the file is cut off, corrupt, encrypted or unpacks to far more than text does.
    """
    name = name or path.name
    last = ["its beginning"]
    with _naming_damage(path, last):
        if name.endswith(".zip"):
            limit = largest_size(path)
            for member, open_member in _zip_members(path):
                last[0] = member
                with open_member() as file:
                    for _ in _blocks(file, limit, str(path)):
                        pass
        elif re.search(r"\.(tgz|tar(\.\w+)?)$", name):
            for member, _ in _tar_members(path):
                last[0] = member
        elif name.endswith((".gz", ".bz2", ".xz")):
            with open_any(path) as file:
                while file.read(_BLOCK):
                    pass


_SEGMENT = re.compile(r"<seg\b[^>]*>(.*)</seg>", re.IGNORECASE)


def segments(lines: Iterable[str]) -> Iterator[str]:
    """Extract the sentences of a WMT .sgm file, as sacreBLEU does.

    The format resembles SGML but differs from it: entities are not replaced, and every segment is
    on a line of its own.
    """
    for line in lines:
        match = _SEGMENT.match(line.strip())
        if match:
            yield " ".join(match[1].split())
