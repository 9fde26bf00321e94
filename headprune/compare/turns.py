"""Taking times so that what else the machine does meets all that are compared alike."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterable, Sequence

import torch


def taking_turns(
    jobs: Sequence[Callable[[], object]],
    *,
    rounds: int,
    warm_up: bool = True,
    watch: Callable[[range], Iterable[int]] = lambda numbers: numbers,
) -> list[list[float]]:
    """Seconds of each job in each round, in which every job runs once.

    Each round begins with the next job, as the memory that one leaves behind is what the next
    one finds.

    Args:
        jobs: what is timed.
        rounds: how often.
        warm_up: run all once before, untimed.
        watch: wraps the rounds; for a progress bar.
    """
    seconds: list[list[float]] = [[] for _ in jobs]
    for round_ in watch(range(rounds + warm_up)):
        for place in range(len(jobs)):
            number = (round_ + place) % len(jobs)
            _wait()
            began = time.perf_counter()
            jobs[number]()
            _wait()
            if round_ or not warm_up:
                seconds[number].append(time.perf_counter() - began)
    return seconds


def speedup(alternative: Sequence[float], mine: Sequence[float]) -> tuple[float, float, float]:
    """How many times as fast as the alternative in the same round: median, lower, upper quartile.

    Args:
        alternative, mine: seconds of the same rounds.
    """
    ratios = [base / own for base, own in zip(alternative, mine, strict=True)]
    if len(ratios) == 1:
        return ratios[0], ratios[0], ratios[0]
    low, middle, high = statistics.quantiles(ratios, n=4, method="inclusive")
    return middle, low, high


def _wait() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()
