"""The two parts of held-out examples: one for scores, the other for the ablation that judges them.

No score is computed on an example that it is judged on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from headprune.scores.combination import ATTENTION_GUIDED
from headprune.scores.names import COMBINATION, needs_data, with_combined
from headprune.scores.registry import ABLATION, SCORING, score_named

SUBSET_SEED = 1
"""Seed of random subsets of examples; the same for all runs, so that they use the same examples."""

PARTS = (SCORING, ABLATION)

FEWEST = 2 * len(PARTS)
"""The smallest number of examples that is divided: ablation tests differences over examples."""


def in_parts(examples: Sequence[int]) -> dict[str, Sequence[int]]:
    """Divide examples between the parts: the first half for scores, the second for ablation.

    Fewer than ``FEWEST`` examples are not divided: both parts are all of them.

    Args:
        examples: their numbers, in random order.
    """
    if len(examples) < FEWEST:
        return dict.fromkeys(PARTS, examples)
    middle = (len(examples) + 1) // 2
    return {SCORING: examples[:middle], ABLATION: examples[middle:]}


def parts_of(
    names: Sequence[str], weights: Mapping[str, float] = ATTENTION_GUIDED
) -> tuple[str, ...]:
    """The parts that the scores called ``names`` are computed on.

    Args:
        names: see ``headprune.scores.names``.
        weights: the weights of the scores in the combination.
    """
    computed = {*with_combined(names, weights)} - {COMBINATION}
    needed = {score_named(name).part for name in computed if needs_data(name)}
    return tuple(part for part in PARTS if part in needed)
