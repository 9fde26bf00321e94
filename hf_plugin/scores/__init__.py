"""Scores of the heads of Hugging Face models."""
