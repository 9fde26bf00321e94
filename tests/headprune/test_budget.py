"""Budgets of units, parameters and FLOPs, and plans that keep to them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from headprune import Budget, PruningPlan, UsageError, select
from headprune.budget import MEASURES, Goal, Speedup, file_label
from headprune.cost import Sizes, forward_flops, prunable_parameters, unit_cost

SIZES = Sizes(
    encoder_width=8,
    decoder_width=8,
    encoder_feed_forward=16,
    decoder_feed_forward=16,
    encoder_head_dim=2,
    decoder_head_dim=2,
    vocabulary=0,
)
SHAPE = {"ES": (4,) * 3, "EF": (16,) * 3, "EL": (1,) * 3}


@pytest.mark.parametrize(
    ("text", "budget"),
    [
        ("50%", Budget(50)),
        ("12.5", Budget(12.5)),
        ("60% of parameters", Budget(60, "parameters")),
        ("60% FLOPs", Budget(60, "flops")),
        ("60% of flops at 65 tokens", Budget(60, "flops at 65 tokens")),
        ("60% flops at 1 token", Budget(60, "flops at 1 tokens")),
        ("60% of flops at 30 tokens", Budget(60, "flops")),
    ],
)
def test_parse(text: str, budget: Budget) -> None:
    assert Budget.parse(text) == budget
    assert Budget.parse(str(budget)) == budget


@given(percent=st.floats(0, 100), measure=st.sampled_from((*MEASURES, "flops at 65 tokens")))
@example(percent=12.3456789, measure="units")
@example(percent=0.00001, measure="flops")
@example(percent=-0.0, measure="units")
def test_the_text_of_a_budget_is_read_as_the_same_budget(percent: float, measure: str) -> None:
    assert Budget.parse(str(Budget(percent, measure))) == Budget(percent, measure)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "half",
        "101%",
        "50% of heads",
        "-1%",
        "5% of parameters at 9 tokens",
        "5% of flops at 0 tokens",
    ],
)
def test_what_is_no_budget(text: str) -> None:
    with pytest.raises(UsageError):
        Budget.parse(text)


@pytest.mark.parametrize("measure", ["parameters", "flops"])
@settings(max_examples=30)
@given(percent=st.integers(0, 100), seed=st.integers(0, 99))
def test_a_plan_keeps_to_its_budget_and_prunes_no_more(
    measure: str, percent: int, seed: int
) -> None:
    cost = {
        "parameters": lambda plan: prunable_parameters(plan, SIZES),
        "flops": lambda plan: forward_flops(plan, SIZES),
    }[measure]
    full = cost(PruningPlan.full(SHAPE))
    empty = cost(PruningPlan(kept={name: [()] * 3 for name in SHAPE}, units=SHAPE))
    plan = select.at_random(SHAPE, seed=seed, budget=Budget(percent, measure), cost=cost)
    assert empty <= cost(plan) <= full * (100 - percent) / 100
    assert str(plan.origin and plan.origin.budget).startswith(f"{percent}%")
    lower = select.at_random(SHAPE, seed=seed, budget=Budget(percent / 2, measure), cost=cost)
    assert plan.is_within(lower)


def test_budgets_of_units_are_percentages() -> None:
    assert select.at_random(SHAPE, seed=3, budget=Budget(50)) == select.at_random(
        SHAPE, seed=3, percent=50
    )


def test_a_budget_that_needs_sizes() -> None:
    with pytest.raises(UsageError, match="needs the sizes of the model"):
        select.at_random(SHAPE, seed=1, budget=Budget(50, "flops"))


@pytest.mark.parametrize("length", [4, 30, 500])
def test_the_flops_of_a_budget_are_those_of_its_length(length: int) -> None:
    measure = f"flops at {length} tokens"
    cost = unit_cost(measure, sizes=SIZES, shape=SHAPE)
    empty = PruningPlan(kept={name: [()] * 3 for name in SHAPE}, units=SHAPE)
    for plan in (PruningPlan.full(SHAPE), select.at_random(SHAPE, seed=1, percent=50)):
        flops, least = (
            forward_flops(each, SIZES, source=length, target=length) for each in (plan, empty)
        )
        assert cost(plan) == flops - least


def test_a_length_for_a_model_of_a_fixed_number_of_positions() -> None:
    images = replace(SIZES, encoder_positions=17)
    unit_cost("flops", sizes=images, shape=SHAPE)
    with pytest.raises(UsageError, match="the model reads 17 positions of every input"):
        unit_cost("flops at 65 tokens", sizes=images, shape=SHAPE)


@pytest.mark.parametrize(
    ("goal", "label"),
    [
        (Budget(50), "50"),
        (Budget(12.5, "parameters"), "12.5-parameters"),
        (Budget(50, "flops at 65 tokens"), "50-flops-at-65-tokens"),
        (Speedup(1.5), "1.5x"),
    ],
)
def test_goals_in_names_of_files(goal: Goal, label: str) -> None:
    assert file_label(goal) == label


def test_a_share_in_place_of_a_percentage_is_refused() -> None:
    with pytest.raises(UsageError, match=r"--budget: '0.5' is a share, .*; write 50% or 0.5%"):
        Budget.parse("0.5", option="--budget")
    assert Budget.parse("0.5%").percent == 0.5 and Budget.parse("1").percent == 1
