"""The score shapley: a head's mean share in the metric, over random orders of pruning.

Held and Yang (2023): heads are the players, and a coalition's value is the metric with its heads
alone. A head whose value is below 0 harms the model. Each random order is walked on one batch, and
the batches take turns, in proportion to their numbers of examples.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
from torch import Tensor

from headprune.errors import DataError, UsageError
from headprune.gates import Factors, gated
from headprune.model import Batch, PrunableSublayer, RunnableModel
from headprune.scores.ablation import METRICS, require_possible
from headprune.scores.head_scores import Values
from headprune.scores.names import SHAPLEY
from headprune.scores.partial import Parts
from headprune.scores.registry import Computed, Scoring
from headprune.scores.reuse import AT_ONCE, factors_of_copies
from headprune.scores.shapley_values import Walk, evaluate_in_turn, shapley_values

CONFIDENCE = 0.95
"""Of the interval of each head, at a number of orders that is fixed beforehand: the intervals are
looked at after every order, for which the level does not allow.
"""

TOLERANCE = 0.01
"""A head is settled within this share of the metric's drop from all heads to none."""


def compute(scoring: Scoring, names: Sequence[str]) -> Mapping[str, Computed]:
    """Compute ``shapley``.

    The value of a coalition is the metric of ablation; where ``scoring.ablate`` measures another
    one than ``headprune.scores.ablation.METRICS``, such as BLEU, it is the loss.
    """
    by_ablate = scoring.ablate is not None and scoring.metric not in METRICS
    metric = "loss" if by_ablate else scoring.metric
    model, components = scoring.model, scoring.components
    players = [
        (component, layer, head)
        for component, layers in model.sublayers.items()
        if component in components
        for layer, sublayer in enumerate(layers)
        for head in sublayer.kept
    ]
    if not players:
        raise UsageError("the model has no head left to score")
    batches = list(scoring.batches(SHAPLEY))
    if not batches:
        raise DataError("no example to compute scores on")
    with model.evaluating():
        games = [
            partial(coalition_values, model, batch, players, metric=metric) for batch in batches
        ]
        orders = scoring.permutations
        none = torch.zeros(1, len(players), dtype=torch.bool)
        parts = Parts(
            SHAPLEY,
            {
                "metric": metric,
                "seed": scoring.seed,
                "players": [list(player) for player in players],
                # They depend on the weights and on the data.
                "losses": [
                    coalition_values(model, batch, players, none, metric="loss").item()
                    for batch in batches
                ],
            },
        )
        sizes = [model.queries(players[0][0], batch).size(0) for batch in batches]
        turns = evaluate_in_turn(games, sizes=sizes, times=orders, seed=scoring.seed)
        estimates = shapley_values(
            len(players),
            scoring.watch(iter(turns), orders, SHAPLEY),
            seed=scoring.seed,
            tolerance=TOLERANCE,
            confidence=CONFIDENCE,
            finished=[_walk_of(part) for part in parts.finished],
            keep=lambda walk: parts.add(asdict(walk)),
        )
    settings = {
        "metric": metric,
        "seed": scoring.seed,
        "orders": estimates.orders,
        "batch_size": max(sizes),
        "evaluations": estimates.evaluations,
        "confidence": CONFIDENCE,
        "tolerance": TOLERANCE,
        "settled": int(estimates.settled.sum()),
    }
    if estimates.orders > 1:
        settings["half_widths"] = _by_head(model, components, players, estimates.half_widths)
    values = _by_head(model, components, players, estimates.values)
    return {name: Computed(values=values, settings=settings) for name in names}


def _walk_of(part: Mapping[str, Any]) -> Walk:
    """The inverse of ``asdict`` through JSON, whose keys are texts."""
    marginals = {int(player): value for player, value in part["marginals"].items()}
    return Walk(part["drop"], marginals, part["evaluations"])


Player = tuple[str, int, int]
"""Component, layer and head."""


@torch.no_grad()
def coalition_values(
    model: RunnableModel,
    batch: Batch,
    players: Sequence[Player],
    coalitions: Tensor,
    *,
    metric: str,
) -> Tensor:
    """The metric on a batch with the heads of each coalition alone: (n,).

    Accuracy is in percent; losses and divergences count negatively.

    Args:
        players: the heads of the columns of ``coalitions``.
        coalitions: n x players, bool.
        metric: one of ``headprune.scores.ablation.METRICS``.

    Raises:
        UsageError: an unknown metric, or accuracy of a model that does not predict classes.
        DataError: a loss that is not finite.
    """
    require_possible(metric, ())
    coalitions_at_once = max(1, AT_ONCE // model.queries(players[0][0], batch).size(0))
    values = []
    for chunk in coalitions.split(coalitions_at_once):
        gates = [
            (sublayer, _factors(sublayer, chunk, columns, batch_dim=model.batch_dim))
            for sublayer, columns in _columns(model, players).values()
        ]
        with gated(gates):
            outcome = model.outcome(model.repeat_batch(batch, len(chunk)))
        if not outcome.losses.isfinite().all():
            raise DataError("the loss of an example is not finite")
        if metric == "accuracy" and outcome.correct is None:
            raise UsageError("accuracy is of models that predict a class; give metric loss")
        by_example = -outcome.losses if metric != "accuracy" else outcome.correct
        assert by_example is not None
        means = by_example.double().unflatten(0, (len(chunk), -1)).mean(1)
        values.append(100 * means if metric == "accuracy" else means)
    return torch.cat(values).cpu()


Columns = Mapping[int, int]
"""For heads of a sub-layer, their columns in coalitions."""


def _columns(
    model: RunnableModel, players: Sequence[Player]
) -> dict[tuple[str, int], tuple[PrunableSublayer, dict[int, int]]]:
    columns: dict[tuple[str, int], tuple[PrunableSublayer, dict[int, int]]] = {}
    for column, (component, layer, head) in enumerate(players):
        sublayer = model.sublayers[component][layer]
        columns.setdefault((component, layer), (sublayer, {}))[1][head] = column
    return columns


def _factors(
    sublayer: PrunableSublayer, coalitions: Tensor, columns: Columns, *, batch_dim: int
) -> Factors:
    """Factors for a batch that holds the examples once for each coalition."""
    masks = torch.ones(len(coalitions), len(sublayer.present))  # n x H'
    for place, head in enumerate(sublayer.present):
        if head in columns:  # heads of the form uniform are no players
            masks[:, place] = coalitions[:, columns[head]].float()
    return factors_of_copies(masks, batch_dim=batch_dim)


def _by_head(
    model: RunnableModel, components: Sequence[str], players: Sequence[Player], numbers: Tensor
) -> Values:
    values: dict[str, list[list[float | None]]] = {
        component: [[None] * sublayer.units for sublayer in layers]
        for component, layers in model.sublayers.items()
        if component in components
    }
    for (component, layer, head), number in zip(players, numbers.tolist(), strict=True):
        values[component][layer][head] = number
    return values
