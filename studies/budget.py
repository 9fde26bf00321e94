"""Reduction of a study to a budget of hours, by fewer seeds and fewer sizes of plans."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from headprune import UsageError


@dataclass(frozen=True)
class Cut:
    """The seeds and sizes of a study that fit a budget.

    Attributes:
        seeds: the remaining seeds, the first ones of the study.
        sizes: the remaining sizes (numbers of kept heads), spread evenly over those of the study.
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

    Rows of one size are kept or left out together, since they are compared with one another. Each
    step leaves out one seed or one size: a seed if a larger share of the seeds than of the sizes
    remains, else a size. The largest and the smallest size are kept until one size remains.

    Args:
        budget: the number of hours.
        seeds: all seeds.
        sizes: the size of each row.
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
                f"takes {needed:.3g}"
            )
        fewer_seeds = kept_seeds / len(seeds) > kept_sizes / len(all_sizes)
        if kept_sizes == 1 or (fewer_seeds and kept_seeds > 1):
            kept_seeds -= 1
        else:
            kept_sizes -= 1


def _spread(values: Sequence[int], number: int) -> list[int]:
    """A number of values, spread evenly from the first to the last; of one value the middle one."""
    if number == 1:
        return [values[len(values) // 2]]
    return [values[round(i * (len(values) - 1) / (number - 1))] for i in range(number)]


def what_was_cut(cut: Cut, *, seeds: Sequence[int], labels: Sequence[str]) -> str:
    """One line that names the seeds and rows that a cut leaves out.

    Args:
        cut: the cut.
        seeds: all seeds of the study.
        labels: the labels of the rows that are left out.
    """
    dropped_seeds = [str(seed) for seed in seeds if seed not in cut.seeds]
    parts = [f"seeds {', '.join(dropped_seeds)}"] if dropped_seeds else []
    parts += [f"rows {', '.join(labels)}"] if labels else []
    return "budget: left out " + "; ".join(parts) if parts else "budget: nothing is left out"
