"""Writing files whole or not at all."""

from __future__ import annotations

import errno
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from headprune.errors import DataError, HeadpruneError, UsageError

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)

_TORCH_COULD_NOT_WRITE = re.compile(r"PytorchStreamWriter failed|inline_container.*unexpected pos")


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """A temporary file beside ``path`` to write to; renamed to it when the block ends well.

    The file has a name of its own, is created exclusively and has the permissions that the umask
    leaves. A link stays one: what it points to is replaced. If the block fails, the file and the
    folders that were made for it are removed.

    Raises:
        DataError: the folder cannot be written to, the disk is full, or ``path`` is no regular
            file (renaming to /dev/null would replace the device).
    """
    target = Path(os.path.realpath(path))
    if os.path.exists(target) and not os.path.isfile(target):
        raise DataError(f"{path}: cannot write (it is a folder or a device)")
    temporary = temporary_name(target)
    with write_errors(path), parent_folders(target):
        os.close(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))
        try:
            yield temporary
            os.replace(temporary, target)
        finally:
            with suppress(OSError):
                temporary.unlink()


def write_text_atomically(path: str | Path, text: str) -> None:
    """Write ``text`` to ``path``; a reader sees the old file or the new one, never a part."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def temporary_name(target: Path) -> Path:
    """A hidden name beside ``target`` that no other process uses; it ends with ``.tmp``."""
    return target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


@contextmanager
def parent_folders(path: Path) -> Iterator[None]:
    """Make the folders that ``path`` lies in; those made are removed again if the block fails."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        yield
    except BaseException:
        for folder in missing:  # the innermost first; one that is not empty stays
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def write_errors(path: str | Path) -> Iterator[None]:
    """Within this context, failures to write ``path`` end with one line that names it.

    Raises:
        DataError: instead of an OSError, and of what libraries raise when the disk is full.
    """
    try:
        yield
    except HeadpruneError:
        raise
    except UnicodeEncodeError as error:
        raise DataError(f"{path}: cannot write ({_not_unicode(error)})") from None
    except Exception as error:
        reason = _os_reason(error) if isinstance(error, OSError) else disk_problem(error)
        if reason is None:
            raise
        raise DataError(f"{path}: cannot write ({reason})") from None


def disk_problem(error: BaseException) -> str | None:
    """The reason for which a disk took no more, if ``error`` is due to that; None otherwise.

    torch and safetensors raise errors of their own when a write fails.
    """
    seen: BaseException | None = error
    while seen is not None:
        if isinstance(seen, OSError) and seen.errno in _DISK_ERRORS:
            return _os_reason(seen)
        found = re.search(r"\(os error (\d+)\)", str(seen))  # of libraries written in Rust
        if found and int(found[1]) in _DISK_ERRORS:
            return os.strerror(int(found[1]))
        seen = seen.__cause__ or seen.__context__
    if isinstance(error, RuntimeError) and _TORCH_COULD_NOT_WRITE.search(str(error)):
        return "the disk takes no more; is it full?"
    return None


def require_standard_output() -> None:
    """Refuse to write a command's product to a standard output that is closed.

    Raises:
        UsageError: standard output is closed.
    """
    if sys.stdout is None:
        raise UsageError("standard output is closed; leave it open")


def flush_standard_output() -> None:
    """Write what is still to be written to standard output.

    Raises:
        DataError: it takes no more, as on a full disk. A pipe that nobody reads is no error here.
    """
    if sys.stdout is None:
        return
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        _discard_standard_output()
    except OSError as error:
        _discard_standard_output()
        raise DataError(f"standard output: cannot write ({_os_reason(error)})") from None


def _discard_standard_output() -> None:
    """Keep the interpreter from trying again, and failing, when it ends."""
    if sys.stdout is sys.__stdout__:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def _os_reason(error: OSError) -> str:
    """The reason without the file's name, which is a temporary one."""
    reason = error.strerror
    if reason is None and error.args and isinstance(error.args[0], list) and error.args[0]:
        reason = str(error.args[0][0][-1])  # shutil.Error: source, target and reason of each file
    return reason or str(error)


def _not_unicode(error: UnicodeEncodeError) -> str:
    return f"{error.object[error.start : error.end]!r} is no text; give valid UTF-8"
