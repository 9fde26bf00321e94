"""Modules of the head-pruned Transformer."""
