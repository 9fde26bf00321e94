"""Reading compressed files of unknown origin: to their last checksum, and not without end."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

from headprune.errors import DataError

# Text shrinks to a third or a tenth, a file of one repeated byte to a thousandth. Files that unpack
# to at most FREE_BYTES may shrink by any factor.
LARGEST_RATIO = 100
FREE_BYTES = 1 << 28

_OPENERS: dict[bytes, Callable[[Path], object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x5d\x00\x00\x80": lzma.open,
}

# The errors that Python's readers raise for damaged data. OSError is one of them: those of gzip and
# bz2 carry no errno, so `is_damage` tells them from errors of the disk. A member with damaged sizes
# or attributes gives ValueError, struct.error, RecursionError and their relatives.
_DAMAGE = (
    EOFError,
    OSError,
    tarfile.TarError,
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    ArithmeticError,
    LookupError,
    ValueError,
    RecursionError,
    NotImplementedError,
)


def is_damage(error: Exception) -> bool:
    """True where an error while reading says that the data are damaged, not the disk."""
    if isinstance(error, OSError):
        return error.errno is None
    return isinstance(error, _DAMAGE)


def largest_size(path: Path) -> int:
    """The number of bytes that a compressed file may unpack to."""
    return max(FREE_BYTES, LARGEST_RATIO * path.stat().st_size)


class _Bounded(io.RawIOBase):
    """A decompressed stream that ends with a DataError once it is longer than ``limit`` bytes."""

    def __init__(self, source: BinaryIO, *, limit: int, name: str) -> None:
        self._source = source
        self._limit = limit
        self._name = name
        self._position = 0

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        count: int = self._source.readinto(buffer)  # type: ignore[attr-defined]
        self._position += count
        check_size(self._position, self._limit, name=self._name)
        return count

    def close(self) -> None:
        self._source.close()
        super().close()


def check_size(size: int, limit: int, *, name: str) -> None:
    """Refuse data that unpack to more than ``limit`` bytes.

    Raises:
        DataError: ``size`` is over the limit.
    """
    if size > limit:
        raise DataError(
            f"{name}: unpacks to more than {limit} bytes, {LARGEST_RATIO} times its size; "
            "that is no text, so it is refused"
        )


def _bounded(source: object, path: Path) -> BinaryIO:
    raw = _Bounded(cast(BinaryIO, source), limit=largest_size(path), name=str(path))
    return cast(BinaryIO, io.BufferedReader(raw, 1 << 17))


def open_gzip(path: Path) -> BinaryIO:
    """A .gz file for reading, decompressed.

    The reader raises EOFError, `gzip.BadGzipFile` or `zlib.error` for a damaged file, at the
    latest where the end is read, and DataError for one that unpacks to far more than text does.
    """
    return _bounded(gzip.open(path), path)


def open_any(path: Path) -> BinaryIO:
    """A file for reading, decompressed where its first bytes are those of gzip, bzip2 or xz."""
    with open(path, "rb") as file:
        beginning = file.read(8)
    for magic, opener in _OPENERS.items():
        if beginning.startswith(magic):
            return _bounded(opener(path), path)
    return open(path, "rb")
