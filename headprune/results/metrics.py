"""The range and the direction of metrics: of most, high values are good; of some, low ones."""

from __future__ import annotations

import math

OF_LANGUAGE_MODELS = frozenset({"perplexity", "loss"})
"""Metrics of language models, whose files of predictions have a loss for each text."""

LOW_IS_GOOD = OF_LANGUAGE_MODELS | {"mse"}
"""Metrics whose low values are good, and which have no upper end."""

RATIOS = frozenset({"perplexity"})
"""Metrics that figures draw on a logarithmic scale, as models differ by factors."""


_SHARES = frozenset({"accuracy", "token-accuracy", "f1", "macro-f1", "entity-f1", "bleu", "chrf"})
"""Metrics that are not negative; correlations, and metrics of users, may be."""


def range_of(metric: str) -> tuple[float, float]:
    """The lowest and the highest value of a metric, times 100 for shares and correlations.

    >>> range_of("BLEU"), range_of("matthews"), range_of("loss")
    ((0.0, 100.0), (-100.0, 100.0), (0.0, inf))
    """
    if metric in LOW_IS_GOOD:
        return 0.0, math.inf
    return (0.0 if metric.lower() in _SHARES else -100.0), 100.0


def is_low_good(metric: str) -> bool:
    """True if low values of a metric are good."""
    return metric in LOW_IS_GOOD


def gain(metric: str, difference: float) -> float:
    """A difference of two values of a metric, positive where the first is the better one."""
    return -difference if is_low_good(metric) else difference


def direction(metric: str) -> str:
    """The direction of a metric, to be added to headings; empty where high values are good."""
    return ", low is good" if is_low_good(metric) else ""
