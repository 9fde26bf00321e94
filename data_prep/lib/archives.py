"""Reading single files out of .tgz, .zip and WMT's .sgm, a piece at a time."""

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
# A header of a tar archive is read in one go, names and attributes included.
_LONGEST_HEADER = 1 << 24
_END_OF_TAR = bytes(tarfile.BLOCKSIZE)
_ENCRYPTED = 0x1

Member = tuple[str, Callable[[], IO[bytes]]]


def printable(name: str) -> str:
    """A name from an archive or an address as it can be shown: on one line, without controls."""
    return "".join(character if character.isprintable() else "?" for character in name)


class _Forward:
    """A stream as `tarfile` reads one, from front to back.

    ``last`` is what was read last: at the end of an archive, the header that ended it.
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
    """The regular files of a tar archive; read to the checksum at the end of its compression."""
    with open_any(archive) as file:
        stream = _Forward(file)
        with tarfile.open(fileobj=cast(IO[bytes], stream), mode="r:") as tar:
            while (member := tar.next()) is not None:
                cast(Any, tar).members.clear()  # for memory that does not grow
                if member.isfile():
                    yield (
                        member.name,
                        cast("Callable[[], IO[bytes]]", partial(tar.extractfile, member)),
                    )
        # tarfile takes a damaged header for the end of the archive.
        if stream.last != _END_OF_TAR:
            raise tarfile.ReadError("a damaged header, or no end")
        while stream.read(_BLOCK):
            pass


def _zip_members(archive: Path) -> Iterator[Member]:
    """The regular files of a zip archive, each with a checksum of its own."""
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
    """Turn the errors of damaged data into a DataError that says where they are."""
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
    """Copy files of an archive into a folder.

    Members are found by the last part of their names; links are passed over. Nothing but
    ``folder`` is written to. The whole archive is read, so that its checksums are verified.

    Args:
        archive: a .tgz (or other tar) or .zip.
        groups: names of files that belong together, the groups in order of preference.
        folder: where to put them, under the last part of their names.

    Returns:
        the paths of the files of the first group that the archive has all of.

    Raises:
        DataError: the archive is missing, cut off, corrupt, encrypted or unpacks to far more than
            text does, or has none of the groups.
    """
    if not archive.is_file():
        raise DataError(f"{archive}: no such file")
    limit = largest_size(archive)
    wanted = {name for group in groups for name in group}
    had: set[str] = set()
    last = ["its beginning"]
    with _naming_damage(archive, last, advice="; delete it to download it again"):
        for name, open_member in _members(archive):
            last[0] = name
            base = PurePosixPath(name).name
            if base not in wanted or base in had:
                continue
            with open_member() as file, open(folder / base, "wb") as output:
                for block in _blocks(file, limit, f"{base} in {archive}"):
                    output.write(block)
            had.add(base)
    for group in groups:
        if had.issuperset(group):
            return [folder / name for name in group]
    told = " nor ".join(" and ".join(group) for group in groups)
    raise DataError(f"{archive}: has not the files {told}")


def verify(path: Path, *, name: str | None = None) -> None:
    """Read a file to its end, as far as its name says that it carries checksums.

    Args:
        path: the file.
        name: the name that says its kind, where that is not its own: .zip, .tgz and .tar.*, .gz,
            .bz2, .xz; any other kind is not looked into.

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
    """The sentences of a WMT .sgm file, as sacreBLEU reads them.

    The format looks like SGML and is none: entities are left as they are, and every segment is on
    a line of its own.
    """
    for line in lines:
        match = _SEGMENT.match(line.strip())
        if match:
            yield " ".join(match[1].split())
