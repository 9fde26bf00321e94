"""Read text, and write files completely or not at all."""

from __future__ import annotations

import errno
import gzip
import os
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from io import BufferedReader, TextIOWrapper
from pathlib import Path

from headprune.errors import DataError, HeadpruneError, UsageError

_DISK_ERRORS = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)

_TORCH_COULD_NOT_WRITE = re.compile(r"PytorchStreamWriter failed|inline_container.*unexpected pos")


@contextmanager
def unpacked(path: Path) -> Iterator[BufferedReader | gzip.GzipFile]:
    """Open a file, which may be compressed with gzip, to read its content.

    Raises:
        DataError: the file cannot be read, here or while the block reads it.
    """
    opened = gzip.open if path.suffix == ".gz" else open
    try:
        with opened(path, "rb") as file:
            yield file
    except (OSError, EOFError, zlib.error) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise DataError(f"{path}: cannot be read: {reason}") from None


def text_of(path: Path, *, newline: str | None = None) -> str:
    """The text of a UTF-8 file, which may be compressed with gzip, without a byte-order mark.

    Args:
        newline: see ``open``: None turns all line ends into newlines, the empty string keeps them.

    Raises:
        DataError: the file cannot be read or is not UTF-8.
    """
    try:
        with unpacked(path) as file:
            return TextIOWrapper(file, encoding="utf-8-sig", newline=newline).read()
    except UnicodeDecodeError as problem:
        raise DataError(f"{path}: not UTF-8 text (byte {problem.start})") from None


@contextmanager
def atomic_path(path: str | Path) -> Iterator[Path]:
    """Provide a temporary file beside ``path``, renamed to ``path`` when the block succeeds.

    The temporary file has a unique name, is created exclusively and has the permissions that the
    umask allows. A symbolic link stays a link: the file that it points to is replaced. If the block
    fails, the temporary file and the folders that were created for it are removed.

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
    """Write ``text`` to ``path``; a reader sees the old file or the new one, never a part of it."""
    with atomic_path(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def require_writable(path: Path | None) -> None:
    """Check that a file can be written, before a computation whose result it is for.

    What is there stays as it is, and folders that are missing stay missing.

    Raises:
        DataError: see ``atomic_path``.
    """
    if path is None:
        return
    with suppress(_Tried), atomic_path(path):
        raise _Tried  # so that the temporary file and the new folders are removed


class _Tried(Exception):
    """The temporary file could be created."""


def require_separate(
    outputs: Mapping[str, Path | None], *, inputs: Iterable[Path | None] = ()
) -> None:
    """Check, before anything is written, that no output replaces an input or another output.

    Args:
        outputs: by the option that names them; None where it is not given.

    Raises:
        UsageError: two outputs, or an output and an input, are the same file or folder.
    """
    taken = {os.path.realpath(path): "is read" for path in inputs if path is not None}
    for option, path in outputs.items():
        if path is None:
            continue
        place = os.path.realpath(path)
        if place in taken:
            kind = "folder" if os.path.isdir(place) else "file"
            raise UsageError(f"{option} {path}: this {kind} {taken[place]} too; give another name")
        taken[place] = f"is the output of {option}"


def temporary_name(target: Path) -> Path:
    """Name a hidden file beside ``target`` that no other process uses; it ends with ``.tmp``."""
    return target.with_name(f".{target.name}.{os.getpid()}-{os.urandom(4).hex()}.tmp")


def is_temporary_name(name: str, *, target: str) -> bool:
    """True if ``temporary_name`` gives such a name for ``target``.

    It is False for the names of ``model.v2`` where the target is ``model``.
    """
    return re.fullmatch(rf"\.{re.escape(target)}\.\d+-[0-9a-f]{{8}}\.tmp", name) is not None


@contextmanager
def parent_folders(path: Path) -> Iterator[None]:
    """Create the parent folders of ``path``; remove the new ones again if the block fails."""
    missing = [folder for folder in path.parents if not folder.exists()]
    try:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
        except FileExistsError:
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR)) from None
        yield
    except BaseException:
        for folder in missing:  # the innermost first; a folder that is not empty stays
            with suppress(OSError):
                folder.rmdir()
        raise


@contextmanager
def write_errors(path: str | Path) -> Iterator[None]:
    """Turn failures to write ``path`` into a DataError of one line that names the file.

    Raises:
        DataError: in place of an OSError, and of the errors of libraries when the disk is full.
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
    """Return the reason in words if ``error`` comes from a disk that cannot be written, else None.

    torch and safetensors raise their own types of errors when a write fails.
    """
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno in _DISK_ERRORS:
            return _os_reason(cause)
        rust_error = re.search(r"\(os error (\d+)\)", str(cause))  # as safetensors reports it
        if rust_error and int(rust_error[1]) in _DISK_ERRORS:
            return os.strerror(int(rust_error[1]))
        cause = cause.__cause__ or cause.__context__
    if isinstance(error, RuntimeError) and _TORCH_COULD_NOT_WRITE.search(str(error)):
        return "the disk cannot be written; is it full?"
    return None


def require_standard_output() -> None:
    """Refuse to run a command whose result goes to standard output if that is closed.

    Raises:
        UsageError: standard output is closed.
    """
    if sys.stdout is None:
        raise UsageError("standard output is closed; leave it open")


def flush_standard_output() -> None:
    """Flush standard output, and report a failure to write.

    Raises:
        DataError: writing fails, for example on a full disk. A closed pipe is not an error here.
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
    """Keep the interpreter from flushing again, and failing again, at exit."""
    if sys.stdout is sys.__stdout__:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 1)
        os.close(null)


def _os_reason(error: OSError) -> str:
    """Return the reason without the name of the file, which is the temporary file's."""
    reason = error.strerror
    if reason is None and error.args and isinstance(error.args[0], list) and error.args[0]:
        reason = str(error.args[0][0][-1])  # shutil.Error lists (source, target, reason) tuples
    return reason or str(error)


def _not_unicode(error: UnicodeEncodeError) -> str:
    return f"{error.object[error.start : error.end]!r} is no text; give valid UTF-8"
