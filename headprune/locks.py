"""Locks that keep two commands from working in one folder at the same time."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from headprune.errors import UsageError
from headprune.files import parent_folders, write_errors

NAME = ".headprune.lock"
"""Name of the lock file in a folder."""

_NO_LOCKS = (errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)


@contextmanager
def locked_folder(folder: Path) -> Iterator[int]:
    """Create a folder, and lock it while the block runs.

    The operating system releases the lock when the process ends, even if it is killed. The lock
    file is removed at the end of the block; a new folder is removed too if the block fails and
    leaves it empty.

    Yields:
        The file descriptor of the lock. A child process that inherits it also holds the lock.

    Raises:
        UsageError: another process works in the folder.
        DataError: the folder, or a file in it, cannot be created.
    """
    path = folder / NAME
    with ExitStack() as stack:
        with write_errors(folder):
            stack.enter_context(parent_folders(Path(os.path.realpath(folder)) / NAME))
            descriptor = stack.enter_context(lock_file(path, description=str(folder)))
        yield descriptor


@contextmanager
def lock_file(path: Path, *, description: str) -> Iterator[int]:
    """Create and lock the file ``path``, and remove it at the end.

    Args:
        path: the file.
        description: what the file locks, for messages.

    Raises:
        UsageError: another process holds the lock.
        OSError: the file cannot be created.
    """
    descriptor = _locked(path, description)
    try:
        yield descriptor
    finally:
        # Remove the file before the lock is released. A process that opened it in the meantime
        # notices that it is gone, and creates a new one.
        with suppress(OSError):
            path.unlink()
        os.close(descriptor)


def _locked(path: Path, description: str) -> int:
    while True:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
        try:
            _lock(descriptor, description)
            if _is_still(path, descriptor):
                os.ftruncate(descriptor, 0)
                os.write(descriptor, f"process {os.getpid()} on {os.uname().nodename}".encode())
                return descriptor
        except BaseException:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _lock(descriptor: int, description: str) -> None:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        holder = os.pread(descriptor, 200, 0).decode("utf-8", errors="replace")
        raise UsageError(
            f"{description}: another command is working there ({holder or 'it has just begun'}); "
            "wait until it ends, or choose another place"
        ) from None
    except OSError as error:
        if error.errno not in _NO_LOCKS:
            raise
        print(
            f"warning: {description}: the file system has no locks; run one command at a time "
            "there",
            file=sys.stderr,
        )


def _is_still(path: Path, descriptor: int) -> bool:
    """Check that ``path`` is still the opened file; its former holder may have removed it."""
    try:
        return os.path.samestat(os.stat(path, follow_symlinks=False), os.fstat(descriptor))
    except FileNotFoundError:
        return False
