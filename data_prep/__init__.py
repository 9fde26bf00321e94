"""Data preparation: shell scripts from raw text to binarised corpora, and Python behind them."""
