"""A claim of a paper, and its measurement on a set of runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from headprune.claims.estimate import Estimate
from headprune.claims.region import Region
from headprune.claims.runs import Runs
from headprune.results.control_tests import Located


@dataclass(frozen=True, kw_only=True)
class Part:
    """One effect: what is compared, and the estimate over seeds.

    Attributes:
        name: the rows that are compared, such as `25% - control`.
        estimate: None if no interval can be given, as with a single seed.
        needed: what an interval needs, in words.
        effect: the mean effect, which a single seed has too.
        models: for each seed and stratum, the two models that are compared; they can be tested on
            the examples of the test set.
    """

    name: str
    effect: float
    estimate: Estimate | None
    needed: str = "two seeds or more whose results differ"
    models: Sequence[tuple[Located, Located]] = field(default=())

    def named(self, name: str) -> Part:
        """The same effect with another name."""
        return replace(self, name=name)


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """The effects that a claim is on.

    Attributes:
        parts: the effects that decide. The claim holds if all of them lie in the region.
        details: effects that explain, and do not decide.
        counts: sentences with counts, such as `pruning the middle is worse in 14 of 16 cells`.
    """

    parts: Sequence[Part]
    details: Sequence[Part] = field(default=())
    counts: Sequence[str] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Source:
    """The place of a claim.

    Attributes:
        paper: authors and year.
        place: the table, figure or section.
        value: the values of the paper, in words.
        numbers: the effects in the paper, where its tables give them.
    """

    paper: str
    place: str
    value: str
    numbers: Sequence[float] = field(default=())


@dataclass(frozen=True, kw_only=True)
class Claim:
    """One sentence of a paper with the rule that decides on it.

    Attributes:
        name: a short name, for programs.
        sentence: the claim in words.
        source: the place of the claim.
        region: the effects for which the claim holds.
        unit: the unit of the effect.
        effect: the effect in words.
        rows: the rows that are needed, in words.
        command: a command that makes them; empty where this version has none.
        measure: finds the rows and estimates the effects; None if the runs do not have the rows.
        on_scores: True if the claim needs scores of heads.
    """

    name: str
    sentence: str
    source: Source
    region: Region
    unit: str
    effect: str
    rows: str
    command: str
    measure: Callable[[Runs], Measurement | None]
    on_scores: bool = False
