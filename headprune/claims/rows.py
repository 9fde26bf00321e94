"""Conditions that find the rows of the paper's tables among records."""

from __future__ import annotations

from headprune.claims.runs import Matches, method_in
from headprune.components import HEADS
from headprune.errors import UsageError
from headprune.results.record import Record
from headprune.select import by_location

RANDOM = ("random", "random-by-component")
"""Heads of all components compete, or the same share of each component is drawn."""


def is_share_of_all_heads(record: Record) -> bool:
    """True if the requested percentage is that of all heads, and nothing else is pruned.

    It may also be that of one component, of parameters, or of neurons.
    """
    asked, heads = record.requested_percent, record.plan.part(HEADS)
    if asked is None or heads is None or not record.plan.prunes_heads_alone:
        return False
    # The number of heads is rounded, in each component where each has the percentage.
    rounding = 50 * len(heads.units)
    return abs(heads.percent_pruned - asked) * heads.total <= rounding


def random_percent(percent: float) -> Matches:
    """Heads drawn at random, to a requested percentage of all heads."""
    return lambda record: record.requested_percent == percent and drawn_heads(record)


def drawn_heads(record: Record) -> bool:
    """A percentage of the heads, drawn at random."""
    return method_in(record) in RANDOM and is_share_of_all_heads(record)


def one_head_a_layer(record: Record) -> bool:
    """One head kept in each layer of each component of the Transformer, drawn at random."""
    heads = record.plan.part(HEADS)
    if heads is None or heads.units.keys() != set(HEADS) or not record.plan.prunes_heads_alone:
        return False
    return method_in(record) == "random" and all(
        kept == 1 for layers in heads.counts.values() for kept in layers
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
