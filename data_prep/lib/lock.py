"""The lock of a preparation's folder, so that two preparations do not work in it at once.

The system holds it for as long as a process of the first preparation lives: one whose parent was
killed is waited for, and one that was killed itself leaves nothing behind to clean up.
"""

from __future__ import annotations

import argparse
import fcntl
import sys
from collections.abc import Sequence
from pathlib import Path

from data_prep.lib.cli import run


def wait(descriptor: int, *, folder: Path) -> None:
    """Lock an open file; where another process holds the lock, say so and wait for its end.

    Args:
        descriptor: of the file. The lock ends when the last process that has it open ends.
        folder: what the message names.
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
    """Lock a file that the calling shell has open, for as long as the shell and its jobs live."""
    parser = argparse.ArgumentParser(prog="python -m data_prep.lib.lock", description=__doc__)
    parser.add_argument("descriptor", type=int)
    options = parser.parse_args(arguments)
    wait(options.descriptor, folder=Path.cwd())


if __name__ == "__main__":
    run(main)
