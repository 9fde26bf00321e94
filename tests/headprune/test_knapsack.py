"""The knapsack against all combinations of options."""

from __future__ import annotations

from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headprune.select.knapsack import least_loss, undominated

OPTIONS = st.lists(st.tuples(st.integers(0, 6), st.integers(-2, 9)), min_size=1, max_size=4)


@given(groups=st.lists(OPTIONS, max_size=4), most=st.integers(-1, 20))
def test_no_combination_that_costs_so_little_loses_less(
    groups: list[list[tuple[int, int]]], most: int
) -> None:
    possible = [
        sum(loss for _, loss in combination)
        for combination in product(*groups)
        if sum(cost for cost, _ in combination) <= most
    ]
    chosen = least_loss(groups, most=most)
    assert (chosen is None) == (not possible)
    if chosen is not None:
        picked = [options[number] for options, number in zip(groups, chosen, strict=True)]
        assert sum(cost for cost, _ in picked) <= most
        assert sum(loss for _, loss in picked) == pytest.approx(min(possible))


@given(options=OPTIONS)
def test_options_that_another_beats_are_left_out(options: list[tuple[int, int]]) -> None:
    kept = undominated(options)
    for number, (cost, loss) in enumerate(options):
        beaten = [options[other] for other in kept if other != number]
        assert (number in kept) != any(c <= cost and lost <= loss for c, lost in beaten)
