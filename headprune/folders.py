"""Write folders completely or not at all."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headprune.errors import DataError, UsageError
from headprune.files import is_temporary_name, parent_folders, temporary_name, write_errors
from headprune.locks import lock_file

_SCRATCH = "work."


def require_outside(path: Path, model: Path) -> None:
    """Refuse to write inside a model's folder, since its other files are copied with the model.

    Raises:
        UsageError: ``path`` is the folder ``model``, or lies in it.
    """
    if path.resolve().is_relative_to(model.resolve()):
        raise UsageError(f"{path}: lies in the folder of the model, {model}; give another place")


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """Provide a temporary folder beside ``path``, renamed to ``path`` when the block succeeds.

    The temporary folder has a unique name and is created exclusively. If the block fails, it and
    the parent folders that were created for it are removed. Temporary folders that killed processes
    left behind are removed first.

    Raises:
        DataError: ``path`` exists and is not an empty folder, or cannot be written.
        UsageError: another command is writing ``path`` at the moment.
    """
    target = Path(path).resolve()
    temporary = temporary_name(target)
    with write_errors(path), parent_folders(target):
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise DataError(f"{path}: exists already; choose another folder")
        with lock_file(target.with_name(f".{target.name}.lock"), description=str(path)):
            _remove_leftovers(target)
            try:
                temporary.mkdir()
                yield temporary
                if target.exists():
                    target.rmdir()
                os.replace(temporary, target)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)


def _remove_leftovers(target: Path) -> None:
    """Remove temporary folders of killed processes; the caller holds the lock of ``target``."""
    for path in target.parent.iterdir():
        is_leftover = is_temporary_name(path.name, target=target.name)
        if is_leftover and path.is_dir() and not path.is_symlink():
            shutil.rmtree(path, ignore_errors=True)


@contextmanager
def scratch_folder(parent: Path) -> Iterator[Path]:
    """Provide an unused path inside a new temporary folder of ``parent``.

    The temporary folder is removed at the end. Folders left behind by killed processes are removed
    first, so the caller has to hold the lock of ``parent``.
    """
    for leftover in (parent / "work", *parent.glob(f"{_SCRATCH}*")):
        shutil.rmtree(leftover, ignore_errors=True)
    with parent_folders(parent / _SCRATCH):
        folder = Path(tempfile.mkdtemp(prefix=_SCRATCH, dir=parent))
        try:
            yield folder / "model"
        finally:
            shutil.rmtree(folder, ignore_errors=True)
