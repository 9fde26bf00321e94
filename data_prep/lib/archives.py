"""Reading single files out of .tgz, .zip and WMT's .sgm, a piece at a time."""

from __future__ import annotations

import re
import shutil
import tarfile
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import IO

from headprune.errors import DataError

_BROKEN = (tarfile.TarError, EOFError, zlib.error, zipfile.BadZipFile)


def _tar_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    # "r|*" reads from front to back, in constant memory.
    with tarfile.open(archive, "r|*") as tar:
        for member in tar:
            file = tar.extractfile(member) if member.isfile() else None
            if file is not None:
                yield member.name, file


def _zip_members(archive: Path) -> Iterator[tuple[str, IO[bytes]]]:
    with zipfile.ZipFile(archive) as zipped:
        for info in zipped.infolist():
            if not info.is_dir():
                with zipped.open(info) as file:
                    yield info.filename, file


def extract(archive: Path, groups: Sequence[Sequence[str]], folder: Path) -> list[Path]:
    """Copy files of an archive into a folder.

    Members are found by the last part of their names. Nothing but ``folder`` is written to.

    Args:
        archive: a .tgz (or other tar) or .zip.
        groups: names of files that belong together, the groups in order of preference.
        folder: where to put them, under the last part of their names.

    Returns:
        the paths of the files of the first group that the archive has all of.

    Raises:
        DataError: the archive is missing, cut off or corrupt, or has none of the groups.
    """
    if not archive.is_file():
        raise DataError(f"{archive}: no such file")
    wanted = {name for group in groups for name in group}
    had: set[str] = set()
    members = _zip_members if archive.suffix == ".zip" else _tar_members
    last = "its beginning"
    try:
        for name, file in members(archive):
            last = name
            base = PurePosixPath(name).name
            if base not in wanted or base in had:
                continue
            with open(folder / base, "wb") as output:
                shutil.copyfileobj(file, output, 1 << 20)
            had.add(base)
            if had.issuperset(groups[0]):
                break
    except _BROKEN as error:
        raise DataError(
            f"{archive}: the archive is cut off or corrupt, at {last} ({error or 'early end'}); "
            "delete it to download it again"
        ) from None
    for group in groups:
        if had.issuperset(group):
            return [folder / name for name in group]
    told = " nor ".join(" and ".join(group) for group in groups)
    raise DataError(f"{archive}: has not the files {told}")


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
