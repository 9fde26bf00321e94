"""Fine-tuning of pruned models on a task, and their measurement."""
