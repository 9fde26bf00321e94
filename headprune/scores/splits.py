"""The split of a data set that scores are computed on."""

from __future__ import annotations

import sys


def scoring_split(split: str | None, *, default: str, reported_on: str) -> str:
    """The split to compute scores on; warns if results are reported on the same examples.

    Args:
        split: chosen by the user; None for ``default``.
        reported_on: the prefix of the names of the splits that pruned models are measured on.
    """
    split = split or default
    if split.startswith(reported_on):
        print(
            f"warning: scores computed on {split}: do not report results on the same examples",
            file=sys.stderr,
        )
    return split
