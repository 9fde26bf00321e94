"""Methods that train the model while they choose its units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headprune.budget import percent_text
from headprune.components import LAYERS
from headprune.errors import UsageError
from headprune.methods.by_location import DROP_LAYERS, DropLayers
from headprune.methods.method import AnyRequest, Outcome, Request, SpeedRequest
from headprune.origin import Origin
from headprune.plan import PruningPlan
from headprune.recovery.variant import L0_GATES, GateTarget, Variant
from headprune.task_model import TaskModel

LAYERDROP = 0.2
"""The probability that Fan et al. (2020) train with."""


@dataclass(frozen=True)
class TrainGates:
    """Train the model with L0 gates to the budget, and close them (Louizos et al. 2018).

    The training is as long as a fine-tuning after pruning. The budget's target is met as nearly as
    it can be; no layer is made to keep units.
    """

    name: str = L0_GATES
    meaning: str = "gates trained with an L0 penalty (Louizos et al. 2018, Voita et al. 2019)"
    needs_scores: tuple[str, ...] = ()
    needs_model: bool = True
    draws: bool = True

    def require_possible(self, model: TaskModel, components: Sequence[str]) -> None:
        """Check that there are settings for a training."""
        _require_training(self.name, model)

    def run(self, request: Request) -> Outcome:
        """Train and close the gates.

        Raises:
            UsageError: no settings for a training, or gates that the model cannot have.
        """
        components = tuple(request.plan.units)
        trained = _trained(
            self.name,
            request,
            Variant(gates=GateTarget(components=components, budget=request.budget)),
            label=f"{self.name}-{percent_text(request.budget.percent)}-{request.budget.of}",
        )
        plan = trained.model.plan.completed(request.plan.units).part(components)
        assert plan is not None
        origin = Origin(method=self.name, seed=request.seed, budget=str(request.budget))
        return Outcome(plan=plan.with_origin(origin), model=trained.model.path)


@dataclass(frozen=True)
class TrainLayerDrop:
    """Train the model with LayerDrop, then drop every second layer (Fan et al. 2020).

    For 50% these are the layers of Fan et al. For other shares they spread the dropped layers
    evenly; here they are dropped in the order of ``layers-alternate`` (Sajjad et al. 2020). The
    training is as long as a fine-tuning after pruning, and serves all budgets.
    """

    name: str = "layerdrop"
    meaning: str = "layers dropped after a training that skips layers at random (Fan et al. 2020)"
    needs_scores: tuple[str, ...] = ()
    needs_model: bool = True
    draws: bool = True

    def require_possible(self, model: TaskModel, components: Sequence[str]) -> None:
        """Check that layers are pruned, and that there are settings for a training."""
        if set(components) - {*LAYERS}:
            raise UsageError(f"{self.name} drops whole layers; give --components EL, DL or EL,DL")
        _require_training(self.name, model)

    def run(self, request: Request) -> Outcome:
        """Train, then drop layers.

        Raises:
            UsageError: no settings for a training, or components whose units are not layers.
        """
        return self._trained(_alternate().run(request).plan, request, str(request.budget))

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Train, then drop layers until the speed is reached.

        Raises:
            UsageError: as ``run``, or a speed that cannot be reached.
        """
        return self._trained(_alternate().at_speed(request).plan, request, str(request.speedup))

    def _trained(self, plan: PruningPlan, request: AnyRequest, budget: str) -> Outcome:
        trained = _trained(self.name, request, Variant(layerdrop=LAYERDROP), label=self.name)
        origin = Origin(method=self.name, seed=request.seed, budget=budget)
        return Outcome(plan=plan.with_origin(origin), model=trained.model.path)


def _alternate() -> DropLayers:
    (method,) = (each for each in DROP_LAYERS if each.name == "layers-alternate")
    return method


def _require_training(name: str, model: TaskModel) -> None:
    if not model.can_finetune:
        raise UsageError(f"{name} trains the model: give --epochs, or --finetune for a checkpoint")


def _trained(name: str, request: AnyRequest, variant: Variant, *, label: str) -> TaskModel:
    """The model of the request, trained; a finished training is not repeated."""
    model = request.model
    if model is None or request.folder is None:
        raise UsageError(f"{name} trains the model; use it in `headprune compare`")
    _require_training(name, model)
    folder = request.folder / f"{label}-seed{request.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    return model.finetuned(model.model.plan, seed=request.seed, folder=folder, variant=variant)
