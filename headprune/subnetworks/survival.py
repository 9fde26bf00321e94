"""Survival of heads and MLPs over models: counts, overlaps, and their tables and heat maps."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from statistics import fmean
from typing import Any

from headprune.plan import PruningPlan
from headprune.report.document import Column, Figure, Table
from headprune.report.heat_map import Panel, draw
from headprune.report.shown import Decimals, PValue
from headprune.results.significance import SIGNIFICANCE_LEVEL, holm
from headprune.results.stats import Spread, spread
from headprune.subnetworks.elements import kinds_of, of_kind, units_of
from headprune.subnetworks.overlap import (
    DRAWS,
    MeanOverlap,
    mean_overlap,
    overlap_of,
    p_value_across,
)
from headprune.wording import counted

P_VALUE = PValue(4)
RATIO = Decimals(3)
RANDOM_SEED = 1
"""The seed of the random sets of tests."""

Survivors = Mapping[str, PruningPlan]
"""The elements that survived in each model, by its label."""

ByModels = Mapping[str, Mapping[str, MeanOverlap]]
"""For each group of models, the mean overlap of each kind."""

Values = dict[str, list[list[float | None]]]
"""For each component, for each layer, a number for each element."""


def survival_counts(survivors: Sequence[PruningPlan]) -> Values:
    """The number of models in which each element survived."""
    kept = [units_of(each) for each in survivors]
    return {
        name: [
            [float(sum((name, layer, unit) in each for each in kept)) for unit in range(units)]
            for layer, units in enumerate(layers)
        ]
        for name, layers in survivors[0].units.items()
    }


def survival_over_tasks(
    by_task: Mapping[str, Sequence[PruningPlan]],
) -> dict[str, list[list[Spread]]]:
    """The number of tasks in which each element survived: its mean and deviation over seeds.

    Args:
        by_task: the survivors of each seed, the same number of seeds for each task.
    """
    by_seed = [survival_counts(seed) for seed in zip(*by_task.values(), strict=True)]
    return {
        name: [
            [
                spread([float(counts[name][layer][unit] or 0) for counts in by_seed])
                for unit in range(len(units))
            ]
            for layer, units in enumerate(layers)
        ]
        for name, layers in by_seed[0].items()
    }


def mean_overlaps(survivors: Sequence[PruningPlan], *, pool: PruningPlan) -> dict[str, MeanOverlap]:
    """The mean overlap of the models' survivors of each kind; empty for one model.

    Args:
        pool: the elements that the models had before they were pruned, by which chance is computed.
    """
    if len(survivors) < 2:
        return {}
    return {
        kind: mean_overlap(
            [units_of(of_kind(each, kind)) for each in survivors],
            of=of_kind(pool, kind).total_kept,
            seed=RANDOM_SEED,
        )
        for kind in kinds_of(survivors[0])
    }


def pairs_table(survivors: Survivors, *, pool: PruningPlan) -> Table:
    """The overlap of each pair of models; p-values are corrected for the number of pairs."""
    rows: list[list[object]] = []
    for kind in kinds_of(next(iter(survivors.values()))):
        kept = {label: of_kind(each, kind) for label, each in survivors.items()}
        total = of_kind(pool, kind).total_kept
        pairs = [
            (first, second, overlap_of(units_of(kept[first]), units_of(kept[second]), of=total))
            for first, second in combinations(kept, 2)
        ]
        adjusted = holm([pair.p_value for _, _, pair in pairs])
        rows += [
            [kind, first, second, kept[first].total_kept, kept[second].total_kept, total]
            + [pair.value, pair.chance, pair.p_value, corrected]
            for (first, second, pair), corrected in zip(pairs, adjusted, strict=True)
        ]
    return Table(
        caption="Overlap of the survivors of two models:",
        columns=[
            *(Column("kind"), Column("first"), Column("second")),
            *(Column("survivors of first"), Column("of second"), Column("elements")),
            *(Column("overlap", RATIO), Column("by chance", RATIO)),
            *(Column("p", P_VALUE), Column("p (Holm)", P_VALUE)),
        ],
        rows=rows,
    )


def corrected_p_values(by_models: ByModels) -> dict[tuple[str, str], float]:
    """The p-values of all mean overlaps of a document by Holm's method, by models and kind."""
    p_values = {
        (models, kind): overlap.p_value
        for models, overlaps in by_models.items()
        for kind, overlap in overlaps.items()
    }
    return dict(zip(p_values, holm([*p_values.values()]), strict=True))


def sentences_on(by_models: ByModels) -> list[str]:
    """A sentence on each mean overlap of a document.

    Args:
        by_models: for each group of models, in words, the mean overlap of each kind.
    """
    corrected = corrected_p_values(by_models)
    return [
        _sentence(kind, by_models[models][kind], models=models, p_value=p_value, of=len(corrected))
        for (models, kind), p_value in corrected.items()
    ]


def _sentence(kind: str, overlap: MeanOverlap, *, models: str, p_value: float, of: int) -> str:
    """A sentence on a mean overlap, with its p-value corrected for the number of overlaps."""
    above = "exceeds" if p_value < SIGNIFICANCE_LEVEL else "is not significantly above"
    correction = f" after Holm's correction for {of} overlaps" if of > 1 else ""
    return (
        f"The survivors of {models} overlap by {overlap.value:.3f} ({kind}; mean of "
        f"{counted(overlap.pairs, 'pair')} of {overlap.sets} models). "
        f"By chance it would be {overlap.chance:.3f}: the overlap {above} chance "
        f"({p_text(p_value)}{correction}, n = {overlap.sets} models)."
    )


def p_text(p_value: float) -> str:
    """``p = 0.0123`` or ``p < 0.0001``."""
    shown = P_VALUE(p_value)
    return f"p {shown}" if shown.startswith("<") else f"p = {shown}"


def overlap_notes() -> list[str]:
    """The definitions of the overlap and of its tests."""
    return [
        "overlap: intersection over union of two models' survivors; 1 for two empty sets. by "
        "chance: its expectation for independent random sets of the same sizes (hypergeometric, "
        "exact). p: the exact probability of an overlap at least as large for such sets. p (Holm): "
        "corrected by Holm's method, for pairs of models for the number of pairs of one kind.",
        "The mean overlap of three or more models is tested against "
        f"{DRAWS:,} draws of independent random sets of the same sizes for all models (seed "
        f"{RANDOM_SEED}), since pairs that share a model are not independent. The sentences above "
        "go by p-values that are corrected by Holm's method for the number of mean overlaps (tasks "
        "and kinds). A small p says that models agree more than random sets, not that a head is "
        "needed.",
    ]


def cross_task_overlaps(
    by_task: Mapping[str, Sequence[PruningPlan]], *, pool: PruningPlan
) -> Table:
    """The mean overlap of models of two tasks, beside chance, with a test.

    P-values are corrected for the number of rows.
    """
    first_models = next(iter(by_task.values()))
    rows: list[list[object]] = []
    p_values: list[float] = []
    for kind in kinds_of(first_models[0]):
        elements = sorted(units_of(of_kind(pool, kind)))
        survivors = {
            task: [units_of(of_kind(plan, kind)) for plan in plans]
            for task, plans in by_task.items()
        }
        for first, second in combinations(by_task, 2):
            pairs = [
                overlap_of(a, b, of=len(elements))
                for a in survivors[first]
                for b in survivors[second]
            ]
            value, chance = fmean(p.value for p in pairs), fmean(p.chance for p in pairs)
            p_value = p_value_across(survivors[first], survivors[second], elements=elements)
            p_values.append(p_value)
            rows.append([kind, first, second, len(pairs), value, chance, p_value])
    return Table(
        caption="Mean overlap of models of two tasks:",
        columns=[
            *(Column("kind"), Column("first"), Column("second"), Column("pairs")),
            *(Column("overlap", RATIO), Column("by chance", RATIO)),
            *(Column("p", P_VALUE), Column("p (Holm)", P_VALUE)),
        ],
        rows=[[*row, each] for row, each in zip(rows, holm(p_values), strict=True)],
    )


def heat_map(
    panels: Mapping[str, Mapping[str, Sequence[Sequence[float | None]]]],
    *,
    name: str,
    title: str,
    label: str,
    most: float,
) -> Figure:
    """A figure of layers by heads (MLPs have one column), one panel for each component.

    Args:
        panels: for each row of panels, the values by component.
        label: the name of the values.
        most: the largest possible value; the smallest is 0.
    """
    drawn: list[Panel] = [
        (f"{component} {row}".strip(), values)
        for row, by_component in panels.items()
        for component, values in by_component.items()
    ]
    columns = len(next(iter(panels.values())))
    return Figure(
        name=name,
        draw=lambda: draw(drawn, title=title, label=label, columns=columns, limits=(0.0, most)),
        alt=f"{label}, layers by heads, one panel for each component. The JSON file has the "
        "values.",
    )


def overlap_values(overlaps: Mapping[str, MeanOverlap]) -> dict[str, dict[str, Any]]:
    """Mean overlaps as JSON values."""
    return {
        kind: {
            "overlap": each.value,
            "chance": each.chance,
            "p_value": each.p_value,
            "models": each.sets,
            "pairs": each.pairs,
        }
        for kind, each in overlaps.items()
    }
