"""Writing files whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headprune.errors import DataError


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary name beside ``path`` to write to; renamed to it when the block ends well.

    A link stays one: what it points to is replaced.

    Raises:
        DataError: the folder cannot be written to, or ``path`` is no regular file (renaming to
            /dev/null would replace the device).
    """
    target = Path(os.path.realpath(path))
    if os.path.exists(target) and not os.path.isfile(target):
        raise DataError(f"{path}: cannot write (it is a folder or a device)")
    temporary = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        yield temporary
        os.replace(temporary, target)
    except OSError as error:
        raise DataError(f"{path}: cannot write ({error.strerror or error})") from None
    finally:
        with suppress(OSError):
            temporary.unlink()


def write_text_atomically(path: str | Path, text: str) -> None:
    """Write ``text`` to ``path``; a reader sees the old file or the new one, never a part."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
