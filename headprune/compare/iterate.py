"""Iterative pruning: prune some units, score again, prune further (Michel et al. 2019, section 4).

A unit's score depends on which others are left. Each step prunes an equal share of the unpruned
model's units. Between the steps the model may recover: by fine-tuning, by distillation, or by
re-fitting.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headprune.budget import Budget
from headprune.compare.claimed_folder import claim
from headprune.compare.competition import Competition, component_settings
from headprune.compare.interruptions import is_resumed
from headprune.compare.measured import Measured, timed
from headprune.compare.records import KIND_AFTER, record_of
from headprune.cost import known_flops
from headprune.errors import UsageError
from headprune.files import write_text_atomically
from headprune.folders import scratch_folder
from headprune.json_files import json_object, known_values
from headprune.plan import HeadPlan, PruningPlan
from headprune.recovery.distillation import Distillation
from headprune.recovery.kinds import Recovery, refit_name
from headprune.recovery.variant import Variant
from headprune.results.marks import CONSTANT, RESUMED
from headprune.scores.head_scores import HeadScores
from headprune.scores.names import keep_of, require_known
from headprune.scores.partial import partial_results
from headprune.select.score import by_score
from headprune.select.steps import budgets_of_steps, percent_of_budget
from headprune.task_model import TaskModel, require_scores

if TYPE_CHECKING:
    from headprune.recovery.refit import Target

_RECORD = "step.json"


@dataclass(frozen=True, kw_only=True)
class Step:
    """One step of iterative pruning.

    Attributes:
        number: from 1.
        percent: share of the unpruned model's units (parameters, FLOPs) that is gone after it.
        plan: the units kept, as JSON.
        before: the metric right after pruning.
        after: the metric after the recovery; None without one.
        recovery: the name of the recovery of ``after``; None without one.
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
    recovery: str | None = None

    @property
    def head_plan(self) -> HeadPlan:
        """The plan, read."""
        return HeadPlan.from_json(json.dumps(self.plan), source=f"step {self.number}")


def iterate(
    model: TaskModel,
    *,
    score: str,
    percent: float,
    steps: int,
    folder: Path,
    resume: Callable[[Path], TaskModel],
    seed: int = 1,
    at_least: int = 1,
    components: Sequence[str] | None = None,
    measure: str = "units",
    recovery: Recovery | None = None,
    say: Callable[[Step], None] = lambda _: None,
) -> list[Step]:
    """Prune to ``percent`` in several steps, and compute new scores for each step.

    Each step's model is kept in ``folder/stepN``, with a step.json once it is complete. Complete
    steps are not repeated. ``folder/records`` gets a record of each measurement.

    Args:
        model: the model to begin with.
        score: name of the score.
        percent: share of the unpruned model's units of ``components`` to prune in the end.
        steps: the number of steps.
        folder: the folder for the models.
        resume: function that opens a model of an earlier run again.
        seed: the seed of fine-tuning, and of the score ``random``.
        at_least: units that every layer keeps.
        components: prune units of these components only. Default: all attention.
        measure: the quantity that ``percent`` is a share of; see ``Budget``.
        recovery: what is done after each step. Default: fine-tuning where ``model`` can be
            fine-tuned, else nothing.
        say: function that is called with each step once it has ended.

    Raises:
        UsageError: no step, no such score, more units than can be pruned, a recovery that cannot
            be done, or a folder of another run.
        DataError: files in ``folder`` that cannot be read, or numbers that are not finite.
    """
    require_known([score])
    if steps < 1:
        raise UsageError(f"{steps} steps: give one or more")
    usual = Recovery.FINETUNE if model.can_finetune else Recovery.NONE
    recovery = recovery or usual
    _require_recovery(model, recovery)
    competition = Competition.of(model.model, components, measure=measure, at_least=at_least)
    start = percent_of_budget(competition.pool, of=measure, cost=competition.cost)
    if not start < percent <= 100:
        raise UsageError(
            f"percent {percent:g}: {model.model.path} has {start:.1f}% pruned; give more, up to 100"
        )
    # Now, not after hours.
    competition.require_possible({} if components is None else {score: score}, [percent])
    require_scores(model, [score])
    claim(
        folder,
        {
            **model.settings,
            **{"score": score, "percent": percent, "steps": steps},
            **{"seed": seed, "at_least": at_least},
            **component_settings(components),
            **({} if measure == "units" else {"measure": measure}),
            **({} if recovery is usual else {"recovery": str(recovery)}),
        },
    )
    writer = _Writer(
        competition=competition,
        score=score,
        steps=steps,
        seed=seed,
        source=str(model.model.path),
        recovery=recovery,
        teacher=model.settings.get("fingerprint"),
    )
    goal = Budget(percent, measure)
    complete = []
    for number, budget in enumerate(budgets_of_steps(start, goal, steps=steps), 1):
        step_folder = folder / f"step{number}"
        record = step_folder / _RECORD
        if not record.exists():
            writer.write(model, number, budget, folder=step_folder)
        values = json_object(record)
        source = f"{record}: not a step of iterative pruning"
        step = Step(**known_values(Step, values, source=source))
        model = resume(step_folder)
        complete.append(step)
        say(step)
    return complete


def _require_recovery(model: TaskModel, recovery: Recovery) -> None:
    if recovery is Recovery.SCRATCH:
        raise UsageError(
            "--recovery scratch: a model that is trained from random weights after each step has "
            "no use for the steps before; give finetune, distill, refit or none"
        )
    if recovery is Recovery.DISTILL_SEQUENCES:
        raise UsageError(f"--recovery {recovery}: of `headprune compare` alone; take distill")
    if recovery.trains and not model.can_finetune:
        raise UsageError(f"--recovery {recovery}: give --epochs, or --finetune for a checkpoint")
    if model.can_finetune and not recovery.trains:
        raise UsageError(f"--recovery {recovery}: give no epochs or flags for fine-tuning with it")


@dataclass(frozen=True, kw_only=True)
class _Writer:
    """Prunes, measures and writes the model of a step.

    Attributes:
        source: the model to begin with, as records name it.
        teacher: the fingerprint of its weights; None where it is not known.
    """

    competition: Competition
    score: str
    steps: int
    seed: int
    source: str
    recovery: Recovery
    teacher: str | None

    def write(self, model: TaskModel, number: int, budget: Budget, *, folder: Path) -> None:
        """Write the step's model and step.json to ``folder``, and its records beside it."""
        part = self._choose(model, number, budget, folder=folder)
        plan = model.model.plan.replaced_by(part).without_units_of_dropped_layers()
        name = f"step {number}"
        before = timed(
            lambda: Measured.of(model.measure(plan)),
            metric=model.metric,
            where=name,
            model=f"{name}, right after pruning",
        )
        self._save_record(model, number, plan, before, kind="before-finetune", folder=folder)
        step = Step(
            number=number,
            percent=percent_of_budget(part, of=budget.of, cost=self.competition.cost),
            plan=json.loads(plan.to_json()),
            before=before.value,
            after=None,
            constant=before.constant,
            constant_before=before.constant,
        )
        if self.recovery is Recovery.NONE:
            with scratch_folder(folder.parent) as work:
                model.pruned(plan, work)
                _replace(folder, work, step)
            return
        resumed = is_resumed(folder) if self.recovery.trains else None

        def finetune_and_measure() -> Measured:
            variant = Variant(distilled=self.recovery is Recovery.DISTILL)
            tuned = model.finetuned(plan, seed=self.seed, folder=folder, variant=variant)
            return Measured.of(tuned.measure(), resumed=resumed)

        def recovered(measure: Callable[[], Measured]) -> Step:
            after = timed(
                measure,
                metric=model.metric,
                where=name,
                model=f"{name}, {self.recovery.moment}",
            )
            kind = KIND_AFTER[self.recovery]
            self._save_record(model, number, plan, after, kind=kind, folder=folder)
            return replace(
                step,
                after=after.value,
                resumed=resumed,
                constant=after.constant,
                recovery=str(self.recovery),
            )

        if self.recovery.trains:
            _write(recovered(finetune_and_measure), folder)
            return
        target = self.recovery.refit_target or "output"
        with scratch_folder(folder.parent) as work:
            done = recovered(lambda: _refitted(model, plan, work, target=target))
            _replace(folder, work, done)

    def _choose(
        self, model: TaskModel, number: int, budget: Budget, *, folder: Path
    ) -> PruningPlan:
        """The units that the step keeps, of the components that are pruned."""
        path = folder.parent / "scores" / f"step{number}.json"
        components = self.competition.components
        if not path.exists():
            with partial_results(path.parent):
                scores = model.scores([self.score], seed=self.seed, components=components)
                scores[self.score].save(path)
        return by_score(
            HeadScores.load(path).of_components(components),
            budget=budget,
            cost=self.competition.cost,
            keep=keep_of(self.score),
            at_least=self.competition.at_least,
        )

    def _trainings(self, number: int, *, kind: str) -> int:
        """The number of fine-tunings of the model of a step, before or after its own."""
        if not self.recovery.trains:
            return 0
        return number - 1 if kind == "before-finetune" else number

    def _save_record(
        self,
        model: TaskModel,
        number: int,
        plan: PruningPlan,
        measured: Measured,
        *,
        kind: str,
        folder: Path,
    ) -> None:
        facts = {
            "parameters": model.model.parameters_with(plan),
            "flops": known_flops(plan, model.model.sizes),
            RESUMED: measured.resumed,
            CONSTANT: measured.constant,
        }
        record = record_of(
            model,
            plan,
            model=self.source,
            value=measured.value,
            kind=kind,
            row=f"{self.score}, step {number} of {self.steps}",
            method=self.score,
            requested_percent=None,
            seed=self.seed,
            environment=measured.environment,
            metric_signature=measured.signature,
            fingerprint=measured.fingerprint,
            training=facts,
            recovery=None if kind == "before-finetune" else self._recovery_name(model, measured),
            trainings=self._trainings(number, kind=kind),
        )
        record.save(folder.parent / "records" / kind / f"step{number}.json")

    def _recovery_name(self, model: TaskModel, measured: Measured) -> str | None:
        """The name of the recovery in signatures; None for fine-tuning."""
        if self.recovery is Recovery.DISTILL:
            distillation = Distillation.of_settings(model.settings) or Distillation()
            return distillation.name(self.teacher)
        if self.recovery is Recovery.FINETUNE:
            return None
        return refit_name(self.recovery, measured.calibrated_on)


def _refitted(model: TaskModel, plan: PruningPlan, folder: Path, *, target: Target) -> Measured:
    """Re-fit the pruned model into a folder (``model``, or ``model.pt``), and measure it."""
    folder.mkdir(exist_ok=True)
    path = folder / "model"
    refitted = model.refitted(plan, target=target)
    refitted.model.save(path)
    if path.is_file():
        path = path.rename(path.with_suffix(".pt"))
    measured = Measured.of(model.opened(path).measure())
    return replace(measured, calibrated_on=refitted.examples)


def _replace(folder: Path, work: Path, step: Step) -> None:
    """Write step.json to a whole new folder, and put it in the place of the step's."""
    # Now: the copied folder of a model may still have that of the previous step.
    _write(step, work)
    shutil.rmtree(folder, ignore_errors=True)
    work.rename(folder)


def _write(step: Step, folder: Path) -> None:
    write_text_atomically(folder / _RECORD, json.dumps(asdict(step), indent=1) + "\n")
