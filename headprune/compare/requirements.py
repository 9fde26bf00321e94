"""Checks of a comparison before anything is computed."""

from __future__ import annotations

from collections.abc import Sequence

from headprune.budget import Speedup
from headprune.compare.competition import Competition
from headprune.errors import UsageError
from headprune.methods.method import (
    Method,
    SpeedRequest,
    is_limited,
    is_restricted,
    is_training,
    takes_speed,
)
from headprune.recovery.kinds import Recovery
from headprune.scores.head_scores import HeadScores
from headprune.select.speed import by_speed
from headprune.speed.latency import Latency
from headprune.task_model import TaskModel, translates


def require_methods(
    methods: Sequence[Method],
    model: TaskModel,
    competition: Competition,
    *,
    latency: Latency | None,
) -> None:
    """Raise a UsageError for methods that cannot prune these units, or cannot train the model."""
    for method in methods:
        if latency is not None and not takes_speed(method):
            raise UsageError(
                f"{method.name} prunes a share, not to a speed; give --percent or --budget"
            )
        if is_restricted(method) and latency is None:
            method.require_components(competition.components, measure=competition.measure)
        if is_training(method):
            method.require_possible(model, competition.components)


def require_speeds(
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
            try:
                if is_limited(method):
                    method.require_speed(request)
                elif takes_speed(method) and not (method.needs_scores or method.needs_model):
                    method.at_speed(request)
            except UsageError as problem:
                raise UsageError(f"{method.name}: {problem}") from None


def possible_recoveries(
    model: TaskModel, recoveries: Sequence[Recovery], *, methods: Sequence[Method]
) -> list[Recovery]:
    """The recoveries that can be done with ``model``, each once.

    Raises:
        UsageError: settings of a fine-tuning without one, or the other way round; or translations
            of a model that does not translate.
    """
    asked = list(dict.fromkeys(recoveries))
    if Recovery.DISTILL_SEQUENCES in asked and not translates(model):
        raise UsageError(
            f"--recovery {Recovery.DISTILL_SEQUENCES}: {model.model.path} does not translate; take "
            f"--recovery {Recovery.DISTILL}"
        )
    trained = [each for each in asked if each.trains]
    if model.can_finetune and not trained and not any(map(is_training, methods)):
        names = ", ".join(asked)
        raise UsageError(f"--recovery {names}: give no epochs or flags for fine-tuning with it")
    for each in asked:
        if each.trains and each != Recovery.FINETUNE and not model.can_finetune:
            raise UsageError(f"--recovery {each}: give --epochs, or --finetune for a checkpoint")
    untrained = [each for each in asked if each not in (*trained, Recovery.NONE)]
    return [each for each in asked if each in untrained or model.can_finetune and each in trained]
