"""Scores of the heads of fairseq models."""
