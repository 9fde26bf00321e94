"""A map over lines on several cores: order kept, memory independent of the number of lines."""

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
# Starting processes costs about a second each; below so many chunks one process is quicker.
CHUNKS_FOR_ONE = 10

_function: Callable[[Chunk], Any] | None = None


def _prepare(make: Callable[[], Callable[[Chunk], Any]]) -> None:
    global _function
    threading.Thread(target=_end_with_parent, daemon=True).start()
    _function = make()


def _end_with_parent() -> None:
    """A parent that is killed cannot stop its workers, which wait for its next chunk."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)


def _apply(chunk: Chunk) -> Any:
    assert _function is not None
    return _function(chunk)


def available_cores() -> int:
    """The number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def chunks(lines: Iterable[str], size: int) -> Iterator[Chunk]:
    """The lines in lists of ``size``, the last one shorter."""
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
    """What a function gives for each chunk of lines, in the order of the lines.

    Args:
        make: builds the function, once in every process. Must be picklable (a function of a
            module, or a ``functools.partial`` of one).
        lines: read only as far ahead as keeps the processes busy.
        workers: the number of processes. With 1, or few chunks, all happens in this process.
        size: lines in a chunk (default: `LINES_PER_CHUNK`).

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

    # Processes are spawned, not forked: a fork of a process with threads (a progress bar has one)
    # can hang.
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
    """A function of one line made into a function of a chunk."""

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
    """What a function gives for each line, in order; the arguments are those of `map_chunks`."""
    for part in map_chunks(_MakeEachLine(make), lines, workers=workers, size=size):
        yield from part
