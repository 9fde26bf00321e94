"""Scores by ablation: the change of a metric when one head, or all others of a layer, are masked.

- ablation: the metric's drop without the head (Michel et al. 2019, section 3.2).
- alone: its drop with no other head left in the layer (section 3.3).

Each drop has its p-value: of McNemar's exact test for accuracy, of a paired t-test over examples
for the loss and for the accuracy of token classifiers, of paired approximate randomisation for
BLEU. There is a test for every head, so the p-values must be corrected for their number
(``HeadScores.adjusted_p_values``). A divergence is never below 0, so that a test of it against 0
says nothing; it has no p-values.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from headprune.components import HEADS, LAYERS
from headprune.errors import DataError, UsageError, needing
from headprune.gates import gated_layers
from headprune.model import Batch, Batches, Outcome, RunnableModel
from headprune.results.predictions import mcnemar
from headprune.scores.head_scores import Values
from headprune.scores.names import ABLATIONS
from headprune.scores.own_outputs import DIVERGENCE
from headprune.scores.registry import ABLATION, Computed, Scoring, score_named
from headprune.scores.reuse import AT_ONCE, Cases, masked_outcomes
from headprune.scores.units import parts_of

_FEWEST = 2
_ROUNDING = 1e-6  # what computing a loss in float32 otherwise may change in it

METRICS = ("accuracy", "loss", DIVERGENCE)
"""The metrics of ablation:

- ``accuracy``: in percent; of token classifiers, the mean over examples of the share of right
  tokens.
- ``loss``: the mean over examples.
- ``divergence``: the mean over examples of the divergence from the unmasked model's outputs, for
  batches that have these.
"""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """The change of a metric by masking.

    Attributes:
        base: the metric without masks.
        drops: the drop of the metric, or the rise of a loss; positive if masking makes it worse.
        p_values: the p-value of each drop, under the null hypothesis that masking has no effect;
            empty for divergences.
    """

    base: float
    drops: Values
    p_values: Values


def compute(scoring: Scoring, names: Sequence[str]) -> Mapping[str, Computed]:
    """Compute the requested scores of ``ABLATIONS``."""
    if scoring.ablate is not None:
        results = scoring.ablate(names)
    else:
        results = ablation(
            scoring.model,
            scoring.batches(ABLATION),
            metric=scoring.metric,
            kinds=names,
            components=scoring.components,
        )
    return {
        name: Computed(
            values=result.drops,
            p_values=result.p_values,
            settings={"metric": scoring.metric, "base": result.base},
        )
        for name, result in results.items()
    }


def cases_of(
    scored: RunnableModel, kind: str, components: Sequence[str] = HEADS
) -> dict[tuple[str, int], list[frozenset[int]]]:
    """The masks of ``ABLATIONS``: for each kept unit, the units of its layer that stay on."""
    cases = {}
    for component, layers in parts_of(scored, components).items():
        for layer, attention in enumerate(layers):
            kept = frozenset(attention.kept)
            if kept:
                cases[component, layer] = [
                    kept - {head} if kind == "ablation" else frozenset({head})
                    for head in attention.kept
                ]
    return cases


def ablation(
    scored: RunnableModel,
    batches: Batches,
    *,
    metric: str,
    kinds: Sequence[str] = ABLATIONS,
    components: Sequence[str] = HEADS,
    at_once: int = AT_ONCE,
) -> dict[str, Ablation]:
    """Mask units, one layer at a time, and measure.

    Args:
        scored: the model; it is evaluated without dropout, and left as it was.
        batches: with labels. How the data are cut into batches does not matter.
        metric: one of ``METRICS``.
        kinds: some of ``ABLATIONS``.
        components: those whose units are masked.
        at_once: examples, times masks, that run together; memory grows with it.

    Raises:
        UsageError: an unknown metric, accuracy of a model that does not predict classes, or scipy
            is not installed.
        DataError: no data, or no labels in them.
    """
    require_possible(metric, kinds)
    scorable = {
        kind: [name for name in components if name in score_named(kind).components]
        for kind in kinds
    }
    by_kind = {kind: cases_of(scored, kind, scorable[kind]) for kind in kinds}
    cases: Cases = {
        place: [mask for each in by_kind.values() for mask in each.get(place, ())]
        for place in dict.fromkeys(place for each in by_kind.values() for place in each)
    }
    of_sublayers: Cases = {place: masks for place, masks in cases.items() if place[0] not in LAYERS}
    base: list[Tensor] = []
    masked: dict[tuple[str, int], list[list[Tensor]]] = {
        place: [[] for _ in masks] for place, masks in cases.items()
    }
    with scored.evaluating():
        for batch in batches:
            full, masked_by_sublayer = masked_outcomes(scored, batch, of_sublayers, at_once=at_once)
            base.append(_measured(full, metric))
            masked_by_sublayer |= {
                place: [_without_layer(scored, batch, place)]
                for place in cases.keys() - of_sublayers.keys()
            }
            for place, outcomes in masked_by_sublayer.items():
                for so_far, outcome in zip(masked[place], outcomes, strict=True):
                    so_far.append(_measured(outcome, metric))
    if not base:
        raise DataError("no example to compute scores on")
    full_values = torch.cat(base)
    if len(full_values) < _FEWEST:
        raise DataError(f"1 example is too few to test differences on; give {_FEWEST} or more")
    result = {}
    offset = dict.fromkeys(cases, 0)
    for kind, places in by_kind.items():
        drops, p_values = {}, {}
        for place, masks in places.items():
            own_values = masked[place][offset[place] : offset[place] + len(masks)]
            offset[place] += len(masks)
            pairs = [_compare(full_values, torch.cat(values), metric) for values in own_values]
            drops[place] = [drop for drop, _ in pairs]
            p_values[place] = [p for _, p in pairs]
        result[kind] = Ablation(
            base=_mean(full_values, metric),
            drops=in_place(scored, drops, scorable[kind]),
            p_values={} if metric == DIVERGENCE else in_place(scored, p_values, scorable[kind]),
        )
    return result


@torch.no_grad()
def _without_layer(scored: RunnableModel, batch: Batch, place: tuple[str, int]) -> Outcome:
    """The model's outcome where a layer passes on its input."""
    component, number = place
    with gated_layers([(scored.layers[component][number], torch.zeros(()))]):
        return scored.outcome(batch)


def require_possible(metric: str, kinds: Sequence[str]) -> None:
    """Raise a UsageError if the metric is unknown, or the package for tests is not installed."""
    if metric not in METRICS:
        raise UsageError(f"metric {metric}: it is one of {', '.join(METRICS)}")
    if kinds and metric != DIVERGENCE:
        with needing("testing the drops of ablation needs scipy", install="pip install scipy"):
            import_module("scipy.stats")


def in_place(
    scored: RunnableModel,
    numbers: Mapping[tuple[str, int], Sequence[float]],
    components: Sequence[str] = HEADS,
) -> Values:
    """Put the values of kept units into tables of all units, by component and layer."""
    values: dict[str, list[list[float | None]]] = {}
    for component, layers in parts_of(scored, components).items():
        values[component] = []
        for layer, attention in enumerate(layers):
            row: list[float | None] = [None] * attention.units
            for head, number in zip(
                attention.kept, numbers.get((component, layer), ()), strict=True
            ):
                row[head] = number
            values[component].append(row)
    return values


def _measured(outcome: Outcome, metric: str) -> Tensor:
    """The loss of each example, or 1 or a share for correct predictions: B."""
    if not outcome.losses.isfinite().all():
        raise DataError("the loss of an example is not finite")
    if metric != "accuracy":
        return outcome.losses.double().cpu()
    if outcome.correct is None:
        raise UsageError("accuracy is of models that predict a class; give metric loss")
    return outcome.correct.cpu()


def _mean(values: Tensor, metric: str) -> float:
    mean = values.double().mean().item()
    return 100 * mean if metric == "accuracy" else mean


def _compare(base: Tensor, masked: Tensor, metric: str) -> tuple[float, float]:
    """Return the drop (of a loss: the rise) by masking, and its p-value."""
    drop = _mean(base, metric) - _mean(masked, metric)
    if base.dtype == torch.bool:
        return drop, mcnemar(base.tolist(), masked.tolist())
    if metric == DIVERGENCE:
        return -drop, 1.0
    drop = drop if metric == "accuracy" else -drop
    from scipy.stats import ttest_1samp

    differences = masked - base
    # Rounding differs with the number of masks worked out at once, and is no effect of a mask.
    differences[differences.abs() <= _ROUNDING * base.abs().clamp(min=1)] = 0
    if differences.std(correction=0) == 0:  # the test divides by it
        return drop, 1.0 if differences.mean() == 0 else 0.0
    return drop, float(ttest_1samp(differences.numpy(), 0).pvalue)
