"""The comparison: scores, percentages and seeds, each measured before and after a recovery.

Every number is written as soon as it is measured, so that an interrupted comparison can resume.
Equal plans of different scores are measured once.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from headprune.budget import Budget, percent_text
from headprune.compare.claimed_folder import claim
from headprune.compare.competition import Competition, component_settings
from headprune.compare.interruptions import is_resumed
from headprune.compare.measured import Measured, timed
from headprune.compare.records import save_records
from headprune.compare.rows import CONTROL, Row
from headprune.compare.turns import speedup
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
        speedups: for each percentage, the median of the unpruned model's time over that of the
            model with random heads, and the quartiles; empty where time was not taken.
        settings: see ``TaskModel``.
        constant: whether the model as it was given gives the same output for every example; None
            where it is not known.
        metric_signature, fingerprint: of the model as it was given; see ``Measurement``.
        at_least: units that every layer keeps; None where it is not known.
        recovery: what was done after pruning; the weights of a distillation are in ``settings``,
            its teacher is the model as it was given.
    """

    metric: str
    data_name: str
    finetune_name: str
    components: tuple[str, ...] | None
    base: float
    scores: dict[str, HeadScores]
    rows: tuple[Row, ...]
    speedups: dict[float, tuple[float, float, float]]
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
    recovery: Recovery = Recovery.FINETUNE

    @property
    def unit_names(self) -> str:
        """The plural of the name of the units that compete: ``heads``, ``neurons``, ..."""
        return unit_names(self.components or HEADS)

    @property
    def recovery_name(self) -> str | None:
        """The recovery of trained models besides fine-tuning, in signatures; None without one."""
        if self.recovery != Recovery.DISTILL:
            return None
        return (Distillation.of_settings(self.settings) or Distillation()).name(self.fingerprint)

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
    recovery: Recovery = Recovery.FINETUNE,
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
        recovery: what is done after pruning; a fine-tuning only where ``model`` can be fine-tuned.
            ``model`` knows the weights of a distillation.
        say: function that is called with a message on each step.

    Raises:
        UsageError: no such score, a percentage that cannot be reached, or a folder of another
            comparison.
        DataError: numbers that are not finite, or files in ``folder`` that cannot be read.
    """
    require_high_is_good(model)
    if not recovery.trains and model.can_finetune:
        raise UsageError(f"--recovery {recovery}: give no epochs or flags for fine-tuning with it")
    if recovery == Recovery.DISTILL and not model.can_finetune:
        raise UsageError(f"--recovery {recovery}: give --epochs, or --finetune for a checkpoint")
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
    named = recovery in (Recovery.REFIT, Recovery.DISTILL)
    claim(folder, settings | ({"recovery": str(recovery)} if named else {}))
    store = _Store(folder, model, competition)
    base = store.before(full)  # first, as it shows whether there are data to measure on
    scores_by_name = store.scores(names)
    plans: list[tuple[str, float, int, PruningPlan]] = []

    def choose(name: str, percent: float, seed: int) -> PruningPlan:
        budget = Budget(percent, measure)
        return store.chosen(methods[name], scores_by_name, budget=budget, seed=seed)

    if model.can_finetune:
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
        after = None
        if recovery == Recovery.REFIT and name in tuned:
            after = store.refitted(plan)
        elif model.can_finetune and name in tuned:
            after = store.after(plan, seed)
        rows.append(
            Row(
                score=name,
                percent=percent,
                pruned=competition.percent_pruned(plan),
                seed=seed,
                plan=json.loads(plan.to_json()),
                before=before.value,
                after=None if after is None else after.value,
                resumed=None if after is None else after.resumed,
                constant=(after or before).constant,
                constant_before=before.constant,
                parameters=model.model.parameters_with(plan),
                flops=forward_flops(plan, sizes),
                environment_before=before.environment,
                environment_after=None if after is None else after.environment,
                fingerprint_before=before.fingerprint,
                fingerprint_after=None if after is None else after.fingerprint,
            )
        )
    say("time", len(plans), len(plans))
    speedups = {}
    if rounds:
        pruned = [choose("random", percent, seeds[0]) for percent in percents]
        speedups = dict(zip(percents, store.speedups([full, *pruned], rounds), strict=True))
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
        recovery=recovery,
    )
    save_records(comparison, folder / "records")
    return comparison


class _Store:
    """The numbers in a comparison's folder; missing ones are measured."""

    def __init__(self, folder: Path, model: TaskModel, competition: Competition) -> None:
        self.folder = folder
        self.model = model
        self.competition = competition

    def scores(self, names: Sequence[str]) -> dict[str, HeadScores]:
        """Scores by name; those that need no data are computed again, as that is fast."""
        paths = {name: self.folder / "scores" / f"{name}.json" for name in names}
        missing = [n for n, path in paths.items() if not needs_data(n) or not path.exists()]
        # Together what takes one pass over the data, by itself what takes long.
        quick = [name for name in missing if name not in ABLATIONS]
        for group in (quick, *([name] for name in missing if name in ABLATIONS)):
            components = self.competition.scored_components
            computed = self.model.scores(group, seed=1, components=components)
            for name, scores in computed.items():
                scores.save(paths[name])
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
                method.run(request).plan.save(path)
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

    def after(self, plan: PruningPlan, seed: int) -> Measured:
        """The metric after fine-tuning."""
        folder = self.folder / "after" / f"{_name(plan)}-seed{seed}"

        def measure() -> Measured:
            resumed = is_resumed(folder)
            tuned = self.model.finetuned(plan, seed=seed, folder=folder)
            return Measured.of(tuned.measure(), resumed=resumed)

        number = self._measured(folder.with_suffix(".json"), measure)
        shutil.rmtree(folder, ignore_errors=True)  # after the number is safe
        return number

    def refitted(self, plan: PruningPlan) -> Measured:
        """The metric after re-fitting."""

        def measure() -> Measured:
            with scratch_folder(self.folder) as work:
                refitted = self.model.refitted(plan)
                refitted.model.save(work)
                return Measured.of(self.model.opened(work).measure())

        return self._measured(self.folder / "refitted" / f"{_name(plan)}.json", measure)

    def speedups(
        self, plans: Sequence[PruningPlan], rounds: int
    ) -> list[tuple[float, float, float]]:
        """The speed-up of each further plan over the first one: median and quartiles."""
        path = self.folder / "seconds.json"
        wanted = [_name(plan) for plan in plans]
        seconds = _seconds(path, plans=wanted, rounds=rounds) if path.exists() else None
        if seconds is None:
            seconds = self.model.seconds(plans, rounds=rounds)
            content = {"plans": wanted, "seconds": seconds}
            write_text_atomically(path, json.dumps(content) + "\n")
        first, *others = seconds
        return [speedup(first, other) for other in others]

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
