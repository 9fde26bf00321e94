"""Keeping the heads that come first: the fast way and the plain one agree."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headprune import HeadPlan, UsageError, select
from headprune.budget import Budget
from headprune.select.ranking import Unit, keep_first
from headprune.select.steps import budgets_of_steps
from tests.command import headprune

from .strategies import plans


def plain_choice(
    pool: HeadPlan, components: list[str], number: int, *, ranks: dict[Unit, int], at_least: int
) -> set[Unit] | None:
    """The heads kept, looking through all heads for every layer; None where that cannot be had."""
    everything = [
        (name, layer, head)
        for name in components
        for layer, kept in enumerate(pool.kept[name])
        for head in kept
    ]
    ranked = sorted(everything, key=ranks.__getitem__)
    chosen: set[Unit] = set()
    for name in components:
        for layer in range(len(pool.kept[name])):
            first = [head for head in ranked if head[:2] == (name, layer)][:at_least]
            if len(first) < at_least:
                return None
            chosen.update(first)
    if not len(chosen) <= number <= len(everything):
        return None
    for head in ranked:
        if len(chosen) < number:
            chosen.add(head)
    return chosen


@given(pool=plans(), seed=st.integers(0, 1000), share=st.floats(0, 100), at_least=st.integers(0, 2))
def test_layers_that_compete(pool: HeadPlan, seed: int, share: float, at_least: int) -> None:
    heads = [
        (name, layer, head)
        for name, layers in pool.units.items()
        for layer, total in enumerate(layers)
        for head in range(total)
    ]
    order = random.Random(seed).sample(range(len(heads)), len(heads))
    ranks = dict(zip(heads, order, strict=True))
    number = round(pool.total * share / 100)
    expected = plain_choice(pool, list(pool.units), number, ranks=ranks, at_least=at_least)
    percent = 100 * (pool.total - number) / pool.total
    try:
        plan = keep_first(
            pool.units,
            order=ranks.__getitem__,
            percent=percent,
            at_least=at_least,
            within=pool,
        )
    except UsageError:
        assert expected is None
        return
    chosen = {
        (name, layer, head)
        for name, layers in plan.kept.items()
        for layer, kept in enumerate(layers)
        for head in kept
    }
    assert chosen == expected


def test_a_layer_that_was_dropped_before_keeps_no_head() -> None:
    units = {"ES": (4, 4), "EL": (1, 1)}
    pool = HeadPlan(kept={"ES": [(0, 1), (2, 3)], "EL": [(), (0,)]}, units=units)
    plan = keep_first(units, order=lambda unit: unit, percent=80, at_least=1, within=pool)
    assert plan.kept["ES"] == ((), (2,)) and plan.kept["EL"] == ((), (0,))


@given(start=st.floats(0, 99), goal=st.floats(0, 100), steps=st.integers(1, 9))
def test_the_last_step_is_the_goal(start: float, goal: float, steps: int) -> None:
    budgets = budgets_of_steps(start, Budget(goal), steps=steps)
    assert len(budgets) == steps and budgets[-1] == Budget(goal)


def test_a_thousand_layers_of_a_thousand_heads_are_no_mistake() -> None:
    # Only their number is looked at here, not the choice among a million.
    outcome = headprune("plan", "--shape", "ES=1000x1000", "--percent", 101)
    assert outcome.err == "error: 101.0% is not between 0 and 100\n"


@pytest.mark.slow
def test_a_million_heads() -> None:
    # Linear in the heads; through all heads for every layer this took minutes.
    plan = select.at_random({"ES": (1000,) * 1000}, percent=50, seed=1, at_least=1)
    assert plan.total_kept == 500_000
