"""A table of bad inputs: for each command, what users get wrong and the one line they are told."""
