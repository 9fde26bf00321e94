"""One score from several, with stated weights."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from headprune.budget import percent_text
from headprune.components import unit_names
from headprune.errors import DataError, UsageError
from headprune.scores.head_scores import SIGNED, HeadScores
from headprune.scores.names import COMBINATION

ATTENTION_GUIDED: Mapping[str, float] = {"entropy": -1.0, "sparsity": 1.0, "distribution": 1.0}
"""Focused, sparse and distinct heads are the important ones (attention-guided pruning)."""


def combined(scores: Mapping[str, HeadScores], weights: Mapping[str, float]) -> HeadScores:
    """The weighted sum of scores, each first brought to mean 0 and standard deviation 1 over all
    units, so that weights compare scores of any scale. A score that is the same for all units adds
    nothing. The signature has the weights, and the settings that no two scores contradict.

    Args:
        scores: scores of one model, by name.
        weights: the weight of each score, by name; below 0 if low numbers are good.

    Raises:
        UsageError: no weight, a weight for a score that is not there, or only zeros.
        DataError: scores of different models.
    """
    for name in weights:
        if name not in scores:
            raise UsageError(
                f"there is no score {name} to combine; there are {', '.join(scores) or 'none'}"
            )
    if not any(weights.values()):
        raise UsageError("give at least one score a weight other than 0")
    parts = [scores[name] for name in weights]
    first = parts[0]
    kinds = unit_names(first.units)
    for part in parts[1:]:
        if part.fingerprint != first.fingerprint:
            raise DataError(f"{first.name} and {part.name} are scores of different models")
        if part.units != first.units:
            raise DataError(f"{first.name} and {part.name} are not scores of the same components")
        if part.scored != first.scored:
            raise DataError(f"{first.name} and {part.name} are not of the same {kinds}")
    standard = [(_standardised(scores[name]), weight) for name, weight in weights.items()]
    values = {
        component: [
            [
                None
                if number is None
                else sum(weight * table[component, layer, head] for table, weight in standard)
                for head, number in enumerate(row)
            ]
            for layer, row in enumerate(rows)
        ]
        for component, rows in first.values.items()
    }
    return replace(
        first,
        name=COMBINATION,
        values=values,
        data=", ".join(dict.fromkeys(part.data for part in parts if part.data)),
        settings={
            "combines": ",".join(f"{name}={percent_text(weights[name])}" for name in weights),
            **_common_settings(parts),
        },
        p_values={},
    )


def _common_settings(parts: Sequence[HeadScores]) -> dict[str, Any]:
    """The settings for signatures that have one value in all the scores that name them."""
    settings = {}
    for name in SIGNED:
        values = [part.settings[name] for part in parts if name in part.settings]
        if values and all(value == values[0] for value in values):
            settings[name] = values[0]
    return settings


def flat(scores: HeadScores) -> dict[tuple[str, int, int], float]:
    """The value of each unit that has one, by component, layer and unit."""
    return {
        (component, layer, head): value
        for component, rows in scores.values.items()
        for layer, row in enumerate(rows)
        for head, value in enumerate(row)
        if value is not None
    }


def _standardised(scores: HeadScores) -> dict[tuple[str, int, int], float]:
    numbers = flat(scores)
    if not numbers:
        raise DataError(f"the model has no {unit_names(scores.units)} to score")
    mean, deviation = statistics.fmean(numbers.values()), statistics.pstdev(numbers.values())
    return {
        place: (number - mean) / deviation if deviation else 0.0
        for place, number in numbers.items()
    }
