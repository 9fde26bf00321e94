"""Names of scores, and what follows from their registration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from headprune.components import HEADS
from headprune.errors import UsageError
from headprune.scores.registry import Need, registered, score_named

GRADIENTS = (
    "gradient",
    "gradient-raw",
    "taylor",
    "taylor-molchanov",
    "fisher",
    "gradient-sublayer",
)
ABLATIONS = ("ablation", "alone")
FINE_TUNED = ("movement",)
"""Scores of a fine-tuning of their own, which has the schedule of those after pruning."""
SHAPLEY = "shapley"
TAKE_LONG = (*ABLATIONS, *FINE_TUNED, SHAPLEY)
"""Scores that take much longer than one pass over the data; they share no pass with others."""
STATISTICS = ("confidence", "entropy", "sparsity", "hoyer", "distribution")
ROLES = ("previous", "same", "next", "rare", "separator")
DIRECTIONS = ("to-head", "from-head")
"""The ends of the names of syntactic roles: the word that a head attends to is the head word of a
dependency, or the dependent."""
COMBINATION = "combination"
"""The score that is computed from others."""


def scores_by_default(components: Sequence[str] = HEADS) -> tuple[str, ...]:
    """The scores that are computed by default.

    They were proposed to choose units by and take no more than two passes over the data.

    Args:
        components: those whose units are scored.
    """
    return tuple(
        name
        for name, score in registered().items()
        if score.by_default and set(components) & set(score.components)
    )


def all_scores() -> tuple[str, ...]:
    """The names of all scores, ``COMBINATION`` last."""
    return (*registered(), COMBINATION)


def with_combined(names: Sequence[str], weights: Iterable[str]) -> tuple[str, ...]:
    """The scores to compute: those named, and those that ``COMBINATION`` is computed from.

    Args:
        names: the scores that are asked for.
        weights: the scores in the combination.
    """
    return tuple(dict.fromkeys((*names, *(weights if COMBINATION in names else ()))))


def needs_data(score: str) -> bool:
    """Check if the score is computed on data."""
    return score == COMBINATION or Need.DATA in score_named(score).needs


def keep_of(score: str) -> str:
    """The direction of a score: ``high`` or ``low`` numbers mark the units to keep.

    Low entropy is kept because such heads attend to few tokens. Low ``alone`` is kept because the
    layer works well with this head only. Scores that are not registered, such as those of
    syntactic roles, are kept where they are high.
    """
    known = registered().get(score)
    return "high" if known is None else known.keep


def require_known(names: Sequence[str]) -> None:
    """Check that the scores exist.

    Raises:
        UsageError: there is no such score.
    """
    known = all_scores()
    for name in names:
        if name not in known:
            raise UsageError(f"there is no score {name!r}; there are {', '.join(known)}")
