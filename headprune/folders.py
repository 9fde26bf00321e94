"""Writing folders whole or not at all."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headprune.errors import DataError, UsageError


def require_outside(path: Path, model: Path) -> None:
    """Refuse to write within a model's folder, whose contents are copied with the pruned model.

    Raises:
        UsageError: ``path`` is the folder ``model``, or lies in it.
    """
    if path.resolve().is_relative_to(model.resolve()):
        raise UsageError(f"{path}: lies in the folder of the model, {model}; give another place")


@contextmanager
def new_folder(path: str | Path) -> Iterator[Path]:
    """A temporary folder beside ``path`` to write to; renamed to it when the block ends well.

    Raises:
        DataError: ``path`` exists and is not an empty folder, or cannot be written.
    """
    target = Path(path).resolve()
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        if target.exists() and not (target.is_dir() and not any(target.iterdir())):
            raise DataError(f"{path}: exists already; choose another folder")
        shutil.rmtree(temporary, ignore_errors=True)
        temporary.mkdir(parents=True)
        yield temporary
        if target.exists():
            target.rmdir()
        os.replace(temporary, target)
    except OSError as error:
        raise DataError(f"{path}: cannot write ({error.strerror or error})") from None
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
