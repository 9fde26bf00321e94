"""The comparison: scores, percentages and seeds, each measured before and after a recovery.

Every number is written as soon as it is measured, so that an interrupted comparison can resume.
Equal plans of different scores are measured once.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from headprune.budget import Budget, percent_text
from headprune.compare.claimed_folder import claim
from headprune.compare.competition import Competition, component_settings
from headprune.compare.costs import Costs
from headprune.compare.interruptions import is_resumed
from headprune.compare.measured import Measured, timed
from headprune.compare.records import save_records
from headprune.compare.rows import CONTROL, Row
from headprune.compare.turns import Quartiles, speedup
from headprune.components import HEADS, NEURONS, unit_names
from headprune.cost import forward_flops
from headprune.errors import DataError, UsageError
from headprune.files import write_text_atomically
from headprune.folders import scratch_folder
from headprune.json_files import json_object, known_values
from headprune.methods.method import Method, Request
from headprune.methods.registry import method_named
from headprune.plan import PruningPlan
from headprune.recovery.distillation import Distillation
from headprune.recovery.kinds import Recovery
from headprune.results.environment import Environment
from headprune.scores.head_scores import HeadScores
from headprune.scores.names import ABLATIONS, needs_data
from headprune.task_model import TaskModel, require_high_is_good

Say = Callable[[str, int, int], None]
"""A callback for the current step, the number of complete steps and the number of all steps."""

ROUNDS = 7
"""The number of times that each model is timed."""


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """The measurements of a comparison.

    Attributes:
        task, metric, data_name, finetune_name: see ``TaskModel``.
        model, plan, environment: the name of the model as it was given, the units that it kept,
            and where it was measured; None where it is not known.
        base: the metric of the model as it was given.
        components: those that were pruned; None for all attention.
        measure: the quantity that percentages are shares of; see ``Budget``.
        scores: by name.
        rows: see ``Row``.
        speedups: for each method and percentage, the median of the unpruned model's time over that
            of the model with the plan of the first seed, and the quartiles; empty where time was
            not taken. Older comparisons have those of ``random`` alone.
        costs: the mean seconds that each method took to choose its units, its scores included;
            scores that were computed together have the time of their pass. Empty where it is not
            known.
        settings: see ``TaskModel``.
        constant: whether the model as it was given gives the same output for every example; None
            where it is not known.
        metric_signature, fingerprint: of the model as it was given; see ``Measurement``.
        at_least: units that every layer keeps; None where it is not known.
        recoveries: the treatments after pruning. The weights of a distillation are in
            ``settings``, its teacher is the model as it was given.
    """

    metric: str
    data_name: str
    finetune_name: str
    components: tuple[str, ...] | None
    base: float
    scores: dict[str, HeadScores]
    rows: tuple[Row, ...]
    speedups: Mapping[str, Mapping[float, Quartiles]]
    settings: dict[str, Any]
    constant: bool | None = None
    task: str = ""
    model: str | None = None
    plan: PruningPlan | None = None
    environment: Environment | None = None
    metric_signature: str | None = None
    fingerprint: str | None = None
    measure: str = "units"
    at_least: int | None = None
    recoveries: tuple[Recovery, ...] = (Recovery.FINETUNE,)
    costs: Mapping[str, float] = field(default_factory=dict)

    @property
    def unit_names(self) -> str:
        """The plural of the name of the units that compete: ``heads``, ``neurons``, ..."""
        return unit_names(self.components or HEADS)

    def name_of(self, recovery: Recovery) -> str | None:
        """The name of a recovery in signatures; None for fine-tuning and for none."""
        if recovery in (Recovery.NONE, Recovery.FINETUNE):
            return None
        if recovery == Recovery.DISTILL:
            distillation = Distillation.of_settings(self.settings) or Distillation()
            return distillation.name(self.fingerprint)
        return str(recovery)

    @property
    def quantity(self) -> str:
        """The quantity that percentages are shares of, in words."""
        return {"units": self.unit_names, "flops": "FLOPs"}.get(self.measure, self.measure)


def compare(
    model: TaskModel,
    *,
    scores: Sequence[str],
    percents: Sequence[float],
    seeds: Sequence[int],
    folder: Path,
    random_seeds: Sequence[int] | None = None,
    tuned: Sequence[str] | None = None,
    at_least: int = 1,
    components: Sequence[str] | None = None,
    measure: str = "units",
    rounds: int = ROUNDS,
    recoveries: Sequence[Recovery] = (Recovery.FINETUNE,),
    say: Say = lambda *_: None,
) -> Comparison:
    """Compare scores on one model.

    Args:
        model: the model, unpruned or not, with its data.
        scores: names of scores and of other methods. ``random`` is always compared, and so is
            ``ablation``, by which the others are judged; but ablation of single neurons takes so
            long that it is computed where it is named only.
        percents: shares to prune of all units of ``components``.
        seeds: the seeds of fine-tunings and random plans.
        folder: the folder for the measured numbers.
        random_seeds: the seeds of random plans, if they differ from ``seeds``. More random plans
            make smaller differences to random choice significant.
        tuned: fine-tune (or re-fit) the models of these scores (and of ``random``) only; default:
            of all.
        at_least: units that every layer keeps, by any score.
        components: prune units of these components only; percentages then refer to their units.
            They are required for scores that other components do not have. Default: all attention.
        measure: the quantity that percentages are shares of; see ``Budget``.
        rounds: the number of times that each model is timed; 0 disables timing.
        recoveries: the treatments after pruning, each of the pruned model itself; fine-tuning only
            where ``model`` can be fine-tuned. ``model`` knows the weights of a distillation.
        say: function that is called with a message on each step.

    Raises:
        UsageError: no such score, a percentage that cannot be reached, or a folder of another
            comparison.
        DataError: numbers that are not finite, or files in ``folder`` that cannot be read.
    """
    require_high_is_good(model)
    possible = _possible(model, recoveries)
    methods = {name: method_named(name) for name in dict.fromkeys([*scores, "random"])}
    for name in tuned or ():
        if name not in (*scores, "random"):
            raise UsageError(f"{name} is to be fine-tuned, but is not among the scores compared")
    tuned = [*(scores if tuned is None else tuned), CONTROL, "random"]
    needed = [score for method in methods.values() for score in method.needs_scores]
    competition = Competition.of(model.model, components, measure=measure, at_least=at_least)
    full = competition.full
    judges = [] if set(competition.components) & {*NEURONS} else ["ablation"]
    names = list(dict.fromkeys([*needed, *judges, "random"]))
    competition.require_possible(needed, percents)
    settings = {**model.settings, "at_least": at_least, **component_settings(components)}
    is_named = possible in ([Recovery.REFIT], [Recovery.DISTILL])
    claim(folder, settings | ({"recovery": str(possible[0])} if is_named else {}))
    store = _Store(folder, model, competition)
    base = store.before(full)  # first, as it shows whether there are data to measure on
    scores_by_name = store.scores(names)
    plans: list[tuple[str, float, int, PruningPlan]] = []

    def choose(name: str, percent: float, seed: int) -> PruningPlan:
        budget = Budget(percent, measure)
        return store.chosen(methods[name], scores_by_name, budget=budget, seed=seed)

    if any(each.trains for each in possible):
        plans += [(CONTROL, 0.0, seed, full) for seed in seeds]
    for percent in percents:
        for name in methods:
            drawn = random_seeds if name == "random" and random_seeds is not None else seeds
            for seed in drawn:
                plans.append((name, percent, seed, choose(name, percent, seed)))
    rows = []
    sizes = model.model.sizes
    for number, (name, percent, seed, plan) in enumerate(plans):
        say(f"{name} {percent:g}% seed {seed}", number, len(plans))
        before = store.before(plan)
        row = Row(
            score=name,
            percent=percent,
            pruned=competition.percent_pruned(plan),
            seed=seed,
            plan=json.loads(plan.to_json()),
            before=before.value,
            after=None,
            constant=before.constant,
            constant_before=before.constant,
            parameters=model.model.parameters_with(plan),
            flops=forward_flops(plan, sizes),
            environment_before=before.environment,
            fingerprint_before=before.fingerprint,
        )
        wanted = [each for each in possible if name in tuned and (each.trains or name != CONTROL)]
        rows += [
            row.recovered(recovery, store.recovered(plan, recovery, seed)) for recovery in wanted
        ] or [row]
    say("time", len(plans), len(plans))
    speedups: dict[str, dict[float, Quartiles]] = {}
    if rounds:
        chosen = {(name, percent): plan for name, percent, _, plan in reversed(plans)}
        of_plans = store.speedups(full, list(chosen.values()), rounds)
        for name in methods:
            speedups[name] = {percent: of_plans[chosen[name, percent]] for percent in percents}
    comparison = Comparison(
        task=model.task,
        model=str(model.model.path),
        plan=full,
        metric=model.metric,
        data_name=model.data_name,
        finetune_name=model.finetune_name,
        components=None if components is None else competition.components,
        base=base.value,
        scores=scores_by_name,
        rows=tuple(rows),
        speedups=speedups,
        settings=dict(model.settings),
        constant=base.constant,
        environment=base.environment,
        metric_signature=base.signature,
        fingerprint=base.fingerprint,
        measure=measure,
        at_least=at_least,
        recoveries=tuple(dict.fromkeys(recoveries)),
        costs={
            name: cost
            for name, method in methods.items()
            if (cost := store.cost(method)) is not None
        },
    )
    save_records(comparison, folder / "records")
    return comparison


def _possible(model: TaskModel, recoveries: Sequence[Recovery]) -> list[Recovery]:
    """The recoveries that can be done with ``model``, each once.

    Raises:
        UsageError: settings of a fine-tuning without one, or the other way round.
    """
    asked = list(dict.fromkeys(recoveries))
    trained = [each for each in asked if each.trains]
    if model.can_finetune and not trained:
        names = ", ".join(asked)
        raise UsageError(f"--recovery {names}: give no epochs or flags for fine-tuning with it")
    if Recovery.DISTILL in asked and not model.can_finetune:
        raise UsageError("--recovery distill: give --epochs, or --finetune for a checkpoint")
    if len(trained) > 1:
        raise UsageError(
            f"--recovery {' and '.join(trained)}: compare them in two folders; "
            "`headprune report` takes both"
        )
    untrained = [each for each in asked if each not in (*trained, Recovery.NONE)]
    return [each for each in asked if each in untrained or model.can_finetune and each in trained]


class _Store:
    """The numbers in a comparison's folder; missing ones are measured."""

    def __init__(self, folder: Path, model: TaskModel, competition: Competition) -> None:
        self.folder = folder
        self.model = model
        self.competition = competition
        self.costs = Costs(folder / "costs.json")

    def scores(self, names: Sequence[str]) -> dict[str, HeadScores]:
        """Scores by name; those that need no data are computed again, as that is fast."""
        paths = {name: self.folder / "scores" / f"{name}.json" for name in names}
        missing = [n for n, path in paths.items() if not needs_data(n) or not path.exists()]
        # Together what takes one pass over the data, by itself what takes long.
        quick = [name for name in missing if name not in ABLATIONS]
        for group in (quick, *([name] for name in missing if name in ABLATIONS)):
            components = self.competition.scored_components
            started = time.monotonic()
            computed = self.model.scores(group, seed=1, components=components)
            seconds = time.monotonic() - started
            for name, scores in computed.items():
                scores.save(paths[name])
                self.costs.add(name, "scores", seconds)
        return {name: HeadScores.load(path) for name, path in paths.items()}

    def chosen(
        self,
        method: Method,
        scores: Mapping[str, HeadScores],
        *,
        budget: Budget,
        seed: int,
    ) -> PruningPlan:
        """The plan of a method; a plan that is slow to compute is stored in the folder."""
        full, competition = self.competition.full, self.competition
        request = Request(
            plan=competition.pool,
            budget=budget,
            seed=seed,
            at_least=competition.at_least,
            scores={
                name: scores[name].of_components(competition.components)
                for name in method.needs_scores
            },
            cost=competition.cost,
            model=self.model,
            folder=self.folder / "methods",
        )
        if method.needs_model and not method.needs_scores:
            measure = "" if budget.of == "units" else f"-{budget.of}"
            draw = f"-seed{seed}" if method.draws else ""
            label = f"{method.name}-{percent_text(budget.percent)}{measure}{draw}"
            path = self.folder / "plans" / f"{label}.json"
            if not path.exists():
                started = time.monotonic()
                chosen = method.run(request).plan
                self.costs.add(method.name, label, time.monotonic() - started)
                chosen.save(path)
            plan = PruningPlan.load(path)
        else:
            plan = method.run(request).plan
        # The other components stay as they are.
        return full.replaced_by(plan).without_units_of_dropped_layers()

    def before(self, plan: PruningPlan) -> Measured:
        """The metric right after pruning."""

        def measure() -> Measured:
            return Measured.of(self.model.measure(plan))

        return self._measured(self.folder / "before" / f"{_name(plan)}.json", measure)

    def recovered(self, plan: PruningPlan, recovery: Recovery, seed: int) -> Measured:
        """The metric after a recovery."""
        if recovery is Recovery.REFIT:
            return self._refitted(plan)
        return self._finetuned(plan, seed)

    def _finetuned(self, plan: PruningPlan, seed: int) -> Measured:
        """The metric after fine-tuning."""
        folder = self.folder / "after" / f"{_name(plan)}-seed{seed}"

        def measure() -> Measured:
            resumed = is_resumed(folder)
            tuned = self.model.finetuned(plan, seed=seed, folder=folder)
            return Measured.of(tuned.measure(), resumed=resumed)

        number = self._measured(folder.with_suffix(".json"), measure)
        shutil.rmtree(folder, ignore_errors=True)  # after the number is safe
        return number

    def _refitted(self, plan: PruningPlan) -> Measured:
        """The metric after re-fitting."""

        def measure() -> Measured:
            with scratch_folder(self.folder) as work:
                refitted = self.model.refitted(plan)
                refitted.model.save(work)
                return Measured.of(self.model.opened(work).measure())

        return self._measured(self.folder / "refitted" / f"{_name(plan)}.json", measure)

    def cost(self, method: Method) -> float | None:
        """The mean seconds of a method and its scores; None where they are not known."""
        parts = [self.costs.mean(name) for name in (method.name, *method.needs_scores)]
        known = [part for part in dict.fromkeys(parts) if part is not None]
        return sum(known) if known else None

    def speedups(
        self, full: PruningPlan, plans: Sequence[PruningPlan], rounds: int
    ) -> dict[PruningPlan, Quartiles]:
        """The speed-up of each plan over ``full``; equal plans are timed once."""
        path = self.folder / "seconds.json"
        plans = list(dict.fromkeys([full, *plans]))
        wanted = [_name(plan) for plan in plans]
        seconds = _seconds(path, plans=wanted, rounds=rounds) if path.exists() else None
        if seconds is None:
            seconds = self.model.seconds(plans, rounds=rounds)
            content = {"plans": wanted, "seconds": seconds}
            write_text_atomically(path, json.dumps(content) + "\n")
        return {
            plan: speedup(seconds[0], times) for plan, times in zip(plans, seconds, strict=True)
        }

    def _measured(self, path: Path, measure: Callable[[], Measured]) -> Measured:
        if not path.exists():
            measured = timed(measure, metric=self.model.metric, where=path)
            content = {name: value for name, value in asdict(measured).items() if value is not None}
            write_text_atomically(path, json.dumps(content) + "\n")
        values = json_object(path)
        return Measured(**known_values(Measured, values, source=str(path)))


@dataclass(frozen=True)
class _Times:
    """The file of times: seconds of each plan in each round."""

    plans: list[str]
    seconds: list[list[float]]


def _seconds(path: Path, *, plans: list[str], rounds: int) -> list[list[float]] | None:
    """Read the times in a file; None if plans or number of rounds differ."""
    values = json_object(path)
    times = _Times(**known_values(_Times, values, source=str(path)))
    if times.plans != plans or [len(each) for each in times.seconds] != [rounds] * len(plans):
        return None
    if any(second <= 0 for each in times.seconds for second in each):
        raise DataError(f"{path}: a time that is not above 0")
    return times.seconds


def _name(plan: PruningPlan) -> str:
    return hashlib.sha256(plan.to_json(with_origin=False).encode()).hexdigest()[:16]
