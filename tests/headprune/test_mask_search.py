"""The mask search against all combinations, and the rearrangement."""

from __future__ import annotations

import itertools
import random

import pytest
import torch

from headprune import PruningPlan, UsageError
from headprune.select.mask_search import rearrange, search_mask

COSTS = {"ES": 7, "EF": 2}
FULL = PruningPlan.full({"ES": (2, 2), "EF": (3, 3)})
UNITS = [
    (name, layer, unit)
    for name, layers in FULL.kept.items()
    for layer, units in enumerate(layers)
    for unit in units
]


def cost_of(units):
    return sum(COSTS[name] for name, _, _ in units)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("at_least", [0, 1])
def test_no_other_mask_of_that_cost_has_more_importance(seed: int, at_least: int) -> None:
    draw = random.Random(seed)
    importance = {unit: draw.random() * (5 if unit[0] == "ES" else 1) for unit in UNITS}
    layers = {unit[:2] for unit in UNITS}
    for most in (cost_of(UNITS), 25, 20, 18):
        plan = search_mask(
            importance, pool=FULL, unit_cost=COSTS.__getitem__, most=most, at_least=at_least
        )
        best = max(
            sum(importance[unit] for unit in chosen)
            for number in range(len(UNITS) + 1)
            for chosen in itertools.combinations(UNITS, number)
            if cost_of(chosen) <= most
            and all(sum(u[:2] == layer for u in chosen) >= at_least for layer in layers)
        )
        kept = [unit for unit in UNITS if unit[2] in plan.kept[unit[0]][unit[1]]]
        assert cost_of(kept) <= most
        assert sum(importance[unit] for unit in kept) == pytest.approx(best)
    if at_least:
        with pytest.raises(UsageError, match="cost more than the budget leaves"):
            search_mask(importance, pool=FULL, unit_cost=COSTS.__getitem__, most=17, at_least=1)


def together(pruned: list[int], fisher: torch.Tensor) -> float:
    return float(fisher[pruned][:, pruned].sum())


def test_units_are_swapped_only_for_the_better() -> None:
    torch.manual_seed(1)
    better = 0
    for _ in range(20):
        gradients = torch.randn(8, 6)
        fisher = gradients.T @ gradients / 8
        units = (0, 2, 3, 5, 8, 9)
        kept = tuple(units[place] for place in fisher.diagonal().argsort()[3:].tolist())
        arranged = rearrange(sorted(kept), units, fisher)
        assert len(arranged) == 3 and set(arranged) <= set(units)
        before, after = (
            together([place for place, unit in enumerate(units) if unit not in each], fisher)
            for each in (kept, arranged)
        )
        assert after <= before + 1e-6
        better += after < before - 1e-6
    assert better


def test_two_units_that_do_the_same_are_not_both_pruned() -> None:
    # Units 0 and 1 replace each other: each alone matters little, both together matter much.
    gradients = torch.tensor([[1.0, 1.0, 0.0, 2.0], [0.0, 0.0, 1.2, 2.0]])
    fisher = gradients.T @ gradients / 2
    assert rearrange((2, 3), (0, 1, 2, 3), fisher) != (2, 3)
    assert 3 in rearrange((2, 3), (0, 1, 2, 3), fisher)
    assert rearrange((), (0, 1, 2, 3), fisher) == ()
