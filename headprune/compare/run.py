"""The comparison: scores, percentages and seeds, each measured before and after a recovery.

Every number is written as soon as it is measured, so that an interrupted comparison can resume.
Equal plans of different scores are measured once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from headprune.budget import SPEED, goal_of
from headprune.compare.additions import claim_folder, data_name_of
from headprune.compare.comparison import Comparison
from headprune.compare.competition import Competition, component_settings
from headprune.compare.pairs import pair_tests
from headprune.compare.records import RECORDS, Outcomes, save_records
from headprune.compare.requirements import possible_recoveries, require_methods, require_speeds
from headprune.compare.rows import CONTROL, Row, mean_seconds
from headprune.compare.store import Choice, Store
from headprune.components import NEURONS
from headprune.cost import known_flops
from headprune.errors import UsageError
from headprune.methods.adversarial import IMPORTANT_FIRST
from headprune.methods.registry import method_named
from headprune.plan import PruningPlan
from headprune.recovery.kinds import Recovery
from headprune.speed.latency import Latency
from headprune.speed.turns import Quartiles, over_plans
from headprune.task_model import TaskModel, require_scores

Say = Callable[[str, int, int], None]
"""A callback for the current step, the number of complete steps and the number of all steps."""

ROUNDS = 7
"""The number of times that each model is timed."""


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
    verify: int = 0,
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
        at_least: units that every layer keeps, by any score; of ``subnetwork`` heads alone.
        components: prune units of these components only; percentages then refer to their units.
            They are required for scores that other components do not have. Default: all attention.
        measure: the quantity that percentages are shares of, see ``Budget``; or ``speed``.
        latency: the time that units save, for the measure ``speed``: each method reaches the
            predicted speed, and models are timed at its job.
        verify: the measurements, at most, by which each plan is corrected until its measured speed
            is the one that is asked for; see ``verified``. 0: predictions are trusted. Plans of
            methods that train are not corrected.
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
    if {"adversarial", f"gradient{IMPORTANT_FIRST}"} <= {*methods}:
        raise UsageError(f"adversarial and gradient{IMPORTANT_FIRST} are one method; give one")
    possible = possible_recoveries(model, recoveries, methods=list(methods.values()))
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
    require_scores(model, needed)
    if (measure == SPEED) != (latency is not None):
        raise UsageError("--speedup and --latency go together")
    if verify and latency is None:
        raise UsageError("--verify goes with --speedup")
    require_methods([*methods.values()], model, competition, latency=latency)
    if latency is not None:
        require_speeds([*methods.values()], competition, latency, percents, seed=seeds[0])
    settings = {**model.settings, "at_least": at_least, **component_settings(components)}
    claim_folder(folder, settings, model=model, scores=names, latency=latency)
    store = Store(folder, model, competition, latency=latency, verify=verify)
    given = f"the model as it was given ({model.model.path})"
    # First, as it shows if there are data to measure on.
    base = store.before(Choice(plan=full, title=given))
    scores_by_name = store.scores(names)
    wanted = _wanted(
        methods,
        percents,
        seeds=seeds,
        random_seeds=seeds if random_seeds is None else random_seeds,
        controls=any(each.trains for each in possible),
    )
    # Some scores of heads, neurons and layers cannot be compared: found before a model is trained.
    for method in methods.values():
        if method.needs_scores:
            for amount in percents:
                goal = goal_of(amount, measure)
                say(f"choose units: {method.name} {goal}", 0, len(wanted))
                store.chosen(method, scores_by_name, goal=goal, seed=seeds[0])
    rows: list[Row] = []
    plans: dict[tuple[str, float], list[PruningPlan]] = {}
    for number, (name, percent, seed) in enumerate(wanted):
        unit = "%" if latency is None or name == CONTROL else "x"
        say(f"{name} {percent:g}{unit} seed {seed}", number, len(wanted))
        if name == CONTROL:
            choice = Choice(plan=full, title=f"{given}, seed {seed}")
        else:
            goal = goal_of(percent, measure)
            choice = store.chosen(methods[name], scores_by_name, goal=goal, seed=seed)
            plans.setdefault((name, percent), []).append(choice.plan)
        rows += _rows(
            name,
            percent,
            seed,
            choice=choice,
            recoveries=possible if name in tuned else [],
            store=store,
        )
    store.remove_models()
    say("time", len(wanted), len(wanted))
    speedups = _speedups(store, full, plans, rounds=rounds) if rounds else {}
    comparison = Comparison(
        task=model.task,
        model=str(model.model.path),
        plan=full,
        metric=model.metric,
        data_name=data_name_of(folder, model),
        finetune_name=model.finetune_name,
        components=None if components is None else competition.components,
        base=base.value,
        scores=scores_by_name,
        rows=tuple(rows),
        speedups=speedups,
        timed_all_plans=bool(rounds),
        settings=dict(model.settings),
        constant=base.constant,
        environment=base.environment,
        metric_signature=base.signature,
        fingerprint=base.fingerprint,
        files=base.files,
        measure=measure,
        timed_job=None if latency is None else latency.job_name,
        verify=verify,
        at_least=at_least,
        positions=model.model.sizes.encoder_positions,
        recoveries=tuple(dict.fromkeys(recoveries)),
        recovery_seconds=mean_seconds(rows),
        costs={
            name: cost
            for name, method in methods.items()
            if (cost := store.costs.of(method.name, method.needs_scores)) is not None
        },
    )
    save_records(comparison, folder / RECORDS)
    say("tests of methods against each other", len(wanted), len(wanted))
    return replace(
        comparison,
        pairs=pair_tests(Outcomes.of(comparison), metric=comparison.metric, folder=folder),
    )


def _wanted(
    methods: Iterable[str],
    percents: Sequence[float],
    *,
    seeds: Sequence[int],
    random_seeds: Sequence[int],
    controls: bool,
) -> list[tuple[str, float, int]]:
    """The method, the amount and the seed of each model; those of the controls come first."""
    wanted = [(CONTROL, 0.0, seed) for seed in seeds] if controls else []
    return wanted + [
        (name, percent, seed)
        for percent in percents
        for name in methods
        for seed in (random_seeds if name == "random" else seeds)
    ]


def _rows(
    name: str,
    percent: float,
    seed: int,
    *,
    choice: Choice,
    recoveries: Iterable[Recovery],
    store: Store,
) -> list[Row]:
    """The rows of a pruned model: one for each recovery, or a single one right after pruning."""
    row = _row(name, percent, seed, choice=choice, store=store)
    recovered = [
        row.recovered(recovery, store.recovered(choice, recovery, seed))
        for recovery in recoveries
        if recovery.trains or name != CONTROL
    ]
    return recovered or [row]


def _row(name: str, percent: float, seed: int, *, choice: Choice, store: Store) -> Row:
    """The figures of a pruned model right after pruning, which is measured if need be."""
    plan, model, latency = choice.plan, store.model.model, store.latency
    before = store.before(choice)
    return Row(
        score=name,
        percent=percent,
        pruned=store.competition.percent_pruned(plan),
        seed=seed,
        plan=json.loads(plan.to_json()),
        before=before.value,
        after=None,
        constant=before.constant,
        constant_before=before.constant,
        parameters=model.parameters_with(plan),
        flops=known_flops(plan, model.sizes),
        environment_before=before.environment,
        fingerprint_before=before.fingerprint,
        files_before=before.files,
        trained=choice.training is not None,
        predicted_speedup=None if latency is None else latency.speedup_of(plan),
    )


def _speedups(
    store: Store,
    full: PruningPlan,
    plans: Mapping[tuple[str, float], Sequence[PruningPlan]],
    *,
    rounds: int,
) -> dict[str, dict[float, Quartiles]]:
    """Time all plans in turns; the speed-up of each method and amount, over its plans."""
    timed = [plan for method_plans in plans.values() for plan in method_plans]
    of_plans = store.speedups(full, timed, rounds)
    speedups: dict[str, dict[float, Quartiles]] = {}
    for (name, percent), of_method in plans.items():
        each = [of_plans[plan] for plan in dict.fromkeys(of_method)]
        speedups.setdefault(name, {})[percent] = over_plans(each)
    return speedups
