"""Comparing scores: how well each says which heads can be pruned."""
