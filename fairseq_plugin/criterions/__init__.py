"""Criteria; ``fairseq_plugin/__init__.py`` imports each, which registers it."""
