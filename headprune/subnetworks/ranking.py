"""Scores of heads and MLPs, computed again as fewer of them are kept."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from headprune.files import write_text_atomically
from headprune.folders import scratch_folder
from headprune.plan import PruningPlan
from headprune.scores.head_scores import HeadScores
from headprune.scores.names import keep_of
from headprune.select.score import by_score
from headprune.subnetworks.choices import budget_keeping
from headprune.subnetworks.elements import elements_of, of_kind, plan_of_elements
from headprune.task_model import TaskModel

SCORE_OF_MLPS = "gradient-sublayer"
"""An MLP is ranked by the gradient of the loss with respect to one gate of all its neurons."""


@dataclass(frozen=True, kw_only=True)
class Ranking:
    """The scores of a model's elements after each step.

    Attributes:
        model: the model.
        pool: the heads and neurons that it keeps, of the components that are pruned.
        score: the score that ranks heads.
        seed: the seed of the score ``random``.
        folder: the folder for the scores; those of a step that are there are used again.
    """

    model: TaskModel
    pool: PruningPlan
    score: str
    seed: int
    folder: Path

    def scores(
        self, elements: PruningPlan, kinds: Sequence[str], *, step: int
    ) -> dict[str, HeadScores]:
        """The scores of the elements of each kind, after some steps."""
        return {kind: self._scores(elements, kind, self._path(kind, step)) for kind in kinds}

    def seconds(self, kind: str, *, step: int) -> float:
        """The time that the scores of a kind took after some steps; 0 where it is not known."""
        path = self._path(kind, step).with_suffix(".seconds")
        return float(path.read_text()) if path.is_file() else 0.0

    def _path(self, kind: str, step: int) -> Path:
        return self.folder / f"step{step}-{kind.lower()}.json"

    def whole(self, elements: PruningPlan) -> PruningPlan:
        """The plan of the whole model with these elements."""
        plan = self.model.model.plan.completed(self.pool.units)
        return plan.replaced_by(plan_of_elements(elements, self.pool))

    def _scores(self, elements: PruningPlan, kind: str, path: Path) -> HeadScores:
        name = SCORE_OF_MLPS if kind == "MLPs" else self.score
        components = [*of_kind(elements, kind).units]
        if not path.exists():
            with scratch_folder(self.folder) as work:
                model = self.model
                if elements != elements_of(self.pool):
                    model = model.pruned(self.whole(elements), work)
                started = time.monotonic()
                computed = model.scores([name], seed=self.seed, components=components)[name]
                seconds = time.monotonic() - started
                write_text_atomically(path.with_suffix(".seconds"), f"{seconds:.3f}\n")
                computed.save(path)
        scores = HeadScores.load(path).of_components(components)
        return _of_mlps(scores) if kind == "MLPs" else scores


def size_of_step(elements: PruningPlan, percent: float) -> int:
    """The number of elements that a step prunes, at least one.

    Args:
        elements: elements of one kind.
        percent: the share of those of the unpruned model.
    """
    return max(1, round(elements.total * percent / 100))


def best_elements(
    elements: PruningPlan, scores: HeadScores, number: int, *, at_least: int = 0
) -> PruningPlan:
    """The elements of one kind with the best scores.

    Args:
        number: the number of elements to keep.
        at_least: those that every layer keeps.
    """
    return by_score(
        scores,
        budget=budget_keeping(number, elements.total),
        keep=keep_of(scores.name),
        at_least=at_least,
        within=elements,
    )


def _of_mlps(scores: HeadScores) -> HeadScores:
    """One number for each MLP, which all its neurons have."""
    return replace(
        scores,
        values={
            name: [[next((v for v in units if v is not None), None)] for units in layers]
            for name, layers in scores.values.items()
        },
    )
