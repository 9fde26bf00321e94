"""Fine-tuning pruned models on GLUE: the command ``headprune glue``."""
