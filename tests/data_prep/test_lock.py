"""A preparation waits for another one in the same folder."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import ROOT


@pytest.fixture
def second(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Start a process that waits for this process's lock and does not inherit its file."""
    first = os.open(tmp_path / ".lock", os.O_WRONLY | os.O_CREAT)
    fcntl.flock(first, fcntl.LOCK_EX)
    # inherited by a process of the first preparation that outlives it
    survivor = subprocess.Popen(["cat"], stdin=subprocess.PIPE, pass_fds=[first])
    os.close(first)
    lock = os.open(tmp_path / ".lock", os.O_WRONLY)
    process = subprocess.Popen(
        [sys.executable, "-m", "data_prep.lib.lock", str(lock)],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        pass_fds=[lock],
        stderr=subprocess.PIPE,
        text=True,
    )
    os.close(lock)
    assert process.stderr is not None
    assert process.stderr.readline() == (
        f"note: another preparation is at work in {tmp_path}; waiting for it to end\n"
    )
    assert process.poll() is None
    survivor.kill()
    survivor.wait()
    yield process
    process.stderr.close()


def test_waits_for_processes_of_the_first_and_takes_over(second: subprocess.Popen[str]) -> None:
    assert second.wait() == 0


def test_no_wait_where_nobody_is_at_work(tmp_path: Path) -> None:
    with open(tmp_path / ".lock", "w") as lock:
        done = subprocess.run(
            [sys.executable, "-m", "data_prep.lib.lock", str(lock.fileno())],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            pass_fds=[lock.fileno()],
            capture_output=True,
            text=True,
        )
        assert (done.returncode, done.stderr) == (0, "")
        # held for as long as this process has the file open
        with open(tmp_path / ".lock", "w") as other, pytest.raises(BlockingIOError):
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
