"""Cut a study to a budget of hours: fewer seeds and fewer sizes, evenly."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headprune import UsageError


@dataclass(frozen=True)
class Cut:
    """The part of a study that is kept.

    Attributes:
        seeds: the first seeds.
        sizes: the numbers of heads kept, spread evenly over those of the study.
    """

    seeds: tuple[int, ...]
    sizes: tuple[int, ...]


def cut_to_budget(
    budget: float,
    *,
    seeds: Sequence[int],
    sizes: Sequence[int],
    hours: Callable[[Cut], float],
) -> Cut:
    """Leave out seeds and sizes until the study fits the budget.

    Rows of one size stand or fall together, since they are compared with one another. Each step
    leaves out a seed or a size, whichever has kept the larger share so far, a size where both have
    kept the same; the largest and the
    smallest size stay longest.

    Args:
        budget: the hours.
        seeds, sizes: all seeds, and the sizes of all rows.
        hours: function that computes the hours of a part of the study.

    Raises:
        UsageError: one seed of one size takes longer than the budget.
    """
    kept_seeds, kept_sizes = len(seeds), len(set(sizes))
    all_sizes = sorted(set(sizes))
    while True:
        cut = Cut(tuple(seeds[:kept_seeds]), tuple(_spread(all_sizes, kept_sizes)))
        needed = hours(cut)
        if needed <= budget:
            return cut
        if kept_seeds == kept_sizes == 1:
            raise UsageError(
                f"budget: {budget:g} hours, but one seed of one row with its control and baseline "
                f"takes {needed:.1f}"
            )
        fewer_seeds = kept_seeds / len(seeds) > kept_sizes / len(all_sizes)
        if kept_sizes == 1 or (fewer_seeds and kept_seeds > 1):
            kept_seeds -= 1
        else:
            kept_sizes -= 1


def _spread(values: Sequence[int], number: int) -> list[int]:
    """Some of the values, spread evenly from the first to the last; the middle one if it is one."""
    if number == 1:
        return [values[len(values) // 2]]
    return [values[round(i * (len(values) - 1) / (number - 1))] for i in range(number)]


def what_was_cut(cut: Cut, *, seeds: Sequence[int], labels: Sequence[str]) -> str:
    """One line that says what a cut leaves out; `labels` are those of the rows left out."""
    dropped = [str(seed) for seed in seeds if seed not in cut.seeds]
    parts = [f"seeds {', '.join(dropped)}"] if dropped else []
    parts += [f"rows {', '.join(labels)}"] if labels else []
    return "budget: left out " + "; ".join(parts) if parts else "budget: nothing is left out"
