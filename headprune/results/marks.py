"""Marks for results that need careful interpretation."""

from __future__ import annotations

from collections.abc import Sequence

from headprune.results.record import Record

CONSTANT = "constant_prediction"
"""The fact of a record's `training` that a model gives one output for every example."""
RESUMED = "resumed"
"""The fact of a record's `training` that it was interrupted and resumed; missing: not known."""

CONSTANT_MARK = "†"


def is_constant(outputs: Sequence[object], references: Sequence[object]) -> bool:
    """Tell if a model gives one output for every example while the references differ."""
    return len(set(outputs)) == 1 and len(set(references)) > 1


def constant_seeds(results: Sequence[Record]) -> int:
    """The number of results of models that give one output for every example."""
    return sum(result.training.get(CONSTANT) is True for result in results)


def constant_note(numbers: Sequence[int]) -> list[str]:
    """The note for a table with marked cells; empty if no cell is marked.

    Args:
        numbers: for each cell, the number of models that give the same output for every example.
    """
    if not any(numbers):
        return []
    return [
        f"{CONSTANT_MARK}: the model of one seed or more gives the same output for every example: "
        "it has learnt nothing, and its figure says nothing about pruning."
    ]
