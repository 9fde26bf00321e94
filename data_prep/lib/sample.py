"""Draw a random sample of known size in one pass, with constant use of memory.

Knuth's selection sampling (The Art of Computer Programming, volume 2, algorithm 3.4.2 S) draws
exactly the requested number of items, every set of items with the same probability, in their order.
"""

from __future__ import annotations

import random
from collections.abc import Iterator


def selection(wanted: int, total: int, *, seed: int) -> Iterator[bool]:
    """Draw ``wanted`` of ``total`` items; yield for each item whether it is drawn."""
    rng = random.Random(seed)
    missing = wanted
    for left in range(total, 0, -1):
        taken = rng.random() * left < missing
        missing -= taken
        yield taken
