"""Methods: each returns a plan for a model and a budget, and the model if it trains one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeGuard

from headprune.budget import Budget, Speedup
from headprune.components import LAYERS
from headprune.errors import UsageError
from headprune.plan import PruningPlan
from headprune.select.ranking import Cost

if TYPE_CHECKING:  # it imports torch, and plans are made without it
    from headprune.scores.head_scores import HeadScores
    from headprune.speed.latency import Latency
    from headprune.task_model import TaskModel


def heads_and_neurons(plan: PruningPlan, *, message: str) -> PruningPlan:
    """The heads and neurons among the units of a plan.

    Raises:
        UsageError: there are none, with this message.
    """
    part = plan.part([name for name in plan.units if name not in LAYERS])
    if part is None:
        raise UsageError(message)
    return part


@dataclass(frozen=True, kw_only=True)
class AnyRequest:
    """The input of a method, without the amount to prune.

    Attributes:
        plan: the units that the model keeps before, of the components whose units compete.
        seed: the seed of the method's random choices and trainings.
        at_least: units that every layer keeps; None: the method's own default.
        scores: the model's scores by name, as in ``needs_scores``.
        model: the model with its data; None where only a shape is given.
        folder: the method's working folder; files of an interrupted run are used again.
        chosen: the plan that the method has chosen before, for a method that trains: its model is
            wanted.
    """

    plan: PruningPlan
    seed: int = 1
    at_least: int | None = None
    scores: Mapping[str, HeadScores] = field(default_factory=dict)
    model: TaskModel | None = None
    folder: Path | None = None
    chosen: PruningPlan | None = None


@dataclass(frozen=True, kw_only=True)
class Request(AnyRequest):
    """The input of a method that prunes a share.

    Attributes:
        budget: the share of the plan's units to prune.
        cost: function that computes the cost of a plan, for budgets of parameters or FLOPs.
    """

    budget: Budget
    cost: Cost | None = None


@dataclass(frozen=True, kw_only=True)
class SpeedRequest(AnyRequest):
    """The input of a method that prunes an unpruned model to a speed.

    Attributes:
        speedup: the predicted speed to reach.
        latency: the time that units save.
    """

    speedup: Speedup
    latency: Latency

    @property
    def kept_at_least(self) -> int:
        """Units that every layer keeps, of methods that keep one by default."""
        return 1 if self.at_least is None else self.at_least


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """The result of a method.

    Attributes:
        plan: the units that are kept, with their origin.
        model: the folder or file of the model that the method trained, which ``plan`` prunes; None
            if it trained none.
        seconds: the time of the choice, with that of files of earlier runs which were used again;
            None: that of this run.
    """

    plan: PruningPlan
    model: Path | None = None
    seconds: float | None = None


class Method(Protocol):
    """A way to prune."""

    @property
    def name(self) -> str:
        """The method's name, as published."""

    @property
    def meaning(self) -> str:
        """One line for help texts."""

    @property
    def needs_scores(self) -> Sequence[str]:
        """The names of the scores by which the method chooses units."""

    @property
    def needs_model(self) -> bool:
        """True if the method needs the model and not just its shape."""

    @property
    def draws(self) -> bool:
        """True if the plan depends on the seed."""

    def run(self, request: Request) -> Outcome:
        """Choose the units to keep.

        Raises:
            UsageError: a budget that cannot be reached.
        """


class SpeedMethod(Method, Protocol):
    """A method that can prune to a speed."""

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Choose the units to keep, so that the predicted speed is the one that is asked for.

        Raises:
            UsageError: a speed that cannot be reached.
        """


def takes_speed(method: Method) -> TypeGuard[SpeedMethod]:
    """Check if a method can prune to a speed."""
    return hasattr(type(method), "at_speed")


class LimitedSpeedMethod(SpeedMethod, Protocol):
    """A method whose highest speed may be below that of other methods."""

    def require_speed(self, request: SpeedRequest) -> None:
        """Check before anything is computed that the speed can be reached.

        Raises:
            UsageError: it cannot.
        """


def is_limited(method: Method) -> TypeGuard[LimitedSpeedMethod]:
    """Check if a method has a highest speed of its own."""
    return hasattr(type(method), "require_speed")


class RestrictedMethod(Method, Protocol):
    """A method that chooses among the units of some components only."""

    def require_components(self, components: Sequence[str], *, measure: str) -> None:
        """Check before anything is computed that the method can choose among these units.

        Args:
            components: the components whose units compete.
            measure: what budgets are shares of; see ``Budget``.

        Raises:
            UsageError: it cannot.
        """


def is_restricted(method: Method) -> TypeGuard[RestrictedMethod]:
    """Check if a method chooses among the units of some components only."""
    return hasattr(type(method), "require_components")


class TrainingMethod(Method, Protocol):
    """A method that trains the model while it chooses; its outcomes have a ``model``."""

    def require_possible(self, model: TaskModel, components: Sequence[str]) -> None:
        """Check before anything is computed that the model can be trained.

        Raises:
            UsageError: no settings for a training, or components that the method cannot prune.
        """


def is_training(method: Method) -> TypeGuard[TrainingMethod]:
    """Check if a method trains the model."""
    # Without reading its attributes: the meaning of a score's method may be unknown.
    return hasattr(type(method), "require_possible")
