"""Iterative pruning: prune some heads, score again, prune further (Michel et al. 2019, section 4).

A head's score depends on which others are left. Each step prunes an equal share of the unpruned
model's heads; with fine-tuning, the model recovers between the steps.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from headprune.compare.claimed_folder import claim
from headprune.compare.subject import Subject, is_resumed
from headprune.errors import UsageError
from headprune.files import write_text_atomically
from headprune.folders import scratch_folder
from headprune.json_files import json_object, known_values
from headprune.plan import HeadPlan
from headprune.scores.head_scores import HeadScores
from headprune.scores.names import keep_of, require_known
from headprune.select.random import at_random
from headprune.select.score import by_score

_RECORD = "step.json"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of iterative pruning.

    Attributes:
        number: from 1.
        percent: share of the unpruned model's heads that is gone after it.
        plan: the heads kept, as JSON.
        before: the metric right after pruning.
        after: the metric after fine-tuning; None without one.
        resumed: whether the fine-tuning was interrupted and resumed; None where it is not known.
        constant: whether the model of the last figure (``after``, or ``before`` without a
            fine-tuning) gives the same output for every example; None where it is not known.
        constant_before: the same of ``before``.
    """

    number: int
    percent: float
    plan: dict[str, Any]
    before: float
    after: float | None
    resumed: bool | None = None
    constant: bool | None = None
    constant_before: bool | None = None

    @property
    def head_plan(self) -> HeadPlan:
        """The plan, read."""
        return HeadPlan.from_json(json.dumps(self.plan), source=f"step {self.number}")


def iterate(
    subject: Subject,
    *,
    score: str,
    percent: float,
    steps: int,
    folder: Path,
    resume: Callable[[Path], Subject],
    seed: int = 1,
    at_least: int = 1,
    say: Callable[[Step], None] = lambda _: None,
) -> list[Step]:
    """Prune to ``percent`` in so many steps, each by new scores.

    Each step's model stays in ``folder/stepN``, with step.json when it is whole; what is there is
    not done again.

    Args:
        subject: the model to begin with; where it can be fine-tuned, it is after each step.
        score: name of the score.
        percent: share of the unpruned model's heads to prune in the end.
        steps: how many.
        folder: for the models.
        resume: gives the subject of a model that an earlier run left.
        seed: of fine-tuning, and of the score ``random``.
        at_least: heads that every layer keeps.
        say: told of each step that is done.

    Raises:
        UsageError: no step, no such score, more heads than can be pruned, or a folder of another
            run.
        DataError: files in ``folder`` that cannot be read, or numbers that are not finite.
    """
    require_known([score])
    if steps < 1:
        raise UsageError(f"{steps} steps: give one or more")
    start = subject.plan.percent_pruned
    if not start < percent <= 100:
        raise UsageError(
            f"percent {percent:g}: {subject.name} has {start:.1f}% pruned; give more, up to 100"
        )
    # Found out now, not after hours: can so many heads go?
    now = subject.plan
    at_random(now.heads, seed=1, percent=percent, at_least=at_least, within=now)
    claim(
        folder,
        {
            **subject.settings,
            **{"score": score, "percent": percent, "steps": steps},
            **{"seed": seed, "at_least": at_least},
        },
    )
    done = []
    for number in range(1, steps + 1):
        place = folder / f"step{number}"
        record = place / _RECORD
        if not record.exists():
            goal = start + (percent - start) * number / steps
            _step(subject, number, score, goal, place=place, seed=seed, at_least=at_least)
        values = json_object(record)
        source = f"{record}: not a step of iterative pruning"
        step = Step(**known_values(Step, values, source=source))
        subject = resume(place)
        done.append(step)
        say(step)
    return done


def _step(
    subject: Subject,
    number: int,
    score: str,
    percent: float,
    *,
    place: Path,
    seed: int,
    at_least: int,
) -> None:
    """Leave the step's model, and its record, in ``place``."""
    path = place.parent / "scores" / f"step{number}.json"
    if not path.exists():
        subject.scores([score], seed=seed)[score].save(path)
    scores = HeadScores.load(path)
    plan = by_score(scores, percent=percent, keep=keep_of(score), at_least=at_least)
    with scratch_folder(place.parent) as work:
        pruned = subject.pruned(plan, work)
        before = pruned.measure()
        step = Step(
            number=number,
            percent=plan.percent_pruned,
            plan=json.loads(plan.to_json()),
            before=before.value,
            after=None,
            constant=before.constant,
            constant_before=before.constant,
        )
        if not subject.can_finetune:
            # The record first: what lies in the model's folder was copied from the step before.
            _write(step, work)
            shutil.rmtree(place, ignore_errors=True)
            work.rename(place)
            return
    resumed = is_resumed(place)
    after = subject.finetuned(plan, seed=seed, folder=place).measure()
    tuned = replace(step, after=after.value, resumed=resumed, constant=after.constant)
    _write(tuned, place)


def _write(step: Step, folder: Path) -> None:
    write_text_atomically(folder / _RECORD, json.dumps(asdict(step), indent=1) + "\n")
