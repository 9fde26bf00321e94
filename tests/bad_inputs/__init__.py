"""A table of bad inputs: for each command, the mistake and the one line of its message."""
