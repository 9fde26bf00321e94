"""The method ``kwon``: mask search and rearrangement by Fisher information."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from headprune.components import HEADS, NEURONS
from headprune.errors import UsageError
from headprune.methods.method import Outcome, Request
from headprune.origin import Origin
from headprune.plan import PruningPlan


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
        from headprune.scores.fisher import fisher_blocks
        from headprune.select.mask_search import rearrange, search_mask

        if request.model is None:
            raise UsageError(f"{self.name} computes gradients of the model; it needs a model")
        pool, budget = request.plan, request.budget
        wrong = [name for name in pool.units if name not in (*HEADS, *NEURONS)]
        if wrong:
            raise UsageError(f"{self.name} chooses heads and neurons, not {', '.join(wrong)}")
        if (
            budget.of == "units"
            and any(n in HEADS for n in pool.units)
            and (any(n in NEURONS for n in pool.units))
        ):
            raise UsageError(
                f"{self.name}: a head costs more than a neuron; give a budget of flops or of "
                "parameters"
            )
        calibration = request.model.calibration()
        blocks = {}
        for (name, layer), block in fisher_blocks(
            calibration.model, calibration.batches("Fisher information"), components=[*pool.units]
        ).items():
            present = calibration.model.sublayers[name][layer].present
            places = [present.index(unit) for unit in pool.kept[name][layer]]
            blocks[name, layer] = block[places][:, places]
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
            unit_cost=lambda name: cost(full) - cost(_without_one(full, name)),
            most=most,
            at_least=request.at_least or 0,
        )
        kept = {
            name: [
                rearrange(units, pool.kept[name][layer], blocks[name, layer])
                if (name, layer) in blocks
                else units
                for layer, units in enumerate(layers)
            ]
            for name, layers in plan.kept.items()
        }
        plan = PruningPlan(kept=kept, units=pool.units)
        origin = Origin(method=self.name, budget=str(budget))
        return Outcome(plan=plan.with_origin(origin))


def _without_one(full: PruningPlan, component: str) -> PruningPlan:
    """The plan without one unit of a component."""
    kept = {name: list(layers) for name, layers in full.kept.items()}
    layer = next(number for number, units in enumerate(kept[component]) if units)
    kept[component][layer] = kept[component][layer][1:]
    return PruningPlan(kept=kept, units=full.units)
