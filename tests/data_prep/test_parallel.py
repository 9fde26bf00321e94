"""Tests of the parallel map over lines."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from data_prep.lib.parallel import CHUNKS_FOR_ONE, map_lines
from headprune.errors import DataError


def make_reverse() -> Callable[[str], str]:
    return lambda line: line[::-1]


def make_suicide() -> Callable[[str], str]:
    def die(line: str) -> str:
        os.kill(os.getpid(), signal.SIGKILL)
        return line

    return die


@pytest.mark.parametrize("count", [0, 1, 7, 7 * CHUNKS_FOR_ONE, 7 * CHUNKS_FOR_ONE + 1, 500])
@pytest.mark.parametrize("workers", [1, 2])
def test_equals_the_plain_map(count: int, workers: int) -> None:
    lines = [f"line {number}" for number in range(count)]
    mapped = map_lines(make_reverse, lines, workers=workers, size=7)
    assert list(mapped) == [line[::-1] for line in lines]


@pytest.mark.parametrize("workers", [1, 2])
def test_reads_only_a_little_ahead(workers: int) -> None:
    read = 0

    def endless() -> Iterator[str]:
        nonlocal read
        while True:
            read += 1
            yield "line"

    mapped = map_lines(make_reverse, endless(), workers=workers, size=10)
    for _ in range(1000):
        next(mapped)
    mapped.close()  # type: ignore[attr-defined]
    assert read <= 1000 + 10 * (CHUNKS_FOR_ONE + 3 * workers + 2)


def test_a_killed_worker_is_an_error() -> None:
    lines = ["line"] * 100
    with pytest.raises(DataError, match="worker process was killed"):
        list(map_lines(make_suicide, lines, workers=2, size=2))


def make_tell_who() -> Callable[[str], str]:
    return lambda line: str(os.getpid())


def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "parent.py"
    script.write_text(
        "import itertools, signal\n"
        "from test_parallel import make_tell_who\n"
        "from data_prep.lib.parallel import map_lines\n"
        "if __name__ == '__main__':\n"
        "    lines = map_lines(make_tell_who, itertools.repeat('x'), workers=2, size=1)\n"
        "    print(next(lines), flush=True)\n"
        "    signal.pause()\n"
    )
    places = [str(Path(__file__).parent), *sys.path]
    with subprocess.Popen(
        [sys.executable, str(script)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
    ) as parent:
        assert parent.stdout is not None
        worker = int(parent.stdout.readline())
        os.kill(worker, 0)
        parent.kill()
        # The workers have the same standard output: it ends when the last of them has.
        assert parent.stdout.read() == b""
