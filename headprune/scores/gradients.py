"""Scores from gradients: how much the loss would change, to first order, without a head.

With xi a head's gate (Budhraja et al. 2020, equation 2) and c its output at each token,
d loss / d xi = sum over tokens of c . d loss / d c. Gates of their own for each example and token
give all of it in one backward pass a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from headprune.components import HEADS, unit_name
from headprune.errors import DataError, UsageError
from headprune.gates import Factors, gated, gated_layers
from headprune.model import Batch, Batches, PrunableLayer, PrunableSublayer, RunnableModel
from headprune.scores.head_scores import NORMALISED, Values, normalised_by_layer
from headprune.scores.own_outputs import GRADIENTS
from headprune.scores.registry import Computed, Scoring
from headprune.scores.units import Parts, WholeLayer, parts_of
from headprune.scores.values import means, no_sums


@dataclass(frozen=True, kw_only=True)
class GradientScores:
    """The scores of one pass over the data, for each component layers x heads.

    With c_t a head's output at token t, of the T tokens of an example, and g_t = d loss / d c_t:

    Attributes:
        gradient_raw: mean over examples of |d loss / d xi| = |sum_t c_t . g_t| (Michel et al.
            2019, equation 2), each example by itself.
        taylor: mean over all tokens of |c_t . g_t|: the absolute value of each token, as in the
            code that Michel et al. (2019) published.
        taylor_molchanov: mean over examples of |1/T sum_t c_t . g_t|: the mean before the absolute
            value, which is the criterion of Molchanov et al. (2017, equation 8).
        fisher: mean over examples of (d loss / d xi)^2: the diagonal of the empirical Fisher
            information matrix of the gates (Kwon et al. 2022, section 4.1).
        sublayer: mean over examples of |d loss / d nu|, with nu one gate for all units of a
            sub-layer (Prasanna et al. 2020, for whole MLPs); all its units have this number.
        examples: the number of examples.
    """

    gradient_raw: Values
    taylor: Values
    taylor_molchanov: Values
    fisher: Values
    sublayer: Values
    examples: int

    @property
    def gradient(self) -> Values:
        """The criterion of Michel et al. 2019: `gradient_raw` with l2 norm 1 in each layer."""
        return normalised_by_layer(self.gradient_raw)


def compute(scoring: Scoring, names: Sequence[str]) -> Mapping[str, Computed]:
    """Compute the requested gradient scores in one pass over the data."""
    scores = gradient_scores(
        scoring.model, scoring.batches(GRADIENTS), components=scoring.components
    )
    computed = {
        "gradient": Computed(values=scores.gradient, settings={"normalised": NORMALISED}),
        "gradient-raw": Computed(values=scores.gradient_raw),
        "taylor": Computed(values=scores.taylor),
        "taylor-molchanov": Computed(values=scores.taylor_molchanov),
        "fisher": Computed(values=scores.fisher),
        "gradient-sublayer": Computed(values=scores.sublayer),
    }
    return {name: computed[name] for name in names}


def gradient_scores(
    scored: RunnableModel, batches: Batches, *, components: Sequence[str] = HEADS
) -> GradientScores:
    """Score all units of some components by gradients.

    Args:
        scored: the model; it is evaluated without dropout, and left as it was.
        batches: with labels. How the data are cut into batches does not matter.
        components: those whose units are scored.

    Raises:
        UsageError: a model without outputs for labels, or without such units.
        DataError: no data, no labels in them, or a gradient that is not finite.
    """
    parts = parts_of(scored, components)
    gradient, taylor, molchanov, fisher, sublayer = (no_sums(parts) for _ in range(5))
    tokens = dict.fromkeys(parts, 0.0)
    examples = 0.0
    for batch, weights, dots in gate_gradients(scored, batches, parts):
        lengths = {name: scored.queries(name, batch).sum(1).cpu() for name in parts}  # B
        for (name, layer), dot in dots:  # B x T x H'
            by_example = dot.sum(1)  # B x H'
            gradient[name][layer] += weights @ by_example.abs()
            fisher[name][layer] += weights @ by_example.square()
            sublayer[name][layer] += weights @ by_example.sum(1).abs()
            taylor[name][layer] += weights @ dot.abs().sum(1)
            molchanov[name][layer] += (weights / lengths[name]) @ by_example.abs()
        for name in parts:
            tokens[name] += float(weights @ lengths[name].double())
        examples += float(weights.sum())
    of_examples = dict.fromkeys(parts, examples)
    return GradientScores(
        gradient_raw=means(parts, gradient, counted=of_examples),
        taylor=means(parts, taylor, counted=tokens),
        taylor_molchanov=means(parts, molchanov, counted=of_examples),
        fisher=means(parts, fisher, counted=of_examples),
        sublayer=means(parts, sublayer, counted=of_examples),
        examples=round(examples),
    )


Place = tuple[str, int]
"""Component and layer."""


def gate_gradients(
    scored: RunnableModel, batches: Batches, parts: Parts
) -> Iterator[tuple[Batch, Tensor, Iterator[tuple[Place, Tensor]]]]:
    """For each batch, the gradients of its examples' losses with respect to gates of their own.

    Yields:
        The batch, the weights of its examples (B,), and for each place the gradients, B x T x H',
        both in float64: the sum of gradients over an example's tokens is d loss / d xi.

    Raises:
        UsageError: a model without outputs for labels, or without units to gate.
        DataError: no data, no labels in them, or a gradient that is not finite.
    """
    if not any(part.present for layers in parts.values() for part in layers):
        raise UsageError(f"the model has no {unit_name(next(iter(parts), 'ES'))} left to score")

    examples = 0
    with scored.evaluating(), _unit_gates(parts) as gates:
        for batch in batches:
            gates.clear()  # of runs that labels were drawn from
            with torch.enable_grad():
                outcome = scored.outcome(batch)
                losses = outcome.losses  # B
                places = list(gates)
                # A decoder without heads of attention to the encoder does not use the encoder.
                dots = torch.autograd.grad(
                    losses.sum(), [gates[place] for place in places], materialize_grads=True
                )
            gates.clear()
            examples += len(losses)
            for (component, layer), dot in zip(places, dots, strict=True):
                if not dot.isfinite().all():
                    raise DataError(f"{component}: layer {layer}: a gradient is not finite")
            weights = torch.ones_like(losses) if outcome.weights is None else outcome.weights
            yield (
                batch,
                weights.detach().double().cpu(),
                (
                    (place, dot.movedim(scored.batch_dim, 0).double().cpu())
                    for place, dot in zip(places, dots, strict=True)
                ),
            )
    if not examples:
        raise DataError("no example to compute scores on")


@contextmanager
def _unit_gates(parts: Parts) -> Iterator[dict[Place, Tensor]]:
    """Within this context, multiply unit outputs by gates of ones, which are collected.

    Every example and token has ones of its own. A sub-layer that runs several times in a pass, as
    it serves several layers, has the same ones each time: their gradient is the sum over layers.
    """
    gates: dict[Place, Tensor] = {}

    def ones_for(place: Place, units: int) -> Callable[[Tensor], Tensor]:
        def ones(x: Tensor) -> Tensor:  # B x T x U'd, or T x B x U'd
            if place not in gates:
                gates[place] = x.new_ones(*x.shape[:-1], units, requires_grad=True)
            return gates[place]

        return ones

    of_sublayers: list[tuple[PrunableSublayer, Factors]] = []
    of_layers: list[tuple[PrunableLayer, Factors]] = []
    for component, layers in parts.items():
        for number, part in enumerate(layers):
            ones = ones_for((component, number), len(part.present))
            if isinstance(part, WholeLayer) and part.present:
                of_layers.append((part.layer, ones))
            elif part.present:
                of_sublayers.append((cast(PrunableSublayer, part), ones))
    with gated(of_sublayers), gated_layers(of_layers):
        yield gates
