"""The tasks of GLUE and their data."""
