"""The steps of the data preparation scripts, one module each.

Every module with a ``main`` can be run on its own: ``python -m data_prep.lib.tokenise --help``.
"""
