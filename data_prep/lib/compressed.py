"""Read untrusted compressed files, with verified checksums and a limit on the unpacked size."""

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

# Compression shrinks text to a third or a tenth of its size, and a file of one repeated byte to a
# thousandth. For files that unpack to at most FREE_BYTES the ratio is not limited.
LARGEST_RATIO = 100
FREE_BYTES = 1 << 28

_OPENERS: dict[bytes, Callable[[Path], object]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x5d\x00\x00\x80": lzma.open,
}

# Errors that Python's readers raise for damaged data. The OSErrors of gzip and bz2 have no errno;
# `is_damage` uses this to distinguish them from errors of the disk. Damaged sizes or attributes of
# a member cause ValueError, struct.error, RecursionError and similar errors.
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
    """Check whether an error while reading is due to damaged data, not to the disk."""
    if isinstance(error, OSError):
        return error.errno is None
    return isinstance(error, _DAMAGE)


def largest_size(path: Path) -> int:
    """Return the largest accepted unpacked size of a compressed file, in bytes."""
    return max(FREE_BYTES, LARGEST_RATIO * path.stat().st_size)


class _Bounded(io.RawIOBase):
    """A decompressed stream that raises a DataError after more than ``limit`` bytes."""

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
    """Refuse data that unpacks to more than ``limit`` bytes.

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
    """Open a .gz file for reading.

    Reading raises EOFError, `gzip.BadGzipFile` or `zlib.error` for a damaged file, at the latest at
    its end, and DataError for a file that unpacks to far more than text does.
    """
    return _bounded(gzip.open(path), path)


def open_any(path: Path) -> BinaryIO:
    """Open a file for reading; decompress it if it begins like a gzip, bzip2 or xz file."""
    with open(path, "rb") as file:
        beginning = file.read(8)
    for magic, opener in _OPENERS.items():
        if beginning.startswith(magic):
            return _bounded(opener(path), path)
    return open(path, "rb")
