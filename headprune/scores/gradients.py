"""Scores from gradients: how much the loss would change, to first order, without a head.

With xi a head's gate (Budhraja et al. 2020, equation 2) and c its output at each token,
d loss / d xi = sum over tokens of c . d loss / d c. Gates of their own for each example and token
give all of it in one backward pass a batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from headprune.errors import DataError, UsageError
from headprune.scores.head_scores import Values, normalised_by_layer
from headprune.scores.scored_model import Attention, Batches, ScoredModel
from headprune.scores.values import Found, means, no_sums


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
        examples: the number of examples.
    """

    gradient_raw: Values
    taylor: Values
    taylor_molchanov: Values
    examples: int

    @property
    def gradient(self) -> Values:
        """The criterion of Michel et al. 2019: `gradient_raw`, each layer of l2 norm 1."""
        return normalised_by_layer(self.gradient_raw)


def gradient_scores(scored: ScoredModel, batches: Batches) -> GradientScores:
    """Score all heads by gradients.

    Args:
        scored: the model; it is evaluated without dropout, and left as it was.
        batches: with labels. How the data are cut into batches does not matter.

    Raises:
        UsageError: a model without outputs for labels, or without heads.
        DataError: no data, no labels in them, or a gradient that is not finite.
    """
    found = scored.attentions
    if not any(attention.present for layers in found.values() for attention in layers):
        raise UsageError("the model has no head left to score")
    gradient, taylor, molchanov = no_sums(found), no_sums(found), no_sums(found)
    tokens = dict.fromkeys(found, 0)
    examples = 0
    with scored.evaluating(), _gates(found) as gates:
        for batch in batches:
            gates.clear()
            with torch.enable_grad():
                losses = scored.outcome(batch).losses  # B
                places = list(gates)
                dots = torch.autograd.grad(losses.sum(), [gates[place] for place in places])
            examples += len(losses)
            lengths = {name: scored.queries(name, batch).sum(1).cpu() for name in found}  # B
            for (name, layer), dot in zip(places, dots, strict=True):
                if not dot.isfinite().all():
                    raise DataError(f"{name}: layer {layer}: a gradient is not finite")
                dot = dot.movedim(scored.batch_dim, 0).double().cpu()  # B x T x H'
                by_example = dot.sum(1)  # B x H'
                gradient[name][layer] += by_example.abs().sum(0)
                taylor[name][layer] += dot.abs().sum((0, 1))
                molchanov[name][layer] += (by_example.abs() / lengths[name].unsqueeze(1)).sum(0)
            for name in found:
                tokens[name] += int(lengths[name].sum())
    if not examples:
        raise DataError("no example to compute scores on")
    of_examples = dict.fromkeys(found, examples)
    return GradientScores(
        gradient_raw=means(found, gradient, counted=of_examples),
        taylor=means(found, taylor, counted=tokens),
        taylor_molchanov=means(found, molchanov, counted=of_examples),
        examples=examples,
    )


Place = tuple[str, int]
"""Component and layer."""


@contextmanager
def _gates(found: Found) -> Iterator[dict[Place, Tensor]]:
    """Within this context each forward pass multiplies head outputs by ones, which it notes."""
    gates: dict[Place, Tensor] = {}
    with ExitStack() as hooks:
        for name, layers in found.items():
            for layer, attention in enumerate(layers):
                if attention.present:
                    note = _note(attention, (name, layer), gates)
                    hook = attention.output.register_forward_pre_hook(note)
                    hooks.callback(hook.remove)
        yield gates


def _note(
    attention: Attention, place: Place, gates: dict[Place, Tensor]
) -> Callable[[nn.Module, tuple[Any, ...]], Any]:
    def multiply(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        x = inputs[0]  # B x T x H'd, or T x B x H'd
        ones = x.new_ones(*x.shape[:-1], len(attention.present), requires_grad=True)
        gates[place] = ones
        return (x * ones.repeat_interleave(attention.head_size, dim=-1), *inputs[1:])

    return multiply
