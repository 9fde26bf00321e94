"""Selectors: each chooses a PruningPlan for a model's shape."""

from headprune.select.location import by_location
from headprune.select.random import at_random
from headprune.select.score import by_score

__all__ = ["at_random", "by_location", "by_score"]
