"""Claims of Budhraja et al. 2020 on translation: it does not matter which heads are pruned.

Rows of table 2 come in pairs of one size: the first keeps the heads that earlier papers hold to be
important by their place (bottom layers of self-attention, top layers of encoder-decoder
attention), the second has the same numbers in reverse order and prunes them. Rows of table 3 come
in triples of one size: each prunes one component more than the other two. Pairs and triples of
models of other shapes are found by these properties.

"No preference" is a claim of equivalence. It holds if the mean difference is shown to lie within a
margin; a difference that is not significant shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import fmean
from typing import Any

from headprune.claims.claim import Claim, Measurement, Part, Source
from headprune.claims.contrasts import Contrast, contrast, part
from headprune.claims.region import Region
from headprune.claims.runs import Row, Runs, method_in
from headprune.components import HEADS
from headprune.results.paper import SOURCE, table_rows
from headprune.results.record import Record
from headprune.results.tasks import TRANSLATION

NO_PREFERENCE = 0.5
"""BLEU: the paper calls differences of up to 0.40 within its pairs no preference."""

EQUAL = Region(low=-NO_PREFERENCE, high=NO_PREFERENCE)
"""Differences that are no preference."""


def claims() -> list[Claim]:
    """The claims on heads by location and by component."""
    return [
        Claim(
            name="no-preference-by-location",
            sentence="There is no preference between keeping and pruning the heads that are held "
            "important by their location.",
            source=_paper_pairs(),
            region=EQUAL,
            unit="BLEU",
            effect="BLEU of the row that keeps the important heads less that of the row that "
            "prunes them, mean over the pairs",
            rows="both rows of one pair or more, with the same seeds",
            command="make study STUDY=table2 SETTING=wmt14.en-ru",
            measure=_measure_pairs,
        ),
        Claim(
            name="no-component-preference",
            sentence="No component is consistently better to prune than the others.",
            source=_paper_triples(),
            region=EQUAL,
            unit="BLEU",
            effect="BLEU of the row that prunes a component most less the mean of the other two "
            "rows of its triple, mean over the triples; for each component",
            rows="all three rows of one triple or more, with the same seeds",
            command="make study STUDY=table3 SETTING=wmt14.en-ru",
            measure=_measure_triples,
        ),
    ]


Counts = tuple[tuple[int, ...], ...]
"""Heads kept in each layer, for each component."""


@dataclass(frozen=True, kw_only=True)
class Kept:
    """A row with given numbers of heads.

    Attributes:
        label: the label of the row.
        counts: heads kept in each layer, the same for all seeds; None where only the sums are.
        sums: heads kept in each component.
    """

    label: str
    counts: Counts | None
    sums: tuple[int, ...]
    row: Row

    @property
    def percent(self) -> float:
        """The share of heads that is pruned."""
        return next(iter(self.row.values()))[1].percent


def _kept_rows(runs: Runs) -> list[Kept]:
    """The rows with given numbers of heads in the three components."""
    rows = []
    for label, row in runs.matching(TRANSLATION, _has_given_numbers).items():
        kept = {_counts(record) for _, record in row.values()}
        sums = {tuple(map(sum, counts)) for counts in kept}
        if len(sums) == 1:
            counts = kept.pop() if len(kept) == 1 else None
            rows.append(Kept(label=label, counts=counts, sums=sums.pop(), row=row))
    return sorted(rows, key=lambda kept: kept.percent)


def _has_given_numbers(record: Record) -> bool:
    """Check if heads of all components were drawn at random, but their numbers given.

    Rows that prune a single component, such as those of figure 1, are not of these tables.
    """
    plan = record.plan
    return (
        method_in(record) == "random"
        and record.requested_percent is None
        and tuple(plan.units) == HEADS
        and all(sum(plan.counts[name]) < sum(plan.units[name]) for name in HEADS)
    )


def _counts(record: Record) -> Counts:
    return tuple(tuple(record.plan.counts[name]) for name in HEADS)


def pairs(rows: list[Kept]) -> Iterator[tuple[Kept, Kept]]:
    """The pairs of table 2: a row that keeps the important heads, and one that prunes them."""
    by_counts = {kept.counts: kept for kept in rows if kept.counts is not None}
    for counts, keeping in by_counts.items():
        pruning = by_counts.get(tuple(layers[::-1] for layers in counts))
        if pruning is not None and pruning is not keeping and _keeps_important(counts):
            yield keeping, pruning


def _keeps_important(counts: Counts) -> bool:
    """Check for most heads at the bottom of self-attention and the top of the other."""
    es, ed, ds = counts
    return all(
        list(layers) == sorted(layers, reverse=reverse)
        for layers, reverse in ((es, True), (ed, False), (ds, True))
    )


def triples(rows: list[Kept]) -> Iterator[Mapping[str, Kept]]:
    """The triples of table 3: for each component, the row that prunes it most."""
    of_pairs = {kept.label for pair in pairs(rows) for kept in pair}
    sized: dict[int, dict[str, Kept]] = {}
    for kept in rows:
        least = min(kept.sums)
        if kept.label not in of_pairs and kept.sums.count(least) == 1:
            component = HEADS[kept.sums.index(least)]
            sized.setdefault(sum(kept.sums), {}).setdefault(component, kept)
    for triple in sized.values():
        if len(triple) == len(HEADS):
            yield triple


def _measure_pairs(runs: Runs) -> Measurement | None:
    strata, details = [], []
    for keeping, pruning in pairs(_kept_rows(runs)):
        difference = contrast([keeping.row], [pruning.row])
        if difference is not None:
            strata.append(difference)
            name = f"{keeping.percent:.0f}%: {keeping.label} - {pruning.label}"
            details.append(part(name, [difference]))
    if not strata:
        return None
    count = f"keeping is better in {_positive(strata)} of {len(strata)} pairs"
    return Measurement(parts=[part("keeping - pruning", strata)], details=details, counts=[count])


def _measure_triples(runs: Runs) -> Measurement | None:
    strata: dict[str, list[Contrast]] = {name: [] for name in HEADS}
    details: list[Part] = []
    for triple in triples(_kept_rows(runs)):
        for name in HEADS:
            kept = triple[name]
            others = [other.row for key, other in triple.items() if key != name]
            difference = contrast([kept.row], others)
            if difference is not None:
                strata[name].append(difference)
                compared = f"{kept.percent:.0f}%: {name} pruned most ({kept.label}) - others"
                details.append(part(compared, [difference]))
    if not all(strata.values()):
        return None
    return Measurement(
        parts=[part(f"{name} pruned most - others", each) for name, each in strata.items()],
        details=details,
        counts=[
            f"{name} is better to prune than the others in {_positive(contrasts)} of "
            f"{len(contrasts)} triples"
            for name, contrasts in strata.items()
        ],
    )


def _positive(contrasts: Sequence[Contrast]) -> int:
    return sum(each.mean > 0 for each in contrasts)


def _paper_rows(table: str) -> list[list[dict[str, Any]]]:
    """The rows of each size; the unpruned model left out."""
    pruned = [row for row in table_rows(table) if row["percent"]]
    return [list(rows) for _, rows in groupby(pruned, key=lambda row: row["percent"])]


def _paper_pairs() -> Source:
    differences = [first["bleu"] - second["bleu"] for first, second in _paper_rows("table2")]
    mean, low, high = fmean(differences), min(differences), max(differences)
    return Source(
        paper=SOURCE,
        place="table 2",
        value=f"mean {mean:+z.2f}, from {low:+z.2f} to {high:+z.2f}",
        numbers=[mean],
    )


def _paper_triples() -> Source:
    means = {}
    for name in HEADS:
        differences = []
        for rows in _paper_rows("table3"):
            most_pruned = min(rows, key=lambda row: row[name])
            others = fmean(row["bleu"] for row in rows if row is not most_pruned)
            differences.append(most_pruned["bleu"] - others)
        means[name] = fmean(differences)
    return Source(
        paper=SOURCE,
        place="table 3",
        value=", ".join(f"{name} {mean:+z.2f}" for name, mean in means.items()),
        numbers=list(means.values()),
    )
