"""The method ``kwon``: mask search and rearrangement by Fisher information."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING

from headprune.components import HEADS, LAYERS, NEURONS
from headprune.errors import UsageError
from headprune.methods.method import AnyRequest, Outcome, Request, SpeedRequest
from headprune.origin import Origin
from headprune.plan import PruningPlan
from headprune.select.ranking import unit_costs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from torch import Tensor

    Blocks = Mapping[tuple[str, int], Tensor]


@dataclass(frozen=True)
class Kwon:
    """Choose heads and neurons together by Fisher information (Kwon et al. 2022).

    Their third step, re-fitting, is ``--recovery refit``.
    """

    name: str = "kwon"
    meaning: str = (
        "heads and neurons together by Fisher information under a cost (Kwon et al. 2022)"
    )
    needs_scores: tuple[str, ...] = ()
    needs_model: bool = True
    draws: bool = False

    def run(self, request: Request) -> Outcome:
        """Search the mask, and rearrange it within each layer."""
        from headprune.select.mask_search import search_mask

        pool, budget = request.plan, request.budget
        self.require_components([*pool.units], measure=budget.of)
        blocks = self._fisher_blocks(request)
        importance = {
            (name, layer, unit): value
            for (name, layer), block in blocks.items()
            for unit, value in zip(pool.kept[name][layer], block.diagonal().tolist(), strict=True)
        }
        full = PruningPlan.full(pool.units)
        cost = request.cost or (lambda plan: plan.total_kept)
        most = budget.kept_share(cost(full))
        if budget.of == "units":
            most = Fraction(budget.number_kept(full.total))
        plan = search_mask(
            importance,
            pool=pool,
            unit_cost=unit_costs(full, cost).__getitem__,
            most=most,
            at_least=request.at_least or 0,
        )
        plan = _rearranged(plan, pool, blocks)
        origin = Origin(method=self.name, budget=str(budget), at_least=request.at_least)
        return Outcome(plan=plan.with_origin(origin))

    def require_components(self, components: Sequence[str], *, measure: str) -> None:
        """Check that heads and neurons alone compete, and not by their number.

        Raises:
            UsageError: layers, or shares of heads and neurons together.
        """
        wrong = [name for name in components if name not in (*HEADS, *NEURONS)]
        if wrong:
            raise UsageError(f"{self.name} chooses heads and neurons, not {', '.join(wrong)}")
        if measure == "units" and {*components} & {*HEADS} and {*components} & {*NEURONS}:
            raise UsageError(
                f"{self.name}: a head costs more than a neuron; give a budget of flops or of "
                "parameters"
            )

    def at_speed(self, request: SpeedRequest) -> Outcome:
        """Choose the least sum of Fisher information, and rearrange it within each layer.

        The numbers of units are those of a knapsack over measured times, in which layers may be
        dropped too. Kwon et al. fit a straight line to the times of a layer and search as for
        FLOPs.
        """
        from headprune.scores.head_scores import HeadScores
        from headprune.select.speed import by_speed

        pool = request.plan
        blocks = self._fisher_blocks(request)
        scores = HeadScores(
            name=self.name,
            values={
                name: [
                    blocks[name, layer].diagonal().tolist() if (name, layer) in blocks else []
                    for layer in range(len(layers))
                ]
                for name, layers in pool.units.items()
                if name not in LAYERS
            },
        )
        plan = by_speed(
            scores,
            request.latency,
            request.speedup,
            components=[*pool.units],
            at_least=request.kept_at_least,
        )
        plan = _rearranged(plan, pool, blocks)
        origin = Origin(method=self.name, budget=str(request.speedup), at_least=request.at_least)
        return Outcome(plan=plan.with_origin(origin))

    def _fisher_blocks(self, request: AnyRequest) -> Blocks:
        """The Fisher information of the heads and neurons that compete, U' x U' in each layer."""
        from headprune.scores.fisher import fisher_blocks

        if request.model is None:
            raise UsageError(f"{self.name} computes gradients of the model; it needs a model")
        pool = request.plan
        components = [name for name in pool.units if name not in LAYERS]
        if not components:
            raise UsageError(f"{self.name} chooses heads and neurons, not only layers")
        calibration = request.model.calibration()
        blocks = {}
        for (name, layer), block in fisher_blocks(
            calibration.model, calibration.batches("Fisher information"), components=components
        ).items():
            present = calibration.model.sublayers[name][layer].present
            places = [present.index(unit) for unit in pool.kept[name][layer]]
            blocks[name, layer] = block[places][:, places]
        return blocks


def _rearranged(plan: PruningPlan, pool: PruningPlan, blocks: Blocks) -> PruningPlan:
    """Swap units within layers, to keep those that are most important together.

    The number of units of each layer stays.
    """
    from headprune.select.mask_search import rearrange

    kept = {
        name: [
            rearrange(units, pool.kept[name][layer], blocks[name, layer])
            if (name, layer) in blocks
            else units
            for layer, units in enumerate(layers)
        ]
        for name, layers in plan.kept.items()
    }
    return PruningPlan(kept=kept, units=plan.units)
