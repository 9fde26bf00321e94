"""Taking times so that what else the machine does meets all that are compared alike."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import torch


def taking_turns(jobs: Sequence[Callable[[], None]], *, rounds: int) -> list[list[float]]:
    """Seconds of each job in each round, in which every job runs once; a first round warms up."""
    seconds: list[list[float]] = [[] for _ in jobs]
    for round_ in range(rounds + 1):
        for job, mine in zip(jobs, seconds, strict=True):
            began = time.perf_counter()
            job()
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            if round_:
                mine.append(time.perf_counter() - began)
    return seconds
