"""Copy files from a model's folder, but nothing from outside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Collection, Iterator
from fnmatch import fnmatch
from pathlib import Path

from headprune.errors import DataError
from headprune.json_files import read_json


def copy_files(source: Path, target: Path, *, wanted: Callable[[str], bool]) -> None:
    """Copy the files of a folder and its sub-folders under their names.

    The folders that modules.json names, in which encoders of sentences have their pooling and
    further layers (as sentence-transformers writes them), are always copied whole.

    A symbolic link is replaced by the file that it points to. This file has to lie in the same
    folder, or in the same repository of the hub's cache, whose snapshots consist of links.

    Args:
        source: the model's folder.
        target: an existing folder.
        wanted: decides by its name whether a file or sub-folder is copied.

    Raises:
        DataError: a link points to another place, whose content would be published with the copy,
            or an entry is neither a file nor a folder.
    """
    modules = _modules(source)
    for path in _files(source, wanted, modules):
        copy = target / path.relative_to(source)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_contained(path, source), copy)


def named_as(*patterns: str) -> Callable[[str], bool]:
    """Create a function that checks whether a name matches one of the patterns."""
    return lambda name: any(fnmatch(name, pattern) for pattern in patterns)


def _modules(folder: Path) -> set[str]:
    """The names of the sub-folders that modules.json lists."""
    path = folder / "modules.json"
    listed = read_json(path) if path.is_file() else []
    if not isinstance(listed, list):
        return set()
    paths = (each.get("path") for each in listed if isinstance(each, dict))
    return {each for each in paths if isinstance(each, str)}


def _files(
    folder: Path, wanted: Callable[[str], bool], modules: Collection[str] = ()
) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name in modules and path.is_dir() and not path.is_symlink():
            yield from _files(path, lambda _: True)
        elif not wanted(path.name):
            continue
        elif path.is_dir() and not path.is_symlink():
            yield from _files(path, wanted)
        else:
            yield path


def _contained(path: Path, folder: Path) -> Path:
    """Resolve ``path`` to a regular file, which has to lie in the folder or in its cache."""
    real, root = Path(os.path.realpath(path)), Path(os.path.realpath(folder))
    allowed = [root]
    if root.parent.name == "snapshots":  # CACHE/models--NAME/snapshots/REVISION
        allowed.append(root.parent.parent / "blobs")
    if path.is_symlink() and not any(real.is_relative_to(place) for place in allowed):
        raise DataError(
            f"{path}: a link to a place outside the folder, {real}, which would be copied; put the "
            "file itself there, or remove the link"
        )
    if not real.is_file():
        raise DataError(f"{path}: not a regular file; remove it from the model's folder")
    return real
