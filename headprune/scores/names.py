"""The scores there are, and which heads each says to keep."""

from __future__ import annotations

from collections.abc import Sequence

from headprune.errors import UsageError

GRADIENTS = ("gradient", "gradient-raw", "taylor", "taylor-molchanov")
ABLATIONS = ("ablation", "alone")
STATISTICS = ("confidence", "entropy", "sparsity", "hoyer", "distribution")
ROLES = ("previous", "same", "next", "rare", "separator")
WITHOUT_DATA = ("magnitude", "random")
COMBINATION = "combination"

SCORES = (*GRADIENTS, *STATISTICS, *WITHOUT_DATA, *ABLATIONS, *ROLES)
"""Every score that is computed from a model; ``COMBINATION`` is computed from others."""

IMPORTANCE = (*GRADIENTS, *STATISTICS, *WITHOUT_DATA)
"""Those that were proposed to choose heads by and take no more than two passes over the data."""

_KEEP_LOW = ("entropy", "alone")


def keep_of(score: str) -> str:
    """Which heads a score says to keep: those with ``high`` or with ``low`` numbers.

    Heads of low entropy attend to few tokens (they are the focused ones); of the heads left alone
    in their layers the best is the one with the smallest drop. Of all other scores, high is good.
    """
    return "low" if score in _KEEP_LOW else "high"


def require_known(names: Sequence[str]) -> None:
    """Raise a UsageError where there is no such score."""
    for name in names:
        if name not in (*SCORES, COMBINATION):
            raise UsageError(
                f"there is no score {name!r}; there are {', '.join((*SCORES, COMBINATION))}"
            )
