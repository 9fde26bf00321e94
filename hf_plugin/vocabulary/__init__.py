"""Trimming of the vocabularies of Hugging Face models."""
