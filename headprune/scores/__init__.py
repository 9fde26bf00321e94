"""Scores: one number a head, by which heads can be ranked."""

from headprune.scores.head_scores import HeadScores

__all__ = ["HeadScores"]
