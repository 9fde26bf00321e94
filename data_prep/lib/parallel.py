"""Apply a function to lines on several cores, in order and with constant use of memory."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from itertools import chain, islice
from typing import Any, TypeVar

from headprune.errors import DataError

Result = TypeVar("Result")
Chunk = list[str]

LINES_PER_CHUNK = 2000
# Starting a process takes about a second. Up to this number of chunks one process is faster.
CHUNKS_FOR_ONE = 10

_function: Callable[[Chunk], Any] | None = None


def _prepare(make: Callable[[], Callable[[Chunk], Any]]) -> None:
    global _function
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _function = make()


def _end_with_parent() -> None:
    """End this worker when its parent ends; a killed parent cannot stop its workers."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _apply(chunk: Chunk) -> Any:
    assert _function is not None
    return _function(chunk)


def available_cores() -> int:
    """Count the cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chunks(lines: Iterable[str], size: int) -> Iterator[Chunk]:
    """Divide lines into lists of ``size`` lines; the last list may be shorter."""
    iterator = iter(lines)
    while chunk := list(islice(iterator, size)):
        yield chunk


def map_chunks(
    make: Callable[[], Callable[[Chunk], Result]],
    lines: Iterable[str],
    *,
    workers: int,
    size: int | None = None,
) -> Iterator[Result]:
    """Apply a function to chunks of lines, and yield the results in the order of the lines.

    Args:
        make: creates the function, once in every process. It must be picklable (a function of a
            module, or a ``functools.partial`` of one).
        lines: the lines; they are read only so far ahead that all processes have work.
        workers: the number of processes. With 1, or few chunks, this process does all the work.
        size: the number of lines in a chunk (default: `LINES_PER_CHUNK`).

    Raises:
        DataError: a worker process was killed.
    """
    parts = chunks(lines, size or LINES_PER_CHUNK)
    first = list(islice(parts, CHUNKS_FOR_ONE + 1))
    parts = chain(first, parts)
    if workers == 1 or len(first) <= CHUNKS_FOR_ONE:
        function = make()
        yield from (function(part) for part in parts)
        return

    # Processes are spawned, not forked: forking a process with threads (a progress bar has one) can
    # hang.
    with ProcessPoolExecutor(
        workers,
        mp_context=multiprocessing.get_context("spawn"),
        initializer=_prepare,
        initargs=(make,),
    ) as pool:
        waiting: deque[Future[Result]] = deque()
        try:
            for part in parts:
                waiting.append(pool.submit(_apply, part))
                if len(waiting) > 3 * workers:
                    yield waiting.popleft().result()
            while waiting:
                yield waiting.popleft().result()
        except BrokenProcessPool:
            raise DataError(
                "a worker process was killed, perhaps for want of memory; "
                "run the same command again with fewer --workers"
            ) from None
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


class _EachLine:
    """Apply a function of one line to each line of a chunk."""

    def __init__(self, make: Callable[[], Callable[[str], str]]) -> None:
        self.function = make()

    def __call__(self, chunk: Chunk) -> Chunk:
        return [self.function(line) for line in chunk]


class _MakeEachLine:
    def __init__(self, make: Callable[[], Callable[[str], str]]) -> None:
        self.make = make

    def __call__(self) -> _EachLine:
        return _EachLine(self.make)


def map_lines(
    make: Callable[[], Callable[[str], str]],
    lines: Iterable[str],
    *,
    workers: int,
    size: int | None = None,
) -> Iterator[str]:
    """Apply a function to lines, and yield the results in order; see `map_chunks`."""
    for part in map_chunks(_MakeEachLine(make), lines, workers=workers, size=size):
        yield from part
