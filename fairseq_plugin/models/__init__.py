"""Models; fairseq imports each file of this folder."""
