"""What makes translating fast, with the same hypotheses and scores."""
