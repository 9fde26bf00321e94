"""Interleave timed jobs so that background load affects all equally."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence

import torch

Quartiles = tuple[float, float, float]
"""A median, the lower and the upper quartile."""


def taking_turns(
    jobs: Sequence[Callable[[], object]],
    *,
    rounds: int,
    warm_up: bool = True,
    clock: Callable[[], float] = time.perf_counter,
    watch: Callable[[range], Iterable[int]] = lambda numbers: numbers,
) -> list[list[float]]:
    """Seconds of each job in each round, in which every job runs once.

    Each round begins with another job, because a job runs on the memory and caches that the one
    before it left.

    Args:
        jobs: the functions to time.
        rounds: the number of rounds.
        warm_up: run all once before, untimed.
        clock: the seconds since any moment; ``time.process_time`` leaves out the time in which
            other processes had the processor.
        watch: wraps the rounds; for a progress bar.
    """
    seconds: list[list[float]] = [[] for _ in jobs]
    for round_ in watch(range(rounds + warm_up)):
        for place in range(len(jobs)):
            number = (round_ + place) % len(jobs)
            _wait()
            began = clock()
            jobs[number]()
            _wait()
            if round_ or not warm_up:
                seconds[number].append(clock() - began)
    return seconds


def over_plans(speeds: Sequence[Quartiles]) -> Quartiles:
    """The speed of a method: that of its plan, or median and quartiles of its plans' medians."""
    if len(speeds) == 1:
        return speeds[0]
    low, middle, high = statistics.quantiles(
        [median for median, *_ in speeds], n=4, method="inclusive"
    )
    return middle, low, high


def speedup(alternative: Sequence[float], own: Sequence[float]) -> Quartiles:
    """The speed relative to the alternative's in the same round: median and quartiles.

    Args:
        alternative, own: seconds of the same rounds.
    """
    ratios = [other / seconds for other, seconds in zip(alternative, own, strict=True)]
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return middle, low, high


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
