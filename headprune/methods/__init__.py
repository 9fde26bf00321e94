"""Methods: ways to turn a model and a budget into a plan."""
