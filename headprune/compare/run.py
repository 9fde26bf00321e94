"""The comparison: scores, percentages and seeds, each measured before and after fine-tuning.

Every number is written as soon as it is there, so that a comparison that was killed goes on where
it was. Plans that are the same, by whatever score, are measured once.
"""

from __future__ import annotations

import hashlib
import json
import math
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from headprune.compare.claimed_folder import claim
from headprune.compare.rows import CONTROL, Row
from headprune.compare.subject import Measurement, Subject, is_resumed
from headprune.compare.turns import speedup
from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.folders import scratch_folder
from headprune.json_files import json_object, known_values
from headprune.plan import HeadPlan
from headprune.scores.head_scores import HeadScores
from headprune.scores.names import ABLATIONS, ROLES, WITHOUT_DATA, keep_of, require_known
from headprune.scores.roles import roles_of
from headprune.select.random import at_random
from headprune.select.score import by_score

Say = Callable[[str, int, int], None]
"""Takes what is being done, how many steps are done and how many there are."""

ROUNDS = 7
"""How often each model's time is taken."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """All that was measured.

    Attributes:
        base: the metric of the model as it was given.
        component: the one that was pruned; None for all.
        scores: by name.
        rows: see ``Row``.
        speedups: for each percentage, the median of the unpruned model's time over that of the
            model with random heads, and the quartiles; empty where time was not taken.
        settings: of the subject.
        constant: whether the model as it was given gives the same output for every example; None
            where it is not known.
    """

    metric: str
    data_name: str
    finetune_name: str
    component: str | None
    base: float
    scores: dict[str, HeadScores]
    rows: tuple[Row, ...]
    speedups: dict[float, tuple[float, float, float]]
    settings: dict[str, Any]
    constant: bool | None = None


def compare(
    subject: Subject,
    *,
    scores: Sequence[str],
    percents: Sequence[float],
    seeds: Sequence[int],
    folder: Path,
    random_seeds: Sequence[int] | None = None,
    tuned: Sequence[str] | None = None,
    at_least: int = 1,
    component: str | None = None,
    rounds: int = ROUNDS,
    say: Say = lambda *_: None,
) -> Comparison:
    """Compare scores on one model.

    Args:
        subject: the model, unpruned or not.
        scores: names; ``random`` is always there too, as is ``ablation``, by which the others are
            judged.
        percents: shares of all heads to prune.
        seeds: of fine-tunings and random draws.
        folder: for the numbers.
        random_seeds: of random draws, if others than ``seeds``; the more there are, the smaller
            the differences to random choice that can be found.
        tuned: fine-tune the models of these scores (and of ``random``) only; default: of all.
        at_least: heads that every layer keeps, by any score.
        component: prune this component alone; the percentages are of its heads then. Scores that
            other components do not have can be compared only so.
        rounds: how often times are taken; 0 for not at all.
        say: told of each step.

    Raises:
        UsageError: no such score, a percentage that cannot be had, or a folder of another
            comparison.
        DataError: numbers that are not finite, or files in ``folder`` that cannot be read.
    """
    require_known(scores)
    for name in tuned or ():
        if name not in (*scores, "random"):
            raise UsageError(f"{name} is to be fine-tuned, but is not among the scores compared")
    tuned = [*(scores if tuned is None else tuned), CONTROL, "random"]
    names = list(dict.fromkeys([*scores, "ablation", "random"]))
    full = subject.plan
    if component is not None and component not in full.heads:
        raise UsageError(f"{subject.name} has no {component}; it has {', '.join(full.heads)}")
    _require_possible(full, scores, percents, component=component, at_least=at_least)
    of_one = {} if component is None else {"component": component}
    claim(folder, {**subject.settings, "at_least": at_least, **of_one})
    store = _Store(folder, subject)
    base = store.before(full)  # first, as it shows whether there are data to measure on
    found = store.scores(names)
    plans: list[tuple[str, float, int, HeadPlan]] = []
    choose = partial(_plan, full=full, at_least=at_least, component=component)
    if subject.can_finetune:
        plans += [(CONTROL, 0.0, seed, full) for seed in seeds]
    compared = [name for name in names if name in (*scores, "random")]
    for percent in percents:
        for name in compared:
            drawn = random_seeds if name == "random" and random_seeds is not None else seeds
            for seed in drawn:
                plans.append((name, percent, seed, choose(found[name], percent, seed)))
    rows = []
    for number, (name, percent, seed, plan) in enumerate(plans):
        say(f"{name} {percent:g}% seed {seed}", number, len(plans))
        cost = subject.cost(plan)
        tuned_here = subject.can_finetune and name in tuned
        before = store.before(plan)
        after = store.after(plan, seed) if tuned_here else None
        rows.append(
            Row(
                score=name,
                percent=percent,
                pruned=plan.percent_pruned,
                seed=seed,
                plan=json.loads(plan.to_json()),
                before=before.value,
                after=None if after is None else after.value,
                resumed=None if after is None else after.resumed,
                constant=(after or before).constant,
                constant_before=before.constant,
                parameters=cost.parameters,
                flops=cost.flops,
            )
        )
    say("time", len(plans), len(plans))
    speedups = {}
    if rounds:
        timed = [choose(found["random"], percent, seeds[0]) for percent in percents]
        speedups = dict(zip(percents, store.speedups([full, *timed], rounds), strict=True))
    return Comparison(
        metric=subject.metric,
        data_name=subject.data_name,
        finetune_name=subject.finetune_name,
        component=component,
        base=base.value,
        scores=found,
        rows=tuple(rows),
        speedups=speedups,
        settings=dict(subject.settings),
        constant=base.constant,
    )


def _require_possible(
    full: HeadPlan,
    scores: Sequence[str],
    percents: Sequence[float],
    *,
    component: str | None,
    at_least: int,
) -> None:
    """Raise a UsageError for what would be found out after hours."""
    pruned = [component] if component else list(full.heads)
    for name in scores:
        lacking = [c for c in pruned if name in ROLES and name not in roles_of(c)]
        if lacking:
            raise UsageError(
                f"{name} is no score of {', '.join(lacking)}; compare it with --component"
            )
    part = HeadPlan(
        kept={c: full.kept[c] for c in pruned}, heads={c: full.heads[c] for c in pruned}
    )
    for percent in percents:
        at_random(part.heads, seed=1, percent=percent, at_least=at_least, within=part)


def _plan(
    scores: HeadScores,
    percent: float,
    seed: int,
    *,
    full: HeadPlan,
    at_least: int,
    component: str | None,
) -> HeadPlan:
    if component is not None:
        part = scores.of_component(component)
        chosen = _plan(part, percent, seed, full=full, at_least=at_least, component=None)
        return HeadPlan(kept={**full.kept, component: chosen.kept[component]}, heads=full.heads)
    if scores.name == "random":
        return at_random(
            scores.heads, seed=seed, percent=percent, at_least=at_least, within=scores.scored
        )
    return by_score(scores, percent=percent, keep=keep_of(scores.name), at_least=at_least)


class _Store:
    """The numbers in a comparison's folder; those that are not there are measured."""

    def __init__(self, folder: Path, subject: Subject) -> None:
        self.folder = folder
        self.subject = subject

    def scores(self, names: Sequence[str]) -> dict[str, HeadScores]:
        """Scores by name; those that need no data are made anew, as they cost nothing."""
        paths = {name: self.folder / "scores" / f"{name}.json" for name in names}
        missing = [n for n, path in paths.items() if n in WITHOUT_DATA or not path.exists()]
        # Together what takes one pass over the data, by itself what takes long.
        quick = [name for name in missing if name not in ABLATIONS]
        for group in (quick, *([name] for name in missing if name in ABLATIONS)):
            for name, made in self.subject.scores(group, seed=1).items():
                made.save(paths[name])
        return {name: HeadScores.load(path) for name, path in paths.items()}

    def before(self, plan: HeadPlan) -> _Number:
        """The metric right after pruning."""

        def measure() -> _Number:
            if plan == self.subject.plan:
                return _Number.of(self.subject.measure())
            with scratch_folder(self.folder) as work:
                return _Number.of(self.subject.pruned(plan, work).measure())

        return self._number(self.folder / "before" / f"{_name(plan)}.json", measure)

    def after(self, plan: HeadPlan, seed: int) -> _Number:
        """The metric after fine-tuning."""
        folder = self.folder / "after" / f"{_name(plan)}-seed{seed}"

        def measure() -> _Number:
            resumed = is_resumed(folder)
            tuned = self.subject.finetuned(plan, seed=seed, folder=folder)
            return _Number.of(tuned.measure(), resumed=resumed)

        number = self._number(folder.with_suffix(".json"), measure)
        shutil.rmtree(folder, ignore_errors=True)  # after the number is safe
        return number

    def speedups(self, plans: Sequence[HeadPlan], rounds: int) -> list[tuple[float, float, float]]:
        """How many times faster than the first plan the others are: median and quartiles."""
        path = self.folder / "seconds.json"
        wanted = [_name(plan) for plan in plans]
        seconds = _seconds(path, plans=wanted, rounds=rounds) if path.exists() else None
        if seconds is None:
            seconds = self.subject.seconds(plans, rounds=rounds)
            content = {"plans": wanted, "seconds": seconds}
            write_text_atomically(path, json.dumps(content) + "\n")
        first, *others = seconds
        return [speedup(first, mine) for mine in others]

    def _number(self, path: Path, measure: Callable[[], _Number]) -> _Number:
        if not path.exists():
            number = measure()
            if not math.isfinite(number.value):
                raise DataError(f"{path}: {self.subject.metric} is {number.value}, not finite")
            content = {name: it for name, it in asdict(number).items() if it is not None}
            write_text_atomically(path, json.dumps(content) + "\n")
        values = json_object(path)
        return _Number(**known_values(_Number, values, source=str(path)))


@dataclass(frozen=True)
class _Number:
    """A file with one measured value.

    Attributes:
        value: of the metric.
        resumed: whether the fine-tuning before it was interrupted and resumed; None where there
            was none, or it is not known.
        constant: of ``Measurement``.
    """

    value: float
    resumed: bool | None = None
    constant: bool | None = None

    @classmethod
    def of(cls, measured: Measurement, *, resumed: bool | None = None) -> _Number:
        """The content of the file for a measurement."""
        return cls(measured.value, resumed, measured.constant)


@dataclass(frozen=True)
class _Times:
    """The file of times: seconds of each plan in each round."""

    plans: list[str]
    seconds: list[list[float]]


def _seconds(path: Path, *, plans: list[str], rounds: int) -> list[list[float]] | None:
    """The times in a file; None if they are of other plans or of another number of rounds."""
    values = json_object(path)
    times = _Times(**known_values(_Times, values, source=str(path)))
    if times.plans != plans or [len(each) for each in times.seconds] != [rounds] * len(plans):
        return None
    if any(second <= 0 for each in times.seconds for second in each):
        raise DataError(f"{path}: a time that is not above 0")
    return times.seconds


def _name(plan: HeadPlan) -> str:
    return hashlib.sha256(plan.to_json().encode()).hexdigest()[:16]
