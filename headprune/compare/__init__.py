"""Comparison of scores by the quality of the models that are pruned with them."""
