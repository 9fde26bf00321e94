"""The registry of scores: each is registered once, with all that the rest of the toolkit needs.

A distribution adds a score by an entry point of the group ``headprune.scores`` that names a
``Score``; a program, by ``register``. Help texts, checks, defaults, comparisons and signatures
follow from it.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from headprune.components import COMPONENTS
from headprune.errors import UsageError
from headprune.registry import Registry

if TYPE_CHECKING:  # they import torch, and the names of scores are needed without it
    from headprune.model import Batch, RunnableModel
    from headprune.scores.ablation import Ablation
    from headprune.scores.head_scores import Values
    from headprune.scores.movement import FineTune

GROUP = "headprune.scores"

SCORING, ABLATION = "scoring", "ablation"
"""The parts of held-out examples: ablation on ``ABLATION`` judges scores on ``SCORING``."""


class Need(StrEnum):
    """An input that a score needs besides the model's weights."""

    DATA = "data"
    LABELS = "labels"
    GRADIENTS = "gradients"
    ATTENTION = "attention weights"


@dataclass(frozen=True, kw_only=True)
class Scoring:
    """A model to score and the data to score it on.

    Attributes:
        model: the model.
        components: those whose units are scored.
        batches: function that returns the batches for one pass. Its argument is the purpose of
            the pass: ``ABLATION`` for the examples that scores are judged on.
        seed: the seed of random scores.
        metric: the metric of ablation.
        ablate: ablation by a metric that needs more than a pass over the batches.
        fine_tune: fine-tunes a copy of the model; None where that is not possible.
        permutations: the largest number of random orders of ``shapley``.
        watch: wraps the steps of a pass, for a progress bar; see ``compute.Watch``.
    """

    model: RunnableModel
    components: Sequence[str]
    batches: Callable[[str], Iterable[Batch]]
    seed: int = 1
    metric: str = "loss"
    ablate: Callable[[Sequence[str]], Mapping[str, Ablation]] | None = None
    fine_tune: FineTune | None = None
    permutations: int = 200
    watch: Callable[[Iterator[Any], int, str], Iterator[Any]] = lambda steps, *_: steps


@dataclass(frozen=True, kw_only=True)
class Computed:
    """The numbers of one score.

    Attributes:
        values: for each component and layer, a number for each unit; None for pruned units.
        p_values: the p-value of each number, if the numbers are tested differences.
        settings: all else that the numbers depend on.
        data: the name of the data, where they are others than those of ``Scoring.batches``.
    """

    values: Values
    p_values: Values = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    data: str | None = None

    def part(self, components: Collection[str]) -> Computed:
        """The numbers of some components only."""
        values, p_values = (
            {name: rows for name, rows in numbers.items() if name in components}
            for numbers in (self.values, self.p_values)
        )
        return replace(self, values=values, p_values=p_values)


Compute = Callable[[Scoring, Sequence[str]], Mapping[str, Computed]]
"""Computes those of its scores that are named, together where they share a pass."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """A score: one number for each unit, by which units are ranked.

    Attributes:
        name: the published name.
        meaning: one line for help texts.
        compute: the function, or its place as ``module:function``, which is imported when needed.
            Scores with the same function are computed by one call.
        keep: the units that the score says to keep: those with ``high`` or with ``low`` numbers.
        needs: see ``Need``; empty for scores of the weights alone.
        components: those that it can score.
        part: the held-out examples that it is computed on.
        by_default: whether it is computed where no score is named.
        normalised: whether each layer is divided by its norm, so that heads and neurons are not on
            one scale.
    """

    name: str
    meaning: str
    compute: str | Compute
    keep: str = "high"
    needs: frozenset[Need] = frozenset()
    components: tuple[str, ...] = COMPONENTS
    part: str = SCORING
    by_default: bool = False
    normalised: bool = False

    def function(self) -> Compute:
        """``compute``, imported."""
        if not isinstance(self.compute, str):
            return self.compute
        module, _, name = self.compute.partition(":")
        function: Compute = getattr(importlib.import_module(module), name)
        return function


def _check(score: Score) -> None:
    if score.keep not in ("high", "low"):
        raise UsageError(f"score {score.name}: keep is {score.keep!r}; give high or low")


SCORES: Registry[Score] = Registry(
    "score", builtin="headprune.scores.builtin", group=GROUP, check=_check
)


def register(score: Score) -> Score:
    """Make a score known by its name.

    Raises:
        UsageError: another score has that name, or ``keep`` is neither ``high`` nor ``low``.
    """
    return SCORES.register(score)


def registered() -> Mapping[str, Score]:
    """All scores by name, in the order of their registration."""
    return SCORES.registered()


def score_named(name: str) -> Score:
    """The score of that name.

    Raises:
        UsageError: there is no such score.
    """
    known = registered()
    if name not in known:
        raise UsageError(f"there is no score {name!r}; there are {', '.join(known)}")
    return known[name]
