"""Multiple testing: p-values corrected for the number of tests."""

from __future__ import annotations

from collections.abc import Sequence

SIGNIFICANCE_LEVEL = 0.05
"""Differences with a smaller p-value are called significant."""


def holm(p_values: Sequence[float]) -> list[float]:
    """P-values adjusted by Holm's method (1979), in the same order.

    If those below a level are called significant, the probability of calling any difference
    significant that is none stays below that level, however the tests depend on one another.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(p_values)
    largest = 0.0
    for rank, number in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p_values[number]))
        adjusted[number] = largest
    return adjusted
