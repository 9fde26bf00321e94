"""Sub-networks that survive pruning, over seeds and tasks (Prasanna et al. 2020)."""
