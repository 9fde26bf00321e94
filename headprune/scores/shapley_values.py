"""Shapley values of a game by truncated Monte Carlo, with a bound that stops early.

Players leave in a random order, one after the other; what a player's leaving costs is its marginal
contribution, whose mean over orders is its Shapley value (Held and Yang 2023; Ghorbani and Zou
2019, 2020). Three things save evaluations of the game:

- Truncation: once the value is about that of the empty coalition, the remaining difference is
  shared by the players that have not left.
- A player is settled once the empirical Bernstein bound of its mean is narrow enough (Maurer and
  Pontil 2009, theorem 4). Settled players leave without an evaluation of their own.
- Sampling ends when all players are settled. The bound is wide, so that this usually takes more
  than a few hundred orders.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

Value = Callable[[Tensor], Tensor]
"""The values (n,) of n coalitions, n x players, bool."""


@dataclass(frozen=True, kw_only=True)
class Estimates:
    """Estimated Shapley values.

    Attributes:
        values: for each player, in float64.
        half_widths: half of the width of each one's confidence interval; infinite with one order.
        settled: whether the half-width is within the tolerance: (players,), bool.
        orders: the number of random orders.
        evaluations: the number of coalitions whose value was computed.
    """

    values: Tensor
    half_widths: Tensor
    settled: Tensor
    orders: int
    evaluations: int


@dataclass(frozen=True)
class Walk:
    """The outcome of one random order.

    Attributes:
        drop: the value of all players less that of none.
        marginals: the marginal contributions of the players that were not settled.
        evaluations: the number of coalitions whose value was computed.
    """

    drop: float
    marginals: Mapping[int, float]
    evaluations: int


def bernstein_half_width(*, variance: float, count: int, spread: float, confidence: float) -> float:
    """Half of the width of the empirical Bernstein interval of a mean.

    With probability ``confidence``, the mean of independent numbers in an interval of length R
    differs from the expectation by at most sqrt(2 V ln(4/d) / n) + 7 R ln(4/d) / (3 (n - 1)), where
    d = 1 - confidence (Maurer and Pontil 2009, theorem 4, on both sides).

    Args:
        variance: V, the variance of the sample, divided by n - 1.
        count: n.
        spread: R.
        confidence: above 0 and below 1.
    """
    if count < 2:
        return math.inf
    logarithm = math.log(4 / (1 - confidence))
    return math.sqrt(2 * variance * logarithm / count) + 7 * spread * logarithm / (3 * (count - 1))


def shapley_values(
    players: int,
    games: Iterable[Value],
    *,
    seed: int,
    tolerance: float = 0.01,
    truncation: float = 0.01,
    confidence: float = 0.95,
    at_once: int = 8,
    finished: Sequence[Walk] = (),
    keep: Callable[[Walk], None] = lambda walk: None,
) -> Estimates:
    """Estimate the Shapley values of a game.

    Without settled players, the values add up to the value of all players less that of none, also
    where orders are truncated.

    Args:
        players: the number of players.
        games: for each random order, the game: the same one, or that of a random part of the data,
            of which the mean is estimated.
        seed: the seed of the orders.
        tolerance: the half-width that settles a player, as a share of the value of all players less
            that of none.
        truncation: an order is truncated where ``at_once`` coalitions in turn are within this
            distance of the value of no player, as a share of the same difference; below 0 for
            never. One such coalition alone can be chance, as accuracy on a small batch has few
            values. An order on a batch where the difference is 0 is not truncated.
        confidence: of the interval of each player, at a number of orders that is fixed beforehand.
            The intervals are looked at after every order, to end early, and the level does not
            allow for that. The length of the interval that marginal contributions lie in is not
            known; the widest distance between two that were seen is taken for it.
        at_once: coalitions whose values are computed together.
        finished: the first orders, where they are known from an earlier run with the same arguments
            (but for the number of games).
        keep: takes each further order.

    Returns:
        The estimates, whose values are 0 where there is no game.
    """
    generator = torch.Generator().manual_seed(seed)
    count = torch.zeros(players, dtype=torch.float64)
    mean, squares = torch.zeros_like(count), torch.zeros_like(count)
    settled = torch.zeros(players, dtype=torch.bool)
    half_widths = torch.full_like(count, math.inf)
    lowest, highest, total = math.inf, -math.inf, 0.0
    orders = evaluations = 0
    for number, value in enumerate(games):
        order = torch.randperm(players, generator=generator)
        if number < len(finished):
            walk = finished[number]
        else:
            walk = _walk(value, order, settled, share=truncation, step=at_once)
            keep(walk)
        marginals = walk.marginals
        evaluations += walk.evaluations
        orders += 1
        total += walk.drop
        for player, marginal in marginals.items():
            count[player] += 1
            change = marginal - mean[player]
            mean[player] += change / count[player]
            squares[player] += change * (marginal - mean[player])  # Welford's sum of squares
        lowest, highest = min(lowest, *marginals.values()), max(highest, *marginals.values())
        for player in marginals:
            n = int(count[player])
            half_widths[player] = bernstein_half_width(
                variance=float(squares[player]) / max(n - 1, 1),
                count=n,
                spread=highest - lowest,
                confidence=confidence,
            )
        # Looked at after every order: the level is that of one look (see ``confidence``).
        settled |= half_widths <= tolerance * abs(total) / orders
        if settled.all():
            break
    return Estimates(
        values=mean,
        half_widths=half_widths,
        settled=settled,
        orders=orders,
        evaluations=evaluations,
    )


def _walk(value: Value, order: Tensor, settled: Tensor, *, share: float, step: int) -> Walk:
    """Let the players leave in an order.

    Args:
        order: the players in the order in which they leave.
        settled: those without an evaluation of their own.
        share: see ``truncation``.
        step: see ``at_once``.
    """
    players = len(order)
    ends = torch.stack([torch.ones(players), torch.zeros(players)]).bool()
    full_value, empty_value = value(ends).tolist()
    place_of_player = torch.zeros(players, dtype=torch.long)
    place_of_player[order] = torch.arange(players)
    unsettled = [place for place in range(players) if not settled[order[place]]]
    # The value after each unsettled player has left, and before it where a settled one left last.
    places = sorted({number for place in unsettled for number in (place, place + 1)})
    values = {0: full_value, players: empty_value}
    places = [place for place in places if place not in values]
    evaluated = 2
    last_place = players  # the number of players after whose leaving the order is truncated
    drop = full_value - empty_value
    threshold = share * abs(drop)
    for start in range(0, len(places), step):
        chunk = places[start : start + step]
        coalitions = place_of_player[None, :] >= torch.tensor(chunk)[:, None]  # n x players
        values |= dict(zip(chunk, value(coalitions).tolist(), strict=True))
        evaluated += len(chunk)
        if drop and all(abs(values[place] - empty_value) <= threshold for place in chunk):
            last_place = chunk[-1]
            break
    remainder = (values[last_place] - empty_value) / max(players - last_place, 1)
    marginals = {
        int(order[place]): values[place] - values[place + 1] if place < last_place else remainder
        for place in unsettled
    }
    return Walk(drop, marginals, evaluated)


def evaluate_in_turn(
    data: Sequence[Value], *, sizes: Sequence[int], times: int, seed: int
) -> list[Value]:
    """Games on parts of the data in turn, each as often as its share of the examples demands.

    The mean over the games is then that over the examples, and not over parts of unequal size. The
    next part is the one that lags furthest behind its share; of several, the first in a random
    order.

    Args:
        data: the game on each part.
        sizes: the number of examples of each part.
        times: the number of games.
        seed: the seed of the order of the parts.
    """
    order = torch.randperm(len(data), generator=torch.Generator().manual_seed(seed)).tolist()
    total = sum(sizes)
    turns = [0] * len(data)
    games = []
    for number in range(1, times + 1):
        # In whole numbers, so that equal parts lag equally.
        part = max(order, key=lambda part: sizes[part] * number - turns[part] * total)
        turns[part] += 1
        games.append(data[part])
    return games
