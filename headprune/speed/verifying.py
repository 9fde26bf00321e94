"""Measure the speed of a plan, and correct the plan where the prediction was wrong."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from headprune.budget import Speedup
from headprune.errors import UsageError
from headprune.model import PrunableModel
from headprune.plan import PruningPlan
from headprune.speed.forward_pass import Conditions
from headprune.speed.latency_measuring import Watch, clock_of, ready, timing_backend
from headprune.speed.measure import prepared_processor
from headprune.speed.turns import speedup, taking_turns

Measured = tuple[float, float, float]
"""The speed as a multiple of the unpruned model's: median and quartiles."""

DEFAULT_MEASUREMENTS = 3
"""Number of plans that are timed at most, where nothing else is asked for."""

TOLERANCE = 0.02
"""A speed that differs by no more than this share is not corrected."""

_ROUNDS = 20


def verified(
    plan: PruningPlan,
    choose: Callable[[float], PruningPlan],
    model: PrunableModel,
    conditions: Conditions,
    asked: Speedup,
    *,
    tries: int,
    rounds: int = _ROUNDS,
    tell: Callable[[PruningPlan, Measured], None] = lambda plan, measured: None,
    watch: Watch = lambda numbers: numbers,
) -> tuple[PruningPlan, float]:
    """Measure a plan, and choose another where its speed is not the one that was asked for.

    A prediction is a sum over sub-layers that were measured one kind at a time. Where the measured
    speed is lower than the one that was asked for, the next choice asks for a higher predicted
    speed; where it is higher, for a lower one.

    Args:
        plan: the first plan.
        choose: function from a factor on the speed to a plan.
        model: the unpruned model.
        conditions: the job, the batch and the machine.
        asked: the speed.
        tries: number of measurements at most; after the last one no other plan is chosen, so one
            measures alone.
        rounds: number of times that each model is timed.
        tell: takes each plan with its speed.
        watch: wraps the rounds of one measurement; for a progress bar.

    Returns:
        The plan whose median speed is nearest to the one that was asked for, and that speed.

    Raises:
        UsageError: the model cannot be timed.
    """
    backend = timing_backend(model.path)
    with prepared_processor(conditions):
        unpruned = ready(backend, model, conditions)
    faster = 1.0
    measured: dict[PruningPlan, float] = {}
    while True:
        with prepared_processor(conditions):
            pruned = ready(backend, model.prune(plan), conditions)
            full, own = taking_turns(
                [unpruned.run, pruned.run],
                rounds=rounds,
                warm_up=False,
                clock=clock_of(conditions),
                watch=watch,
            )
        speed = speedup(full, own)
        tell(plan, speed)
        measured[plan] = speed[0]
        if abs(speed[0] / asked.times - 1) <= TOLERANCE or len(measured) == tries:
            break
        faster *= asked.times / speed[0]
        try:
            plan = choose(faster)
        except UsageError:  # more than that cannot be reached
            break
        if plan in measured:
            break
    nearest = min(measured, key=lambda each: abs(measured[each] / asked.times - 1))
    return nearest, measured[nearest]


def seconds_of(
    model: PrunableModel, plans: Sequence[PruningPlan], conditions: Conditions, *, rounds: int
) -> list[list[float]]:
    """The time of a model with the units of each plan, in each round, in seconds.

    Args:
        model: the unpruned model.
        plans: those whose models take turns.
        conditions: the job, the batch and the machine.
        rounds: number of times that each is timed.

    Raises:
        UsageError: the model cannot be timed.
    """
    backend = timing_backend(model.path)
    with prepared_processor(conditions):
        jobs = [ready(backend, model.prune(plan), conditions).run for plan in plans]
        return taking_turns(jobs, rounds=rounds, warm_up=False, clock=clock_of(conditions))
