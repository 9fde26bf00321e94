"""Reporting: scores, result files, tables and figures, each figure with its signature."""
