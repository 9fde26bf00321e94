"""The steps that the data preparation scripts put in order, one module each.

Every module with a ``main`` can be run on its own: ``python -m data_prep.lib.tokenise --help``.
"""
