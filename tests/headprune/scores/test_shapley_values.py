"""Shapley values of small games, and the bound."""

from __future__ import annotations

import itertools
import math

import pytest
import torch

from headprune.scores.shapley_values import (
    bernstein_half_width,
    evaluate_in_turn,
    shapley_values,
)

WORTH = torch.tensor([3.0, -1.0, 0.5, 2.0])


def additive(coalitions):
    return 10 + coalitions.double() @ WORTH.double()


def gloves(coalitions):
    """Players 0 and 1 have left gloves, 2 and 3 right ones; a pair is worth 1. And 3 likes 0."""
    a, b, c, d = coalitions.double().T
    return torch.minimum(a + b, c + d) + 0.5 * a * d


def exact(game):
    """The mean over all orders."""
    values = torch.zeros(4, dtype=torch.float64)
    for order in itertools.permutations(range(4)):
        mask = torch.ones(1, 4, dtype=torch.bool)
        before = game(mask)
        for player in order:
            mask[0, player] = False
            after = game(mask)
            values[player] += (before - after).item() / 24
            before = after
    return values


def test_an_additive_game_is_exact_and_ends_as_soon_as_the_bound_allows():
    found = shapley_values(4, [additive] * 3, seed=1, truncation=-1)
    torch.testing.assert_close(found.values, WORTH.double())
    assert (found.orders, found.evaluations) == (3, 3 * (2 + 3)) and not found.settled.any()
    # The sample variances are 0, the spread is 4: the second term alone must fall to the tolerance.
    long = shapley_values(4, [additive] * 5000, seed=1, truncation=-1, tolerance=0.1)
    needed = 1 + 7 * 4 * math.log(4 / 0.05) / (3 * 0.1 * 4.5)
    assert long.settled.all() and long.orders == math.ceil(needed) < 5000


def test_values_of_a_game_with_interactions_are_the_mean_over_all_orders():
    found = shapley_values(4, [gloves] * 3000, seed=2, truncation=-1, tolerance=0)
    torch.testing.assert_close(found.values, exact(gloves), atol=0.04, rtol=0)
    assert ((found.values - exact(gloves)).abs() < found.half_widths).all()


@pytest.mark.parametrize("truncation", [-1.0, 0.3])
def test_the_values_add_up_to_the_value_of_all_players(truncation):
    games = [gloves] * 7
    found = shapley_values(4, games, seed=3, truncation=truncation, at_once=1)
    assert found.values.sum().item() == pytest.approx(2.5)
    full = 7 * (2 + 3)
    assert found.evaluations == full if truncation < 0 else found.evaluations < full


def test_an_order_is_truncated_where_several_coalitions_in_turn_have_the_value_of_none():
    def game(coalitions):  # 1 as soon as one of the first two players is there, 3 with all
        numbers = coalitions.sum(1)
        return (numbers == 20) * 2.0 + coalitions[:, :2].any(1).double()

    def evaluations(at_once):
        return shapley_values(20, [game] * 50, seed=1, at_once=at_once).evaluations

    # The whole is 2 + 20 - 1 coalitions.
    assert evaluations(1) < evaluations(4) < evaluations(8) < 50 * 21
    values = shapley_values(20, [game] * 2000, seed=1, at_once=4, tolerance=0).values
    torch.testing.assert_close(values[2:], torch.full((18,), 0.1).double(), atol=0.03, rtol=0)
    torch.testing.assert_close(values[:2], torch.full((2,), 0.6).double(), atol=0.03, rtol=0)


def test_an_order_is_not_truncated_where_all_and_no_players_have_the_same_value():
    def game(coalitions):  # 1 without player 0, unless nobody is there
        return (~coalitions[:, 0] & coalitions.any(1)).double()

    found = shapley_values(4, [game] * 20, seed=1, at_once=1)
    assert found.evaluations == 20 * 5 and found.values[0] < 0


def test_settled_players_are_not_evaluated_any_more():
    def game(coalitions):  # three players of fixed worth, the others interact
        return coalitions[:, :3].double().sum(1) * 0 + gloves(coalitions[:, 3:])

    counted = shapley_values(7, [game] * 400, seed=1, truncation=-1, tolerance=0.1)
    assert counted.evaluations < 400 * 8
    torch.testing.assert_close(counted.values[3:], exact(gloves), atol=0.15, rtol=0)


def test_the_bound_has_the_values_of_its_formula():
    # sqrt(2 * 0.25 * ln 80 / 100) + 7 * 2 * ln 80 / 297, by hand
    found = bernstein_half_width(variance=0.25, count=100, spread=2, confidence=0.95)
    assert found == pytest.approx(0.148020 + 0.206560, abs=1e-5)
    assert bernstein_half_width(variance=0, count=2, spread=1, confidence=0.5) == pytest.approx(
        7 * math.log(8) / 3
    )
    assert bernstein_half_width(variance=1, count=1, spread=1, confidence=0.5) == math.inf


def test_the_bound_covers_the_mean():
    torch.manual_seed(1)
    samples = torch.rand(2000, 40).square()  # of mean 1/3
    missed = sum(
        abs(row.mean().item() - 1 / 3)
        > bernstein_half_width(variance=row.var().item(), count=40, spread=1.0, confidence=0.8)
        for row in samples
    )
    assert missed <= 0.2 * 2000


def test_parts_of_the_data_take_turns():
    parts = [additive, gloves, exact]
    turns = evaluate_in_turn(parts, sizes=[5, 5, 5], times=6, seed=1)
    assert sorted(map(parts.index, turns)) == [0, 0, 1, 1, 2, 2] and turns[:3] == turns[3:]


def test_parts_have_as_many_turns_as_examples():
    parts = [additive, gloves, exact]
    turns = evaluate_in_turn(parts, sizes=[3, 1, 4], times=16, seed=1)
    assert [turns.count(part) for part in parts] == [6, 2, 8]
    assert turns[:10] == evaluate_in_turn(parts, sizes=[3, 1, 4], times=10, seed=1)
