"""Differences between rows, seed by seed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

from headprune.claims.claim import Part
from headprune.claims.estimate import balanced, mean_difference
from headprune.claims.runs import Row
from headprune.results.control_tests import Located


@dataclass(frozen=True, kw_only=True)
class Contrast:
    """The difference between two rows, or two groups of rows.

    Attributes:
        differences: for each seed that all rows have, the mean value of the first group less that
            of the second.
        models: the pairs of models that are compared.
    """

    differences: Mapping[int, float]
    models: Sequence[tuple[Located, Located]]

    @property
    def mean(self) -> float:
        """The mean difference over the seeds."""
        return fmean(self.differences.values())


def contrast(first: Sequence[Row], second: Sequence[Row]) -> Contrast | None:
    """Compare the rows of two groups on the seeds that all of them have; None if there is none."""
    seeds = sorted(set.intersection(*(set(row) for row in (*first, *second))))
    if not seeds:
        return None
    return Contrast(
        differences={
            seed: fmean(row[seed][1].value for row in first)
            - fmean(row[seed][1].value for row in second)
            for seed in seeds
        },
        models=[(b[seed], a[seed]) for seed in seeds for a in first for b in second],
    )


def part(name: str, strata: Sequence[Contrast]) -> Part:
    """The mean effect of one contrast or more, each with the same weight.

    Contrasts that lack a seed are not in the mean, and the name says so.
    """
    differences = [each.differences for each in strata]
    estimate = mean_difference(differences)
    _, used = balanced(differences)
    if used and len(used) < len(strata):
        name += f"; {len(used)} of {len(strata)}, as the others lack seeds"
    return Part(
        name=name,
        effect=fmean(each.mean for each in strata) if estimate is None else estimate.effect,
        estimate=estimate,
        models=[pair for each in strata for pair in each.models],
    )
