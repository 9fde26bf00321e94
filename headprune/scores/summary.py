"""Sentences on scores with tests or intervals, for the terminal."""

from __future__ import annotations

from headprune.components import unit_names
from headprune.plan import PruningPlan
from headprune.scores.head_scores import HeadScores


def significance(scores: HeadScores, level: float = 0.05) -> str:
    """Say how many of the tested differences are significant, and what the test could not find."""
    tested = [
        (drop, p, adjusted)
        for component, rows in scores.values.items()
        for row, p_row, adjusted_row in zip(
            rows,
            scores.p_values[component],
            scores.adjusted_p_values[component],
            strict=True,
        )
        for drop, p, adjusted in zip(row, p_row, adjusted_row, strict=True)
        if drop is not None and p is not None and adjusted is not None
    ]
    metric = scores.settings.get("metric")
    unclear = [drop for drop, p, _ in tested if p >= level]
    different = (
        f"{sum(p < level for _, p, _ in tested)} of {len(tested)} {unit_names(scores.units)}"
    )
    largest = f"; the largest drop that is not significant is {max(unclear, default=0):z.2g}"
    return (
        f"{different} differ at p < {level:g}, "
        f"{sum(adjusted < level for *_, adjusted in tested)} after Holm's correction "
        f"({metric} {scores.settings.get('base'):.2f} without masks"
        f"{largest if unclear else ''})"
    )


def one_is_enough(scores: HeadScores, level: float = 0.05) -> str:
    """Say in how many layers the best head alone does as well as all (Michel et al. 2019)."""
    parts = []
    unclear = []
    for component, rows in scores.values.items():
        best = [
            min((drop, p) for drop, p in zip(row, p_row, strict=True) if drop is not None)
            for row, p_row in zip(rows, scores.p_values[component], strict=True)
            if any(drop is not None for drop in row)
        ]
        enough = [drop for drop, p in best if drop <= 0 or p is None or p >= level]
        parts.append(f"{len(enough)} of {len(best)} layers of {component}")
        unclear += enough
    largest = f" of {max(0.0, max(unclear)):.2g} at most" if unclear else ""
    return (
        f"one head is enough in {', '.join(parts)} (its drop{largest} is not significant at "
        f"p < {level:g}; the best head is chosen on the examples that test it)"
    )


def not_settled_below(scores: HeadScores, threshold: float, plan: PruningPlan) -> tuple[int, int]:
    """Count the pruned units with a confidence interval, and those whose interval reaches beyond.

    Args:
        threshold: units with lower scores were pruned.
        plan: the plan that was made of it.
    """
    pruned = [
        value + half
        for component, rows in scores.settings.get("half_widths", {}).items()
        if component in plan.kept
        for kept, row, half_row in zip(
            plan.kept[component], scores.values[component], rows, strict=True
        )
        for unit, (value, half) in enumerate(zip(row, half_row, strict=True))
        if value is not None and unit not in kept
    ]
    return len(pruned), sum(highest >= threshold for highest in pruned)


def intervals(scores: HeadScores) -> str:
    """Say how far the confidence intervals of Shapley values are from one another and from 0."""
    half_widths = scores.settings.get("half_widths", {})
    pairs = [
        (value, half)
        for component, rows in half_widths.items()
        for row, half_row in zip(scores.values[component], rows, strict=True)
        for value, half in zip(row, half_row, strict=True)
        if value is not None
    ]
    settings = scores.settings
    below, above = (sum(sign * value - half > 0 for value, half in pairs) for sign in (-1.0, 1.0))
    widest = f"; the widest interval is +-{max(half for _, half in pairs):.2g}" if pairs else ""
    return (
        f"{settings['orders']} random orders, {settings['evaluations']} evaluations; with "
        f"{settings['confidence']:.0%} confidence {above} {unit_names(scores.units)} are above 0, "
        f"{below} below"
        f"{widest}"
    )
