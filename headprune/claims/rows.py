"""Conditions that find the rows of the paper's tables among records."""

from __future__ import annotations

from headprune.claims.runs import Matches, method_in
from headprune.errors import UsageError
from headprune.results.record import Record
from headprune.select import by_location

RANDOM = ("random", "random-by-component")
"""Heads of all components compete, or the same share of each component is drawn."""


def random_percent(percent: float) -> Matches:
    """Heads drawn at random, to a requested percentage of all heads."""
    return lambda record: record.requested_percent == percent and method_in(record) in RANDOM


def one_head_a_layer(record: Record) -> bool:
    """One head kept in each layer of each component, drawn at random."""
    return method_in(record) == "random" and all(
        kept == 1 for layers in record.plan.counts.values() for kept in layers
    )


def location(layers: str) -> Matches:
    """All heads of the named layers pruned, such as `top 3 + bottom 3`."""

    def matches(record: Record) -> bool:
        shape = record.plan.heads
        try:
            return bool(shape) and record.plan == by_location(shape, prune=layers)
        except UsageError:  # the model has fewer layers
            return False

    return matches
