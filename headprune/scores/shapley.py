"""The score shapley: a head's mean share in the metric, over random orders of pruning.

Held and Yang (2023): heads are the players, and a coalition's value is the metric with its heads
alone. A head whose value is below 0 harms the model. Each random order is walked on one batch, and
the batches take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch
from torch import Tensor

from headprune.errors import DataError, UsageError
from headprune.gates import Factors, gated
from headprune.model import Batch, PrunableSublayer, RunnableModel
from headprune.scores.head_scores import Values
from headprune.scores.registry import Computed, Scoring
from headprune.scores.reuse import AT_ONCE
from headprune.scores.shapley_values import evaluate_in_turn, shapley_values

PURPOSE = "shapley"

CONFIDENCE = 0.95
"""Of the interval of each head."""

TOLERANCE = 0.01
"""A head is settled within this share of the metric's drop from all heads to none."""


def compute(scoring: Scoring, names: Sequence[str]) -> Mapping[str, Computed]:
    """Compute ``shapley``."""
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
    batches = list(scoring.batches(PURPOSE))
    if not batches:
        raise DataError("no example to compute scores on")
    with model.evaluating():
        games = [
            partial(coalition_values, model, batch, players, metric=scoring.metric)
            for batch in batches
        ]
        orders = scoring.permutations
        turns = evaluate_in_turn(games, times=orders, seed=scoring.seed)
        found = shapley_values(
            len(players),
            scoring.watch(iter(turns), orders, PURPOSE),
            seed=scoring.seed,
            tolerance=TOLERANCE,
            confidence=CONFIDENCE,
        )
    settings = {
        "metric": scoring.metric,
        "seed": scoring.seed,
        "orders": found.orders,
        "evaluations": found.evaluations,
        "confidence": CONFIDENCE,
        "tolerance": TOLERANCE,
        "settled": int(found.settled.sum()),
    }
    if found.orders > 1:
        settings["half_widths"] = _by_head(model, components, players, found.half_widths)
    values = _by_head(model, components, players, found.values)
    return {name: Computed(values=values, settings=settings) for name in names}


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
        UsageError: accuracy of a model that does not predict classes.
        DataError: a loss that is not finite.
    """
    together = max(1, AT_ONCE // model.queries(players[0][0], batch).size(0))
    values = []
    for some in coalitions.split(together):
        gates = [
            (sublayer, _factors(sublayer, some, columns, batch_dim=model.batch_dim))
            for sublayer, columns in _columns(model, players).values()
        ]
        with gated(gates):
            outcome = model.outcome(model.repeat_batch(batch, len(some)))
        if not outcome.losses.isfinite().all():
            raise DataError("the loss of an example is not finite")
        if metric == "accuracy" and outcome.correct is None:
            raise UsageError("accuracy is of models that predict a class; give metric loss")
        by_example = -outcome.losses if metric != "accuracy" else outcome.correct
        assert by_example is not None
        means = by_example.double().unflatten(0, (len(some), -1)).mean(1)
        values.append(100 * means if metric == "accuracy" else means)
    return torch.cat(values).cpu()


Columns = Mapping[int, int]
"""For heads of a sub-layer, their columns in coalitions."""


def _columns(
    model: RunnableModel, players: Sequence[Player]
) -> dict[tuple[str, int], tuple[PrunableSublayer, dict[int, int]]]:
    found: dict[tuple[str, int], tuple[PrunableSublayer, dict[int, int]]] = {}
    for column, (component, layer, head) in enumerate(players):
        sublayer = model.sublayers[component][layer]
        found.setdefault((component, layer), (sublayer, {}))[1][head] = column
    return found


def _factors(
    sublayer: PrunableSublayer, coalitions: Tensor, columns: Columns, *, batch_dim: int
) -> Callable[[Tensor], Tensor] | Factors:
    """Factors for a batch that holds the examples once for each coalition."""
    on = torch.ones(len(coalitions), len(sublayer.present))  # n x H'
    for place, head in enumerate(sublayer.present):
        if head in columns:  # heads of the form uniform are no players
            on[:, place] = coalitions[:, columns[head]].float()

    def factors(x: Tensor) -> Tensor:  # nB x T x H'd, or T x nB x H'd
        rows = on.to(x).repeat_interleave(x.size(batch_dim) // len(on), dim=0)  # nB x H'
        return rows.unsqueeze(1 - batch_dim)

    return factors


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
