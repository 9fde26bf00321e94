"""Methods that train the model while they choose its units."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from headprune.budget import NEAR, Budget, measure_label, percent_text
from headprune.components import LAYERS
from headprune.errors import UsageError
from headprune.files import write_text_atomically
from headprune.methods.by_location import DROP_LAYERS, DropLayers
from headprune.methods.method import AnyRequest, Outcome, Request, SpeedRequest
from headprune.origin import Origin
from headprune.plan import PruningPlan
from headprune.recovery.variant import L0_GATES, GateTraining, Variant
from headprune.select.in_order import require_reachable
from headprune.task_model import TaskModel
from headprune.wording import counted

LAYERDROP = 0.2
"""The probability that Fan et al. (2020) train with."""

TRIES = 3
"""The trainings with gates for one speed, at most."""

MOST = 99.0
"""The largest target, in percent: gates that close everything learn nothing."""


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
        trained, seconds = _trained(
            self.name,
            request,
            Variant(gates=GateTraining(components=components, budget=request.budget)),
            label=f"{self.name}-{percent_text(request.budget.percent)}-{measure_label(request.budget.of)}",
        )
        plan = trained.model.plan.completed(request.plan.units).part(components)
        assert plan is not None
        origin = Origin(method=self.name, seed=request.seed, budget=str(request.budget))
        return Outcome(plan=plan.with_origin(origin), model=trained.model.path, seconds=seconds)

    def require_speed(self, request: SpeedRequest) -> None:
        """Check before anything is trained that the speed is reached without any unit.

        Raises:
            UsageError: it is not.
        """
        names = [*request.plan.units]
        request.latency.require_components(names)
        require_reachable(
            _nothing_of(request.plan), request.speedup, request.latency, pruned=", ".join(names)
        )

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Train with a target of FLOPs, and again with another one until the speed is near.

        The first target is in proportion to the time that is to be saved. It is corrected up to
        twice, until the predicted speed is within 5% of the one that is asked for. A warning says
        where it is not.

        Raises:
            UsageError: as ``run``, or a speed that cannot be reached.
        """
        self.require_speed(request)
        latency, times = request.latency, request.speedup.times
        known = None if request.chosen is None else request.chosen.origin
        if known is not None and known.target is not None:
            return self._at_target(Budget.parse(known.target), request)
        wanted = 1 - 1 / times  # the share of the time to save
        percent = 100 * wanted / (1 - 1 / latency.speedup_of(_nothing_of(request.plan)))
        distances: dict[str, float] = {}
        outcomes: dict[str, Outcome] = {}
        while len(outcomes) < TRIES:
            target = Budget(min(MOST, round(percent, 1)), "flops")
            if str(target) in outcomes:
                break
            outcome = self._at_target(target, request)
            speed = latency.speedup_of(outcome.plan)
            outcomes[str(target)] = outcome
            distances[str(target)] = abs(speed / times - 1)
            if request.speedup.is_near(speed) or speed == 1:
                break
            percent = target.percent * wanted / (1 - 1 / speed)
        nearest = outcomes[min(distances, key=lambda name: distances[name])]
        reached = latency.speedup_of(nearest.plan)
        if not request.speedup.is_near(reached):
            print(
                f"warning: {self.name} {request.speedup}, seed {request.seed}: not reached within "
                f"{NEAR:.0%} in {counted(len(outcomes), 'training')}; the nearest is predicted at "
                f"{reached:.2f}x",
                file=sys.stderr,
            )
        return replace(nearest, seconds=sum(each.seconds or 0.0 for each in outcomes.values()))

    def _at_target(self, target: Budget, request: SpeedRequest) -> Outcome:
        """The model trained to a target, with the speed as the budget of its plan."""
        outcome = self.run(
            Request(
                plan=request.plan,
                seed=request.seed,
                at_least=request.at_least,
                model=request.model,
                folder=request.folder,
                budget=target,
            )
        )
        origin = Origin(
            method=self.name, seed=request.seed, budget=str(request.speedup), target=str(target)
        )
        return replace(outcome, plan=outcome.plan.with_origin(origin))


def _nothing_of(plan: PruningPlan) -> PruningPlan:
    """The plan of these components without any unit."""
    return PruningPlan(
        kept={name: [()] * len(layers) for name, layers in plan.units.items()}, units=plan.units
    )


@dataclass(frozen=True)
class TrainLayerDrop:
    """Train the model with LayerDrop, then drop every second layer (Fan et al. 2020).

    For a speed, heads and neurons may compete too; they all stay.

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
        """Check that there are layers to drop, and settings for a training."""
        if not set(components) & {*LAYERS}:
            raise self._no_layers()
        _require_training(self.name, model)

    def require_components(self, components: Sequence[str], *, measure: str) -> None:
        """Check that layers alone compete for a share.

        Raises:
            UsageError: units of other components.
        """
        if set(components) - {*LAYERS}:
            raise self._no_layers()

    def require_speed(self, request: SpeedRequest) -> None:
        """Check before anything is trained that dropping layers reaches the speed.

        Raises:
            UsageError: it does not.
        """
        _alternate().at_speed(request)

    def _no_layers(self) -> UsageError:
        return UsageError(f"{self.name} drops whole layers; give --components EL, DL or EL,DL")

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
        variant = Variant(layerdrop=LAYERDROP)
        trained, seconds = _trained(self.name, request, variant, label=self.name)
        origin = Origin(
            method=self.name, seed=request.seed, budget=budget, at_least=request.at_least
        )
        return Outcome(plan=plan.with_origin(origin), model=trained.model.path, seconds=seconds)


def _alternate() -> DropLayers:
    (method,) = (each for each in DROP_LAYERS if each.name == "layers-alternate")
    return method


def _require_training(name: str, model: TaskModel) -> None:
    if not model.can_finetune:
        raise UsageError(f"{name} trains the model: give --epochs, or --finetune for a checkpoint")


def _trained(
    name: str, request: AnyRequest, variant: Variant, *, label: str
) -> tuple[TaskModel, float]:
    """The model of the request, trained, and the seconds that took.

    A finished training is not repeated. Of one that was interrupted, only the last part counts.
    """
    model = request.model
    if model is None or request.folder is None:
        raise UsageError(f"{name} trains the model; use it in `headprune compare`")
    _require_training(name, model)
    folder = request.folder / f"{label}-seed{request.seed}"
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    trained = model.finetuned(model.model.plan, seed=request.seed, folder=folder, variant=variant)
    seconds = folder.with_name(f"{folder.name}.seconds")
    if not seconds.is_file():
        write_text_atomically(seconds, f"{time.monotonic() - started:.3f}\n")
    return trained, float(seconds.read_text())
