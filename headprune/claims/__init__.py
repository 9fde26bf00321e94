"""Claims of papers on pruning, and their outcome on a set of records."""
