"""The comparison: scores, percentages and seeds, each measured before and after a recovery.

Every number is written as soon as it is measured, so that an interrupted comparison can resume.
Equal plans of different scores are measured once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headprune.budget import SPEED, Speedup, goal_of
from headprune.compare.additions import claim_folder
from headprune.compare.competition import Competition, component_settings
from headprune.compare.pairs import PairTest, pair_tests
from headprune.compare.records import Outcomes, save_records
from headprune.compare.rows import CONTROL, Row
from headprune.compare.store import Choice, Store
from headprune.compare.turns import Quartiles
from headprune.components import HEADS, NEURONS, unit_names
from headprune.cost import forward_flops
from headprune.errors import UsageError
from headprune.methods.method import Method, SpeedRequest, is_training, takes_speed
from headprune.methods.registry import method_named
from headprune.plan import PruningPlan
from headprune.recovery.distillation import Distillation
from headprune.recovery.kinds import Recovery
from headprune.report.shown import percentage
from headprune.results.environment import Environment
from headprune.scores.head_scores import HeadScores
from headprune.select.speed import by_speed
from headprune.speed.latency import Latency
from headprune.task_model import TaskModel

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
        measure: the quantity that percentages are shares of, see ``Budget``; or ``speed``, for
            which they are speeds as multiples of the unpruned model's.
        timed_job: for speeds, the job and the conditions that they refer to.
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
        positions: the number of positions of each input, such as the patches of an image, where
            the model fixes it; see ``Sizes``.
        recoveries: the treatments after pruning. The weights of a distillation are in
            ``settings``, its teacher is the model as it was given.
        files: the files with the outputs of the model as it was given; see ``Measured``.
        pairs: tests of the methods against each other; empty where outputs are not known.
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
    timed_job: str | None = None
    at_least: int | None = None
    positions: int | None = None
    recoveries: tuple[Recovery, ...] = (Recovery.FINETUNE,)
    costs: Mapping[str, float] = field(default_factory=dict)
    files: Mapping[str, str] = field(default_factory=dict)
    pairs: tuple[PairTest, ...] = ()

    @property
    def unit_names(self) -> str:
        """The plural of the name of the units that compete: ``heads``, ``neurons``, ..."""
        return unit_names(self.components or HEADS)

    @property
    def has_timed_methods(self) -> bool:
        """True if the plans of methods were timed, and not those of random units alone."""
        return bool(set(self.speedups) - {"random"})

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

    @property
    def heading(self) -> str:
        """The heading of the requested percentages or speeds."""
        return "speed asked for" if self.measure == SPEED else f"{self.quantity} pruned"

    def amount_text(self, amount: float) -> str:
        """A requested amount in tables: ``12.5%`` or ``1.5x``."""
        return f"{amount:g}x" if self.measure == SPEED else percentage(amount)


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
    latency: Latency | None = None,
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
        percents: shares to prune of all units of ``components``; of the measure ``speed``, speeds
            to reach, as multiples of the unpruned model's.
        seeds: the seeds of fine-tunings and random plans.
        folder: the folder for the measured numbers.
        random_seeds: the seeds of random plans, if they differ from ``seeds``. More random plans
            make smaller differences to random choice significant.
        tuned: fine-tune (or re-fit) the models of these scores (and of ``random``) only; default:
            of all.
        at_least: units that every layer keeps, by any score.
        components: prune units of these components only; percentages then refer to their units.
            They are required for scores that other components do not have. Default: all attention.
        measure: the quantity that percentages are shares of, see ``Budget``; or ``speed``.
        latency: the time that units save, for the measure ``speed``: each method reaches the
            predicted speed, and models are timed at its job.
        rounds: the number of times that each model is timed; 0 disables timing.
        recoveries: the treatments after pruning, each of the pruned model itself; fine-tuning only
            where ``model`` can be fine-tuned. ``model`` knows the weights of a distillation.
        say: function that is called with a message on each step.

    Raises:
        UsageError: no such score, a percentage that cannot be reached, or a folder of another
            comparison.
        DataError: numbers that are not finite, or files in ``folder`` that cannot be read.
    """
    methods = {name: method_named(name) for name in dict.fromkeys([*scores, "random"])}
    possible = _possible(model, recoveries, methods=list(methods.values()))
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
    if (measure == SPEED) != (latency is not None):
        raise UsageError("--speedup and --latency go together")
    for method in methods.values():
        if latency is not None and not takes_speed(method):
            raise UsageError(
                f"{method.name} prunes a share, not to a speed; give --percent or --budget"
            )
        if is_training(method):
            method.require_possible(model, competition.components)
    if latency is not None:
        _require_speeds([*methods.values()], competition, latency, percents, seed=seeds[0])
    settings = {**model.settings, "at_least": at_least, **component_settings(components)}
    claim_folder(folder, settings, model=model, scores=names, latency=latency)
    store = Store(folder, model, competition, latency=latency)
    given = f"the model as it was given ({model.model.path})"
    # First, as it shows if there are data to measure on.
    base = store.before(Choice(plan=full, title=given))
    scores_by_name = store.scores(names)
    if latency is not None:
        for method in methods.values():
            if method.needs_scores:  # scores of which some cannot be compared with others
                for amount in percents:
                    goal = goal_of(amount, measure)
                    store.chosen(method, scores_by_name, goal=goal, seed=seeds[0])
    wanted: list[tuple[str, float, int]] = []
    if any(each.trains for each in possible):
        wanted += [(CONTROL, 0.0, seed) for seed in seeds]
    for percent in percents:
        for name in methods:
            drawn = random_seeds if name == "random" and random_seeds is not None else seeds
            wanted += [(name, percent, seed) for seed in drawn]
    rows = []
    sizes = model.model.sizes
    plans: dict[tuple[str, float], PruningPlan] = {}
    for number, (name, percent, seed) in enumerate(wanted):
        unit = "%" if latency is None or name == CONTROL else "x"
        say(f"{name} {percent:g}{unit} seed {seed}", number, len(wanted))
        if name == CONTROL:
            choice = Choice(plan=full, title=f"{given}, seed {seed}")
        else:
            goal = goal_of(percent, measure)
            choice = store.chosen(methods[name], scores_by_name, goal=goal, seed=seed)
            plans.setdefault((name, percent), choice.plan)
        plan = choice.plan
        before = store.before(choice)
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
            files_before=before.files,
            trained=choice.training is not None,
            predicted_speedup=None if latency is None else latency.speedup_of(plan),
        )
        recovered = [
            row.recovered(recovery, store.recovered(choice, recovery, seed))
            for recovery in possible
            if name in tuned and (recovery.trains or not (name == CONTROL or row.trained))
        ]
        rows += recovered or [row]
    store.remove_models()
    say("time", len(wanted), len(wanted))
    speedups: dict[str, dict[float, Quartiles]] = {}
    if rounds:
        of_plans = store.speedups(full, list(plans.values()), rounds)
        for name in methods:
            speedups[name] = {percent: of_plans[plans[name, percent]] for percent in percents}
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
        files=base.files,
        measure=measure,
        timed_job=None if latency is None else latency.job_name,
        at_least=at_least,
        positions=sizes.encoder_positions,
        recoveries=tuple(dict.fromkeys(recoveries)),
        costs={
            name: cost
            for name, method in methods.items()
            if (cost := store.costs.of(method.name, method.needs_scores)) is not None
        },
    )
    save_records(comparison, folder / "records")
    return replace(
        comparison,
        pairs=pair_tests(Outcomes.of(comparison), metric=comparison.metric, folder=folder),
    )


def _require_speeds(
    methods: Sequence[Method],
    competition: Competition,
    latency: Latency,
    speeds: Sequence[float],
    *,
    seed: int,
) -> None:
    """Raise a UsageError for speeds that cannot be reached, before anything is computed.

    Methods that choose by scores reach the same speeds by any scores.
    """
    needed = [name for method in methods for name in method.needs_scores]
    scored = competition.scored_components or competition.components
    zeros = {name: [[0.0] * units for units in competition.pool.units[name]] for name in scored}
    for times in speeds:
        if needed:
            by_speed(
                HeadScores(name=needed[0], values=zeros),
                latency,
                Speedup(times),
                components=competition.components,
                at_least=competition.at_least,
            )
        request = SpeedRequest(
            plan=competition.pool,
            seed=seed,
            at_least=competition.at_least,
            speedup=Speedup(times),
            latency=latency,
        )
        for method in methods:
            if takes_speed(method) and not (method.needs_scores or method.needs_model):
                method.at_speed(request)


def _possible(
    model: TaskModel, recoveries: Sequence[Recovery], *, methods: Sequence[Method]
) -> list[Recovery]:
    """The recoveries that can be done with ``model``, each once.

    Raises:
        UsageError: settings of a fine-tuning without one, or the other way round.
    """
    asked = list(dict.fromkeys(recoveries))
    trained = [each for each in asked if each.trains]
    if model.can_finetune and not trained and not any(map(is_training, methods)):
        names = ", ".join(asked)
        raise UsageError(f"--recovery {names}: give no epochs or flags for fine-tuning with it")
    for each in asked:
        if each.trains and each != Recovery.FINETUNE and not model.can_finetune:
            raise UsageError(f"--recovery {each}: give --epochs, or --finetune for a checkpoint")
    untrained = [each for each in asked if each not in (*trained, Recovery.NONE)]
    return [each for each in asked if each in untrained or model.can_finetune and each in trained]
