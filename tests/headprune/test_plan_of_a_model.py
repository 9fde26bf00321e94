"""The form in which a model states its plan, and plans put together."""

from __future__ import annotations

from typing import Any

import pytest

from headprune import PruningPlan, select

SHAPE = {"ES": (2, 2), "DS": (2,), "EF": (6, 6), "EL": (1, 1), "DL": (1,)}


def plan_of(**kept: Any) -> PruningPlan:
    return PruningPlan(kept=kept, units={name: SHAPE[name] for name in kept})


@pytest.mark.parametrize(
    ("plan", "text"),
    [
        (PruningPlan.full(SHAPE), "ES=22 DS=2"),
        (plan_of(DS=[(1,)]), "ES=22 DS=1"),
        (plan_of(EF=[(0,), range(6)]), "ES=22 DS=2 EF=16"),
        # a dropped layer has no unit, and says nothing about neurons
        (plan_of(EL=[(), (0,)]), "ES=02 DS=2 EL=01"),
        (plan_of(EL=[(), (0,)], EF=[(3,), range(6)]), "ES=02 DS=2 EL=01"),
        (plan_of(EL=[(), (0,)], EF=[range(6), (3,)]), "ES=02 DS=2 EF=01 EL=01"),
    ],
)
def test_the_plan_of_a_model(plan: PruningPlan, text: str) -> None:
    stated = plan.normalised(SHAPE)
    assert str(stated) == text
    assert stated.normalised(SHAPE) == stated


def test_dropped_layers_leave_no_units_of_other_components() -> None:
    left = plan_of(EL=[(), (0,)]).units_left(SHAPE)
    assert left.counts == {"EL": (0, 1), "ES": (0, 2), "DS": (2,), "EF": (0, 6), "DL": (1,)}


def test_components_of_another_plan_come_in_place_of_its_own() -> None:
    plan = plan_of(DS=[(1,)], EF=[(1, 2), (3,)]).replaced_by(plan_of(EF=[(2,), ()], EL=[(0,), ()]))
    assert plan == plan_of(DS=[(1,)], EF=[(2,), ()], EL=[(0,), ()])


def test_units_are_chosen_within_a_plan_of_further_components() -> None:
    """Heads of dropped layers are not there to be chosen."""
    heads = {name: SHAPE[name] for name in ("ES", "DS")}
    within = plan_of(EL=[(), (0,)], EF=[(1,), (2,)])
    chosen = select.at_random(heads, seed=1, percent=50, within=within)
    assert chosen.total_kept == 3 and chosen.kept["ES"][0] == ()
