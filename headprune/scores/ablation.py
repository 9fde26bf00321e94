"""Scores by trying: what is lost when one head is masked, or all other heads of its layer.

- ablation: the metric's drop without the head (Michel et al. 2019, section 3.2).
- alone: its drop with no other head left in the layer (section 3.3).

Each drop has its p-value: of McNemar's exact test for accuracy, of a paired t-test over examples
for the loss, of paired approximate randomisation for BLEU. There is a test for every head, so the
p-values must be corrected for their number (``HeadScores.adjusted_p_values``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module

import torch
from torch import Tensor

from headprune.errors import DataError, UsageError, needing
from headprune.report.predictions import mcnemar
from headprune.scores.head_scores import Values
from headprune.scores.names import ABLATIONS
from headprune.scores.reuse import AT_ONCE, Cases, masked_outcomes
from headprune.scores.scored_model import Batches, Outcome, ScoredModel

_FEWEST = 2
_ROUNDING = 1e-6  # what computing a loss in float32 otherwise may change in it

METRICS = ("accuracy", "loss")
"""accuracy: in points of a percent. loss: the mean over examples."""


@dataclass(frozen=True, kw_only=True)
class Ablation:
    """What masking did to a metric.

    Attributes:
        base: the metric without masks.
        drops: how much worse the metric is; the rise of a loss.
        p_values: the probability of a difference as large if masking did nothing.
    """

    base: float
    drops: Values
    p_values: Values


def cases_of(scored: ScoredModel, kind: str) -> dict[tuple[str, int], list[frozenset[int]]]:
    """The masks of ``ABLATIONS``: for each head that is left, the heads of its layer that stay."""
    cases = {}
    for component, layers in scored.attentions.items():
        for layer, attention in enumerate(layers):
            kept = frozenset(attention.kept)
            if kept:
                cases[component, layer] = [
                    kept - {head} if kind == "ablation" else frozenset({head})
                    for head in attention.kept
                ]
    return cases


def ablation(
    scored: ScoredModel,
    batches: Batches,
    *,
    metric: str,
    kinds: Sequence[str] = ABLATIONS,
    at_once: int = AT_ONCE,
) -> dict[str, Ablation]:
    """Mask heads, one attention at a time, and measure.

    Args:
        scored: the model; it is evaluated without dropout, and left as it was.
        batches: with labels. How the data are cut into batches does not matter.
        metric: of ``METRICS``.
        kinds: of ``ABLATIONS``.
        at_once: examples, times masks, that run together; memory grows with it.

    Raises:
        UsageError: an unknown metric, accuracy of a model that does not predict classes, or scipy
            is not installed.
        DataError: no data, or no labels in them.
    """
    require_possible(metric, kinds)
    by_kind = {kind: cases_of(scored, kind) for kind in kinds}
    cases: Cases = {
        place: [mask for each in by_kind.values() for mask in each[place]]
        for place in next(iter(by_kind.values()))
    }
    base: list[Tensor] = []
    masked: dict[tuple[str, int], list[list[Tensor]]] = {
        place: [[] for _ in masks] for place, masks in cases.items()
    }
    with scored.evaluating():
        for batch in batches:
            full, found = masked_outcomes(scored, batch, cases, at_once=at_once)
            base.append(_measured(full, metric))
            for place, outcomes in found.items():
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
            mine = masked[place][offset[place] : offset[place] + len(masks)]
            offset[place] += len(masks)
            pairs = [_compare(full_values, torch.cat(values), metric) for values in mine]
            drops[place] = [drop for drop, _ in pairs]
            p_values[place] = [p for _, p in pairs]
        result[kind] = Ablation(
            base=_mean(full_values, metric),
            drops=in_place(scored, drops),
            p_values=in_place(scored, p_values),
        )
    return result


def require_possible(metric: str, kinds: Sequence[str]) -> None:
    """Raise a UsageError where there is no such metric, or nothing to test drops with."""
    if metric not in METRICS:
        raise UsageError(f"metric {metric}: it is one of {', '.join(METRICS)}")
    if kinds:
        with needing("testing what ablation finds needs scipy", install="pip install scipy"):
            import_module("scipy.stats")


def in_place(scored: ScoredModel, numbers: Mapping[tuple[str, int], Sequence[float]]) -> Values:
    """For components and layers numbers of their kept heads, put in place."""
    values: dict[str, list[list[float | None]]] = {}
    for component, layers in scored.attentions.items():
        values[component] = []
        for layer, attention in enumerate(layers):
            row: list[float | None] = [None] * attention.heads
            for head, number in zip(
                attention.kept, numbers.get((component, layer), ()), strict=True
            ):
                row[head] = number
            values[component].append(row)
    return values


def _measured(outcome: Outcome, metric: str) -> Tensor:
    """Each example's loss, or whether it is right: B."""
    if not outcome.losses.isfinite().all():
        raise DataError("the loss of an example is not finite")
    if metric == "loss":
        return outcome.losses.double().cpu()
    if outcome.correct is None:
        raise UsageError("accuracy is of models that predict a class; give metric loss")
    return outcome.correct.cpu()


def _mean(values: Tensor, metric: str) -> float:
    mean = values.double().mean().item()
    return 100 * mean if metric == "accuracy" else mean


def _compare(base: Tensor, masked: Tensor, metric: str) -> tuple[float, float]:
    """How much worse, and the p-value."""
    drop = _mean(base, metric) - _mean(masked, metric)
    if metric == "accuracy":
        return drop, mcnemar(base.tolist(), masked.tolist())
    from scipy.stats import ttest_1samp

    differences = masked - base
    # Rounding differs with the number of masks worked out at once, and is no effect of a mask.
    differences[differences.abs() <= _ROUNDING * base.abs().clamp(min=1)] = 0
    if differences.std(correction=0) == 0:  # the test divides by it
        return -drop, 1.0 if differences.mean() == 0 else 0.0
    return -drop, float(ttest_1samp(differences.numpy(), 0).pvalue)
