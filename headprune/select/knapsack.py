"""The multiple-choice knapsack: one option of each group, for the least loss under a cost."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

Option = tuple[int, float]
"""The cost and the loss of one option."""


def least_loss(groups: Sequence[Sequence[Option]], *, most: int) -> list[int] | None:
    """Choose one option of each group with the least sum of losses, by dynamic programming.

    Takes time in proportion to the number of options times ``most`` (Kellerer, Pferschy and
    Pisinger 2004, chapter 11).

    Args:
        groups: the options of each group. Costs are whole numbers from 0.
        most: the largest sum of costs.

    Returns:
        The number of the chosen option in each group; None if no choice costs so little.
    """
    if most < 0:
        return None
    losses = np.zeros(most + 1)  # the least loss of the groups so far, for each sum of costs
    choices: list[np.ndarray] = []
    for options in groups:
        best = np.full(most + 1, np.inf)
        chosen = np.zeros(most + 1, dtype=np.int64)
        for number, (cost, loss) in enumerate(options):
            if cost > most:
                continue
            candidates = losses[: most + 1 - cost] + loss
            is_better = candidates < best[cost:]
            best[cost:][is_better] = candidates[is_better]
            chosen[cost:][is_better] = number
        losses = best
        choices.append(chosen)
    if not np.isfinite(losses[most]):
        return None
    remaining, result = most, []
    for options, chosen in zip(reversed(groups), reversed(choices), strict=True):
        result.append(int(chosen[remaining]))
        remaining -= options[result[-1]][0]
    return result[::-1]


def undominated(options: Sequence[Option]) -> list[int]:
    """The numbers of the options for which no other costs no more and loses no more."""
    order = sorted(range(len(options)), key=lambda number: options[number])
    kept: list[int] = []
    for number in order:
        if not kept or options[number][1] < options[kept[-1]][1]:
            kept.append(number)
    return kept
