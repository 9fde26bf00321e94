"""Prune elements in steps while the metric stays above a share of the unpruned model's.

Prasanna et al. 2020, section 4. Elements are ranked on the held-out examples of scores, and the
metric that decides is that of the held-out examples of ablation.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headprune.compare.measured import Measured, timed
from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.json_files import json_object, known_values
from headprune.plan import PruningPlan
from headprune.results.metrics import is_low_good
from headprune.scores.names import keep_of, require_known
from headprune.scores.registry import score_named
from headprune.subnetworks.choices import Importance
from headprune.subnetworks.elements import KINDS, elements_of, kinds_of, of_kind
from headprune.subnetworks.ranking import Ranking, best_elements, size_of_step
from headprune.task_model import TaskModel


@dataclass(frozen=True, kw_only=True)
class Rules:
    """The rules of the search.

    Attributes:
        score: the score that ranks heads.
        threshold: the least share of the unpruned model's metric that is left, in percent. Where
            low values are good, the metric is at most the unpruned model's divided by this share.
        step: the share of the unpruned model's elements of each kind that a step prunes, in
            percent; at least one element.

    Raises:
        UsageError: no such score, or a percentage out of range.
    """

    score: str = "gradient"
    threshold: float = 90.0
    step: float = 10.0

    def __post_init__(self) -> None:
        require_known([self.score])
        for name in ("threshold", "step"):
            percent = getattr(self, name)
            if not 0 < percent <= 100:  # NaN fails too
                raise UsageError(f"--{name} {percent:g}: give a percentage above 0, up to 100")

    def require_score_of(self, components: Sequence[str]) -> None:
        """Refuse a score that the heads of some components do not have.

        Raises:
            UsageError: there is such a component.
        """
        lacking = [
            name
            for name in components
            if name in KINDS["heads"] and name not in score_named(self.score).components
        ]
        if lacking:
            raise UsageError(f"{self.score} is no score of {', '.join(lacking)}")


@dataclass(frozen=True, kw_only=True)
class Attempt:
    """A step that was tried.

    Attributes:
        kinds: the kinds of elements that it pruned.
        plan: the elements that it kept, as JSON.
        value: the metric on the held-out examples of ablation.
        accepted: whether that was high enough.
    """

    kinds: list[str]
    plan: dict[str, Any]
    value: float
    accepted: bool

    @property
    def elements(self) -> PruningPlan:
        """The elements that it kept."""
        return PruningPlan.from_json(json.dumps(self.plan), source="attempt")


@dataclass(frozen=True, kw_only=True)
class Search:
    """The outcome of a search.

    Attributes:
        survivors: the elements that survived.
        importance: of all elements in the unpruned model.
        full: the metric of the unpruned model on the held-out examples of ablation.
        value: that of the survivors.
        attempts: the steps that were tried, the first with all elements.
        fingerprint: the fingerprint of the weights that were scored; empty if it is not known.
    """

    survivors: PruningPlan
    importance: Importance
    full: float
    value: float
    attempts: Sequence[Attempt]
    fingerprint: str


def find_survivors(
    model: TaskModel,
    pool: PruningPlan,
    rules: Rules,
    *,
    folder: Path,
    seed: int = 1,
    say: Callable[[str], None] = lambda _: None,
) -> Search:
    """Prune elements in steps while the metric stays above the threshold.

    A step prunes elements of all kinds. After a step below the threshold, heads alone are pruned in
    steps until one is below it, and then MLPs alone. Scores are computed again after each step.
    Every step is a file of ``folder``; an interrupted search resumes there.

    Args:
        model: the fine-tuned model.
        pool: the heads and neurons that it keeps, of the components that are pruned.
        rules: the rules.
        folder: the folder for scores and steps.
        seed: the seed of the score ``random``.
        say: function that is called with a message on each step.

    Raises:
        DataError: the metric of the unpruned model is not above 0, or is not finite.
    """
    ranking = Ranking(
        model=model, pool=pool, score=rules.score, seed=seed, folder=folder / "scores"
    )
    search = _Searcher(ranking=ranking, rules=rules, folder=folder)
    elements = elements_of(pool)
    attempts = [search.attempt(0, elements, [], full=None)]
    full = attempts[0].value
    if not full > 0:
        raise DataError(
            f"{model.model.path}: {model.metric} is {full:.2f} on the held-out examples, so that "
            "no share of it can be kept"
        )
    kinds = kinds_of(elements)
    phases = [kinds, *([kind] for kind in kinds if len(kinds) > 1)]
    accepted = 0
    for phase in phases:
        while pruned := [kind for kind in phase if of_kind(elements, kind).total_kept]:
            attempt = search.attempt(
                len(attempts),
                elements,
                pruned,
                full=full,
                accepted=accepted,
            )
            attempts.append(attempt)
            say(
                f"{attempt.elements.percent_pruned:.1f}% of {' and '.join(kinds)} pruned: "
                f"{model.metric} {attempt.value:.2f} of {full:.2f} on held-out examples"
            )
            if not attempt.accepted:
                break
            elements = attempt.elements
            accepted += 1
    scores = ranking.scores(elements_of(pool), kinds, step=0)
    return Search(
        survivors=elements,
        importance={
            (name, layer, unit): value if keep_of(each.name) == "high" else -value
            for each in scores.values()
            for name, layers in each.values.items()
            for layer, units in enumerate(layers)
            for unit, value in enumerate(units)
            if value is not None
        },
        full=full,
        value=next(each.value for each in reversed(attempts) if each.accepted),
        attempts=attempts,
        fingerprint=next(iter(scores.values())).fingerprint,
    )


@dataclass(frozen=True, kw_only=True)
class _Searcher:
    """Scores, prunes and measures one model."""

    ranking: Ranking
    rules: Rules
    folder: Path

    def attempt(
        self,
        number: int,
        elements: PruningPlan,
        kinds: list[str],
        *,
        full: float | None,
        accepted: int = 0,
    ) -> Attempt:
        """The attempt of this number: prune a step of ``kinds`` from ``elements``.

        Args:
            full: the metric of the unpruned model; None for that model.
        """
        path = self.folder / "attempts" / f"{number}.json"
        model = self.ranking.model
        if not path.exists():
            kept = elements
            for kind, scores in self.ranking.scores(elements, kinds, step=accepted).items():
                of_this = of_kind(elements, kind)
                size = size_of_step(of_this, self.rules.step)
                number_kept = max(0, of_this.total_kept - size)
                kept = kept.replaced_by(best_elements(of_this, scores, number_kept))
            kept = replace(kept, origin=None)
            plan = self.ranking.whole(kept)
            measured = timed(
                lambda: Measured.of(model.measure_held_out(plan)),
                metric=model.metric,
                where=path,
            )
            attempt = Attempt(
                kinds=kinds,
                plan=json.loads(kept.to_json()),
                value=measured.value,
                accepted=full is None or self._is_enough(measured.value, full),
            )
            write_text_atomically(path, json.dumps(asdict(attempt), indent=1) + "\n")
        values = json_object(path)
        return Attempt(**known_values(Attempt, values, source=f"{path}: not a step of a search"))

    def _is_enough(self, value: float, full: float) -> bool:
        """True if a value has the share of the threshold of ``full``.

        Where low values are good, ``full`` may have that share of the value.
        """
        share = self.rules.threshold / 100
        if is_low_good(self.ranking.model.metric):
            return share * value <= full
        return value >= share * full
