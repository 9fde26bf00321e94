"""Methods that prune whole sub-layers by the position of their layer."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

from headprune.components import LAYERS
from headprune.errors import UsageError
from headprune.methods.method import AnyRequest, Outcome, Request, SpeedRequest
from headprune.origin import Origin
from headprune.plan import PruningPlan
from headprune.select.in_order import first_at_speed
from headprune.select.random import lot
from headprune.select.ranking import Order, Unit, keep_first

DistanceFrom = Callable[[int, int], float]
"""A function of the number of a layer and the number of layers; layers with low values are pruned
first."""


@dataclass(frozen=True)
class Location:
    """Prune the units of one layer after the other (Budhraja et al. 2020, tables 5 and 6).

    The units of the last layer that the budget reaches are drawn at random.
    """

    name: str
    meaning: str
    distance: DistanceFrom
    needs_scores: tuple[str, ...] = ()
    needs_model: bool = False
    draws: bool = True

    def priority(self, plan: PruningPlan, component: str, layer: int) -> float:
        """The rank of a layer; the layers with the lowest rank are pruned last."""
        return -self.distance(layer, len(plan.units[component]))

    def run(self, request: Request) -> Outcome:
        """Prune layer by layer."""
        kept = keep_first(
            request.plan.units,
            order=self._order(request),
            budget=request.budget,
            cost=request.cost,
            at_least=request.at_least or 0,
            within=request.plan,
        )
        origin = Origin(
            method=self.name,
            seed=request.seed,
            budget=str(request.budget),
            at_least=request.at_least,
        )
        return Outcome(plan=kept.with_origin(origin))

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Prune layer by layer until the speed is reached."""
        kept = first_at_speed(
            request.plan,
            order=self._order(request),
            speedup=request.speedup,
            latency=request.latency,
            at_least=request.at_least or 0,
        )
        origin = Origin(
            method=self.name,
            seed=request.seed,
            budget=str(request.speedup),
            at_least=request.at_least,
        )
        return Outcome(plan=kept.with_origin(origin))

    def _order(self, request: AnyRequest) -> Order:
        """The order in which units are kept."""
        plan = request.plan
        components = list(plan.units)

        def order(unit: Unit) -> tuple[float, int, int]:
            component, layer, _ = unit
            priority = self.priority(plan, component, layer)
            return priority, components.index(component), lot(request.seed, unit)

        return order


BOTTOM = Location("bottom", "layers from the embeddings up", lambda layer, _: layer)
TOP = Location("top", "layers from the top down", lambda layer, depth: depth - 1 - layer)
MIDDLE = Location(
    "middle",
    "layers from the middle outwards",
    lambda layer, depth: abs(layer - (depth - 1) / 2 + 0.25),  # of two, the lower one first
)


@dataclass(frozen=True)
class DropLayers(Location):
    """Drop whole layers, one after the other (Sajjad et al. 2020, section 3).

    Stacks of different depth compete by the distance in parts of their depth. The last layer of
    each is dropped after all others, so that every stack keeps one as long as the budget allows.
    """

    draws: bool = False

    def priority(self, plan: PruningPlan, component: str, layer: int) -> float:
        """The rank of a layer; the layers with the lowest rank are pruned last."""
        depth = len(plan.units[component])
        kept = [number for number, units in enumerate(plan.kept[component]) if units]
        last = max(kept, key=lambda number: self.distance(number, depth), default=None)
        return -inf if layer == last else -self.distance(layer, depth) / depth

    def run(self, request: Request) -> Outcome:
        """Drop layer by layer.

        Raises:
            UsageError: components whose units are not layers.
        """
        self.require_components([*request.plan.units], measure=request.budget.of)
        plan = super().run(request).plan
        origin = Origin(method=self.name, budget=str(request.budget), at_least=request.at_least)
        return Outcome(plan=plan.with_origin(origin))

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Drop layer by layer until the speed is reached. Units of other components all stay.

        Raises:
            UsageError: no layers among the components, or a speed that cannot be reached.
        """
        layers = request.plan.part([name for name in request.plan.units if name in LAYERS])
        if layers is None:
            raise self._other_units(request.plan.units)
        plan = super().at_speed(replace(request, plan=layers)).plan
        origin = Origin(method=self.name, budget=str(request.speedup), at_least=request.at_least)
        return Outcome(plan=request.plan.replaced_by(plan).with_origin(origin))

    def require_components(self, components: Sequence[str], *, measure: str) -> None:
        """Check that layers alone compete.

        Raises:
            UsageError: units of other components.
        """
        others = [name for name in components if name not in LAYERS]
        if others:
            raise self._other_units(others)

    def _other_units(self, components: Iterable[str]) -> UsageError:
        return UsageError(
            f"{self.name} drops whole layers, not units of {', '.join(components)}; give "
            "--components EL, DL or EL,DL"
        )


def _alternate(layer: int, depth: int) -> int:
    """The layer below the top one first, then every second one below it; the others last."""
    below_top = depth - 1 - layer
    return below_top if below_top % 2 else depth + below_top


DROP_LAYERS = (
    DropLayers("layers-top", "whole layers from the top down (Sajjad et al. 2020)", TOP.distance),
    DropLayers("layers-bottom", "whole layers from the embeddings up", BOTTOM.distance),
    DropLayers("layers-alternate", "every second layer, from below the top layer down", _alternate),
    DropLayers(
        "layers-symmetric", "whole layers from the middle, top and bottom stay", MIDDLE.distance
    ),
)
