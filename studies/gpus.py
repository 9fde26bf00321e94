"""Run a command on GPUs of this machine that no other job of a study has.

    python -P studies/gpus.py NUMBER COMMAND...

Each GPU has a lock file. The operating system gives a lock back when the command ends, however it
ends, so there is none to remove after a crash. The command sees only its GPUs, by
CUDA_VISIBLE_DEVICES. On a machine without GPUs it runs as it is. On a cluster the scheduler does
the same for its jobs.
"""

from __future__ import annotations

import fcntl
import os
import random
import re
import sys
import tempfile
import time
from collections.abc import Sequence
from itertools import takewhile
from pathlib import Path

from headprune.errors import HeadpruneError, UsageError
from studies.plugin import running

_VARIABLE = "CUDA_VISIBLE_DEVICES"


def devices() -> list[str]:
    """The GPUs that jobs may use, as CUDA_VISIBLE_DEVICES names them."""
    given = os.environ.get(_VARIABLE)
    if given is not None:
        names = [name.strip() for name in given.split(",") if name.strip()]
        # As in CUDA, a negative number, such as -1 for no GPU, ends the list.
        return list(takewhile(lambda name: not name.startswith("-"), names))
    import torch

    return [str(number) for number in range(torch.cuda.device_count())]


def lock_folder() -> Path:
    """The folder with the locks of this user, which all studies on this machine share.

    In a job of Slurm GPUs are numbered anew, so each such job has a folder of its own.
    """
    job = os.environ.get("SLURM_JOB_ID", "")
    name = "-".join(["headprune-gpus", str(os.getuid()), *([job] if job else [])])
    return Path(tempfile.gettempdir()) / name


def take(number: int, *, of: Sequence[str], locks: Path) -> dict[str, int] | None:
    """Lock GPUs for this process and the programs that it becomes.

    Args:
        number: the number of GPUs.
        of: their names.
        locks: the folder of the lock files, which is created.

    Returns:
        The open lock file of each GPU; None, with no lock taken, if too few are free.
    """
    locks.mkdir(mode=0o700, parents=True, exist_ok=True)
    taken: dict[str, int] = {}
    for name in of:
        path = locks / f"{re.sub('[^A-Za-z0-9]', '-', name)}.lock"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(descriptor)
            continue
        os.set_inheritable(descriptor, True)
        taken[name] = descriptor
        if len(taken) == number:
            return taken
    for descriptor in taken.values():
        os.close(descriptor)
    return None


def wait_for(number: int, *, of: Sequence[str], locks: Path) -> dict[str, int]:
    """Lock GPUs, after a wait for other jobs if necessary.

    Returns:
        The open lock file of each GPU.

    Raises:
        UsageError: the machine has fewer GPUs.
    """
    if number > len(of):
        raise UsageError(
            f"this job asks for {number} GPUs, and there are {len(of)} ({_VARIABLE} is "
            f"{os.environ.get(_VARIABLE, 'not set')}); give the study fewer `gpus`"
        )
    has_notice = False
    while (taken := take(number, of=of, locks=locks)) is None:
        if not has_notice:
            print(f"note: waits for {number} of {len(of)} GPUs", file=sys.stderr, flush=True)
            has_notice = True
        # Of two jobs that each have a part of the GPUs, one is the first to try again.
        time.sleep(random.uniform(0.5, 2))
    return taken


def main(arguments: Sequence[str]) -> None:
    """Become the command, with its GPUs."""
    number, *command = arguments
    if available := devices():
        taken = wait_for(int(number), of=available, locks=lock_folder())
        os.environ[_VARIABLE] = ",".join(taken)
        os.environ[running.LOCKS] = ",".join(map(str, taken.values()))
    os.execvp(command[0], command)


if __name__ == "__main__":
    try:
        main(sys.argv[1:])
    except HeadpruneError as error:
        sys.exit(f"error: {error}")
