"""Lock of a preparation's folder, which keeps two preparations from working in it at once.

The operating system holds the lock until all processes of the first preparation have ended, also
those whose parent was killed. A killed preparation leaves no lock behind.
"""

from __future__ import annotations

import argparse
import fcntl
import sys
from collections.abc import Sequence
from pathlib import Path

from data_prep.lib.cli import run


def wait(descriptor: int, *, folder: Path) -> None:
    """Lock an open file; if another process holds the lock, print a note and wait.

    Args:
        descriptor: the file's descriptor. The lock ends with the last process that has it open.
        folder: the folder, for messages.
    """
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print(
            f"note: another preparation is at work in {folder}; waiting for it to end",
            file=sys.stderr,
            flush=True,
        )
        fcntl.flock(descriptor, fcntl.LOCK_EX)
    except OSError as error:
        # Some network file systems have no locks.
        print(f"note: {folder} cannot be locked ({error.strerror}); going on", file=sys.stderr)


def main(arguments: Sequence[str]) -> None:
    """Lock a file that the calling shell has open, until the shell and its jobs have ended."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.lock", description=__doc__)
    parser.add_argument("descriptor", type=int)
    options = parser.parse_args(arguments)
    wait(options.descriptor, folder=Path.cwd())


if __name__ == "__main__":
    run(main)
