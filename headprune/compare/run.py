"""The comparison: scores, percentages and seeds, each measured before and after a recovery.

Every number is written as soon as it is measured, so that an interrupted comparison can resume.
Equal plans of different scores are measured once.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from headprune.compare.additions import claim_folder, data_name_of
from headprune.compare.comparison import Comparison
from headprune.compare.competition import component_settings
from headprune.compare.design import Cell, Design
from headprune.compare.pairs import pair_tests
from headprune.compare.records import RECORDS, Outcomes, save_records
from headprune.compare.rows import CONTROL, Row, mean_seconds
from headprune.compare.store import Choice, Store
from headprune.cost import known_flops
from headprune.errors import UsageError
from headprune.plan import PruningPlan
from headprune.recovery.kinds import Recovery
from headprune.scores.head_scores import HeadScores
from headprune.speed.latency import Latency
from headprune.speed.turns import Quartiles, over_plans
from headprune.task_model import TaskModel

Say = Callable[[str, int, int], None]
"""A callback for the current step, the number of complete steps and the number of all steps."""

Plans = dict[tuple[str, float], list[PruningPlan]]
"""The plans of each method and amount."""

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
    design = Design.of(
        model,
        scores=scores,
        amounts=percents,
        seeds=seeds,
        random_seeds=random_seeds,
        tuned=tuned,
        at_least=at_least,
        components=components,
        measure=measure,
        latency=latency,
        recoveries=recoveries,
    )
    if verify and latency is None:
        raise UsageError("--verify goes with --speedup")
    settings = {**model.settings, "at_least": at_least, **component_settings(components)}
    claim_folder(folder, settings, model=model, scores=design.computed_scores, latency=latency)
    store = Store(folder, model, design.competition, latency=latency, verify=verify)
    # First, as it shows if there are data to measure on.
    base = store.before(_given(store))
    scores_by_name = store.scores(design.computed_scores)
    _require_choices(design, scores_by_name, store=store, say=say)
    rows, plans = _measured(design, scores_by_name, store=store, say=say)
    steps = len(design.cells)
    say("time", steps, steps)
    comparison = Comparison(
        task=model.task,
        model=str(model.model.path),
        plan=design.competition.full,
        metric=model.metric,
        data_name=data_name_of(folder, model),
        finetune_name=model.finetune_name,
        components=None if components is None else design.competition.components,
        base=base.value,
        scores=scores_by_name,
        rows=tuple(rows),
        speedups=_speedups(store, plans, rounds=rounds) if rounds else {},
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
        costs=_costs(design, store),
    )
    save_records(comparison, folder / RECORDS)
    say("tests of methods against each other", steps, steps)
    return replace(
        comparison,
        pairs=pair_tests(Outcomes.of(comparison), metric=comparison.metric, folder=folder),
    )


def _given(store: Store, *, seed: int | None = None) -> Choice:
    """The model as it was given, as the choice of all its units."""
    title = f"the model as it was given ({store.model.model.path})"
    return Choice(
        plan=store.competition.full, title=title if seed is None else f"{title}, seed {seed}"
    )


def _require_choices(
    design: Design, scores: Mapping[str, HeadScores], *, store: Store, say: Say
) -> None:
    """Choose units by all scores, and re-fit, so that what cannot be is found before trainings.

    Scores of heads, neurons and layers cannot always be compared, and a re-fit may have too few
    examples.
    """
    steps = len(design.cells)
    for method in design.methods.values():
        if method.needs_scores:
            for amount in design.amounts:
                goal = design.goal(amount)
                say(f"choose units: {method.name} {goal}", 0, steps)
                choice = store.chosen(method, scores, goal=goal, seed=design.seeds[0])
                for recovery in design.recoveries_of(method.name):
                    if recovery.refit_target is not None:
                        say(f"re-fit: {method.name} {goal}", 0, steps)
                        store.recovered(choice, recovery, design.seeds[0])


def _measured(
    design: Design, scores: Mapping[str, HeadScores], *, store: Store, say: Say
) -> tuple[list[Row], Plans]:
    """Prune, recover and measure each model; its rows, and the plans."""
    rows: list[Row] = []
    plans: Plans = {}
    cells = design.cells
    for number, cell in enumerate(cells):
        name = cell.method
        unit = "%" if design.latency is None or name == CONTROL else "x"
        say(f"{name} {cell.amount:g}{unit} seed {cell.seed}", number, len(cells))
        if name == CONTROL:
            choice = _given(store, seed=cell.seed)
        else:
            goal = design.goal(cell.amount)
            choice = store.chosen(design.methods[name], scores, goal=goal, seed=cell.seed)
            plans.setdefault((name, cell.amount), []).append(choice.plan)
        row = _row(cell, choice=choice, store=store)
        recovered = [
            row.recovered(recovery, store.recovered(choice, recovery, cell.seed))
            for recovery in design.recoveries_of(name)
        ]
        rows += recovered or [row]
    store.remove_models()
    return rows, plans


def _row(cell: Cell, *, choice: Choice, store: Store) -> Row:
    """The figures of a pruned model right after pruning, which is measured if need be."""
    plan, model, latency = choice.plan, store.model.model, store.latency
    before = store.before(choice)
    return Row(
        score=cell.method,
        percent=cell.amount,
        pruned=store.competition.percent_pruned(plan),
        seed=cell.seed,
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


def _speedups(store: Store, plans: Plans, *, rounds: int) -> dict[str, dict[float, Quartiles]]:
    """Time all plans in turns; the speed-up of each method and amount, over its plans."""
    timed = [plan for method_plans in plans.values() for plan in method_plans]
    of_plans = store.speedups(store.competition.full, timed, rounds)
    speedups: dict[str, dict[float, Quartiles]] = {}
    for (name, amount), of_method in plans.items():
        each = [of_plans[plan] for plan in dict.fromkeys(of_method)]
        speedups.setdefault(name, {})[amount] = over_plans(each)
    return speedups


def _costs(design: Design, store: Store) -> dict[str, float]:
    """The mean seconds of each method whose cost is known."""
    costs = {
        name: store.costs.of(method.name, method.needs_scores)
        for name, method in design.methods.items()
    }
    return {name: cost for name, cost in costs.items() if cost is not None}
