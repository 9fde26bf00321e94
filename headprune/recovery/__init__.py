"""Recovery: what is done to a model after pruning."""
