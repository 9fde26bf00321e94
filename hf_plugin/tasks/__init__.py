"""Descriptions of tasks, and labelled examples from GLUE or from a user's files."""
