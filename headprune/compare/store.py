"""The numbers in a comparison's folder; missing ones are measured.

scores/NAME.json    the scores
plans/LABEL.json    the plans of methods that take long, or draw
methods/            models of methods that train, and scores of methods that score in steps, while
                    they are needed
before/NAME.json    the metric right after pruning; NAME is the plan's, or a trained model's
after/, distill/, refitted/, refit-residual/, scratch/    the metric after a recovery
seconds.json, costs.json    run times of the plans, and of the methods themselves
seconds-speed.json    run times of plans at the job of a latency file
records/outputs/before/NAME.predictions.tsv, .hyp.txt    the outputs that were measured
records/outputs/reference.txt    the references of translations
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headprune.budget import NEAR, Budget, Goal, Speedup, file_label
from headprune.compare.competition import Competition
from headprune.compare.costs import Costs
from headprune.compare.interruptions import is_resumed
from headprune.compare.measured import Measured, timed
from headprune.compare.records import RECORDS
from headprune.compare.speeds import speedups
from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.folders import scratch_folder
from headprune.json_files import json_object, known_values
from headprune.methods.method import (
    Method,
    Outcome,
    Request,
    SpeedRequest,
    is_training,
    takes_speed,
)
from headprune.plan import PruningPlan
from headprune.recovery.kinds import Recovery
from headprune.recovery.variant import Variant
from headprune.results.record_files import ENDS, REFERENCE
from headprune.scores.head_scores import HeadScores
from headprune.scores.names import TAKE_LONG, needs_data
from headprune.scores.partial import partial_results
from headprune.speed.latency import Latency
from headprune.speed.turns import Quartiles
from headprune.speed.verifying import seconds_of, verified
from headprune.task_model import TaskModel
from headprune.wording import counted

if TYPE_CHECKING:
    from headprune.recovery.refit import Target

TRANSLATIONS = "translations"
"""The folder of the training text's translations by the model as it was given."""

FOLDERS = {Recovery.FINETUNE: "after", Recovery.REFIT: "refitted"}
"""Folders of recoveries that are not named after them."""

OUTPUTS = "outputs"
"""The folder of the outputs of models, among the records."""

VERIFIED = "-verified"
"""The end of the names of plans that were corrected by their measured speed; a number follows."""

TIMES_AT_SPEED = "seconds-speed.json"
"""The file of run times at the job of a latency file."""


@dataclass(frozen=True, kw_only=True)
class Choice:
    """The units that a method has chosen.

    Attributes:
        plan: the units of the whole model.
        title: the pruned model in messages: the method, the goal and the seed.
        training: for a method that trains, the name of its model in files; None for others.
        train: function that returns the trained model; a finished training is not repeated.
    """

    plan: PruningPlan
    title: str
    training: str | None = None
    train: Callable[[], TaskModel] | None = None

    @property
    def name(self) -> str:
        """The name of the pruned model in files."""
        return self.training or name_of(self.plan)


class Store:
    """The numbers in the folder of a comparison."""

    def __init__(
        self,
        folder: Path,
        model: TaskModel,
        competition: Competition,
        *,
        latency: Latency | None = None,
        verify: int = 0,
        outputs: Path | None = None,
    ) -> None:
        """Open the folder.

        Args:
            verify: the measurements, at most, by which a plan for a speed is corrected; see
                ``verified``.
            outputs: the folder for the outputs of models; default: one among the records.
        """
        self.folder = folder
        self.outputs = outputs or folder / RECORDS / OUTPUTS
        self.model = model
        self.competition = competition
        self.latency = latency
        self.verify = verify
        self.costs = Costs(folder / "costs.json")

    def scores(self, names: Sequence[str]) -> dict[str, HeadScores]:
        """Scores by name; those that need no data are computed again, as that is fast.

        So are those of a folder that lacks layers, which compete for shares, but not for speeds.
        """
        paths = {name: self.folder / "scores" / f"{name}.json" for name in names}
        missing = [n for n, path in paths.items() if not needs_data(n) or not self._has_all(path)]
        # Together what takes one pass over the data, by itself what takes long.
        quick = [name for name in missing if needs_data(name) and name not in TAKE_LONG]
        others = [name for name in missing if name not in quick]
        for group in [quick] * bool(quick) + [[name] for name in others]:
            components = self.competition.scored_components
            started = time.monotonic()
            with partial_results(self.folder / "scores"):
                computed = self.model.scores(group, seed=1, components=components)
                seconds = time.monotonic() - started
                for name, scores in computed.items():
                    scores.save(paths[name])
                    self.costs.add_score(name, seconds)
        return {name: HeadScores.load(path) for name, path in paths.items()}

    def _has_all(self, path: Path) -> bool:
        """Tell if a file has the scores of all components that are scored."""
        needed = self.competition.scored_components or self.competition.components
        return path.exists() and {*needed} <= {*HeadScores.load(path).values}

    def chosen(
        self,
        method: Method,
        scores: Mapping[str, HeadScores],
        *,
        goal: Goal,
        seed: int,
    ) -> Choice:
        """The choice of a method; a plan that is slow to compute is stored in the folder.

        Raises:
            UsageError: a goal that the method cannot reach.
        """
        draw = f"-seed{seed}" if method.draws else ""
        label = f"{method.name}-{file_label(goal)}{draw}"

        def run(chosen: PruningPlan | None = None) -> Outcome:
            return self._outcome(method, scores, goal=goal, seed=seed, chosen=chosen)

        is_slow = method.needs_model and not method.needs_scores
        to_verify = (
            goal if self.verify and isinstance(goal, Speedup) and not is_training(method) else None
        )
        if is_slow or to_verify is not None:
            end = f"{VERIFIED}{self.verify}" if to_verify else ""
            path = self.folder / "plans" / f"{label}{end}.json"
            if not path.exists():
                started = time.monotonic()
                outcome = run()
                chosen, seconds = outcome.plan, outcome.seconds
                if seconds is None:
                    seconds = time.monotonic() - started
                if is_slow:
                    self.costs.add_method(method.name, seed=seed, seconds=seconds)
                if to_verify is not None:
                    chosen = self._corrected(chosen, method, scores, goal=to_verify, seed=seed)
                chosen.save(path)
            plan = PruningPlan.load(path)
        else:
            plan = run().plan
        whole = self._whole(plan)
        title = f"{method.name} {goal}, seed {seed}"
        if not is_training(method):
            return Choice(plan=whole, title=title)

        def train() -> TaskModel:
            outcome = run(plan)
            assert outcome.model is not None
            if outcome.plan != plan:
                raise DataError(
                    f"{self.folder}: training {label} again keeps other units than before; delete "
                    f"plans/{label}.json, and {label}* in all other folders there"
                )
            return self.model.opened(outcome.model)

        return Choice(plan=whole, title=title, training=label, train=train)

    def _whole(self, plan: PruningPlan) -> PruningPlan:
        """The plan of the whole model; other components stay as they are."""
        return self.competition.full.replaced_by(plan).without_units_of_dropped_layers()

    def _corrected(
        self,
        plan: PruningPlan,
        method: Method,
        scores: Mapping[str, HeadScores],
        *,
        goal: Speedup,
        seed: int,
    ) -> PruningPlan:
        """The plan whose measured speed is nearest to the one that was asked for."""
        assert self.latency is not None
        plans = {self._whole(plan): plan}

        def choose(faster: float) -> PruningPlan:
            asked = Speedup(max(1.0, goal.times * faster))
            chosen = self._outcome(method, scores, goal=asked, seed=seed).plan
            if chosen.origin is not None:
                chosen = chosen.with_origin(replace(chosen.origin, budget=str(goal)))
            plans[self._whole(chosen)] = chosen
            return self._whole(chosen)

        nearest, reached = verified(
            self._whole(plan),
            choose,
            self.model.model,
            self.latency.conditions,
            goal,
            tries=self.verify,
        )
        if not goal.is_near(reached):
            print(
                f"warning: {method.name} {goal}, seed {seed}: not reached within {NEAR:.0%} in "
                f"{counted(self.verify, 'measurement')} at most; the nearest plan is "
                f"{reached:.2f}x",
                file=sys.stderr,
            )
        return plans[nearest]

    def _outcome(
        self,
        method: Method,
        scores: Mapping[str, HeadScores],
        *,
        goal: Goal,
        seed: int,
        chosen: PruningPlan | None = None,
    ) -> Outcome:
        """Run a method."""
        competition = self.competition
        components = competition.scored_components or competition.components
        request: dict[str, Any] = {
            "plan": competition.pool,
            "seed": seed,
            "at_least": competition.at_least,
            "scores": {
                name: scores[name].of_components(components) for name in method.needs_scores
            },
            "model": self.model,
            "folder": self.folder / "methods",
            "chosen": chosen,
        }
        if isinstance(goal, Budget):
            return method.run(Request(**request, budget=goal, cost=competition.cost))
        if self.latency is None or not takes_speed(method):
            raise UsageError(f"{method.name} cannot prune to a speed")
        return method.at_speed(SpeedRequest(**request, speedup=goal, latency=self.latency))

    def before(self, choice: Choice) -> Measured:
        """The metric right after pruning."""

        def measure() -> Measured:
            return Measured.of(self._model_of(choice).measure(choice.plan))

        is_given = choice.plan == self.competition.full and choice.train is None
        model = choice.title if is_given else f"{choice.title}, {Recovery.NONE.moment}"
        path = self.folder / "before" / f"{choice.name}.json"
        return self._measured(path, measure, model=model)

    def recovered(self, choice: Choice, recovery: Recovery, seed: int) -> Measured:
        """The metric after a recovery."""
        if recovery.refit_target is not None:
            return self._refitted(choice, recovery, target=recovery.refit_target)
        if recovery is Recovery.SCRATCH:
            # Of a trained model, the shape matters alone.
            choice = replace(choice, training=None, train=None)
        name = f"{choice.name}-seed{seed}"
        folder = self.folder / FOLDERS.get(recovery, str(recovery)) / name
        variant = Variant(
            from_scratch=recovery is Recovery.SCRATCH,
            distilled=recovery is Recovery.DISTILL,
            translations=self.folder / TRANSLATIONS
            if recovery is Recovery.DISTILL_SEQUENCES
            else None,
        )

        def measure() -> Measured:
            resumed = is_resumed(folder)
            tuned = self._model_of(choice).finetuned(
                choice.plan, seed=seed, folder=folder, variant=variant
            )
            return Measured.of(tuned.measure(), resumed=resumed)

        path = folder.with_name(f"{name}.json")
        number = self._measured(path, measure, model=f"{choice.title}, {recovery.moment}")
        shutil.rmtree(folder, ignore_errors=True)  # after the number is safe
        return number

    def remove_models(self) -> None:
        """Remove the models and scores of methods; their plans and numbers stay.

        Translations of the training text stay too, without the data sets that are made of them.
        """
        for name in ("methods", f"{TRANSLATIONS}/bin"):
            shutil.rmtree(self.folder / name, ignore_errors=True)

    def _refitted(self, choice: Choice, recovery: Recovery, *, target: Target) -> Measured:
        """The metric after re-fitting."""

        def measure() -> Measured:
            model = self._model_of(choice)
            # Learned gates leave no unpruned model of their own: the target is the given one.
            is_pruned = model.model.plan != self.model.model.plan
            unpruned, trained = (self.model, model) if is_pruned else (model, None)
            with scratch_folder(self.folder) as work:
                refitted = unpruned.refitted(choice.plan, target=target, trained=trained)
                refitted.model.save(work)
                measured = Measured.of(self.model.opened(work).measure())
                return replace(measured, calibrated_on=refitted.examples)

        path = self.folder / FOLDERS.get(recovery, str(recovery)) / f"{choice.name}.json"
        return self._measured(path, measure, model=f"{choice.title}, {recovery.moment}")

    def _model_of(self, choice: Choice) -> TaskModel:
        """The model that the choice's plan prunes."""
        return self.model if choice.train is None else choice.train()

    def speedups(
        self, full: PruningPlan, plans: Sequence[PruningPlan], rounds: int
    ) -> dict[PruningPlan, Quartiles]:
        """The speed-up of each plan over ``full``; equal plans are timed once.

        With a latency file, the time is that of its job.
        """
        distinct = list(dict.fromkeys([full, *plans]))
        latency = self.latency

        def seconds(numbers: Sequence[int]) -> list[list[float]]:
            chosen = [distinct[number] for number in numbers]
            if latency is None:
                return self.model.seconds(chosen, rounds=rounds)
            return seconds_of(self.model.model, chosen, latency.conditions, rounds=rounds)

        found = speedups(
            self.folder / ("seconds.json" if latency is None else TIMES_AT_SPEED),
            [name_of(plan) for plan in distinct],
            rounds=rounds,
            time=seconds,
        )
        return dict(zip(distinct, found, strict=True))

    def _measured(self, path: Path, measure: Callable[[], Measured], *, model: str) -> Measured:
        if not path.exists():
            measured = timed(measure, metric=self.model.metric, where=path, model=model)
            measured = replace(measured, files=self._written(measured.outputs, path), outputs={})
            content = {
                name: value for name, value in asdict(measured).items() if value not in (None, {})
            }
            write_text_atomically(path, json.dumps(content) + "\n")
        values = json_object(path)
        return Measured(**known_values(Measured, values, source=str(path)))

    def _written(self, outputs: Mapping[str, str], number: Path) -> dict[str, str]:
        """Write the outputs that belong to a number; the reference is the same for all models.

        They lie among the records, so that a copy of that folder is whole.
        """
        files = {}
        for name, content in outputs.items():
            place = number.relative_to(self.folder).with_suffix(ENDS[name])
            if name == REFERENCE:
                place = Path(f"reference{ENDS[name]}")
            path = self.outputs / place
            write_text_atomically(path, content)
            files[name] = os.path.relpath(path, self.folder)
        return files


def name_of(plan: PruningPlan) -> str:
    """The name of a plan in files: a fingerprint of the kept units."""
    return hashlib.sha256(plan.to_json(with_origin=False).encode()).hexdigest()[:16]
