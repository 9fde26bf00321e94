"""Re-fitting: the weights that are kept are solved anew by least squares, without training.

Kwon et al. (2022, section 4.3) choose after pruning one factor for each kept unit, layer by layer,
by linear least squares, so that each pruned sub-layer reproduces the unpruned one's output, with
the residual connection. Here the whole output projection is solved. With x' the input of a pruned
sub-layer's output projection (the outputs of its kept units, in the pruned model) and y the target
for the same token,

    minimise over W, b:   sum_t |y_t - W x'_t - b|^2 + lambda |W - W_0|^2

with W_0 the weights as they are. The target ``output`` is the unpruned sub-layer's output. With the
target ``residual``, y is that output with the unpruned residual connection, less the residual
connection of the pruned model: as in Kwon et al., the sub-layer then makes up for the errors of
those below, too. The sub-layers are solved from the bottom to the top, so that x'
comes from a model that is re-fitted below. Each takes one pass over the data, in which both models
run up to this sub-layer only; the memory does not depend on the number of batches. A sub-layer with
companion streams has an output projection for each, which are all solved, by their own inputs.

Above a dropped layer, all sub-layers of the stack are re-fitted, as their inputs have changed.
Layers that share weights (ALBERT) are solved over all passes together. As their solution changes
the inputs of the later passes, it is repeated.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from headprune.components import layers_of
from headprune.errors import DataError, UsageError
from headprune.model import Batch, PrunableModel, PrunableSublayer, RunnableModel, streams_of
from headprune.recovery.least_squares import LeastSquares
from headprune.recovery.residual import Output, outputs_of, passes_through

RIDGE = 1e-3
"""Default of the penalty lambda, as a share of the mean of sum_t x'_ti^2 over the inputs i."""

ENOUGH = 5
"""The number of tokens for each unknown below which a re-fit may follow the noise of its data."""

SHARED_ROUNDS = 4
"""The number of solutions, one after another, of layers that share weights."""

_ORDER = ("ES", "EF"), ("DS", "ED", "DF")
"""The sub-layers of one layer of the encoder and of the decoder, in the order of computation."""

Target = Literal["output", "residual"]
"""The target of a re-fitted sub-layer: its output alone, or with the residual connection."""

Place = tuple[str, int]
"""Component and layer."""


@dataclass(frozen=True, kw_only=True)
class Refitted:
    """One re-fitted sub-layer.

    Attributes:
        component, layer: its place.
        unknowns: the unknowns of the least squares for each output, of the sub-layer's own stream.
        tokens: the number of tokens.
        before, after: the mean squared difference from the target (of all streams), over the
            calibration data, before and after re-fitting this sub-layer (those below are re-fitted
            in both).
    """

    component: str
    layer: int
    unknowns: int
    tokens: int
    before: float
    after: float


@dataclass(frozen=True, kw_only=True)
class RefittedModel:
    """A pruned model that was re-fitted.

    Attributes:
        model: the model; its file or folder is not written yet.
        sublayers: the sub-layers that were re-fitted, in order.
        data: the name of the calibration data and the number of examples, as in signatures.
        examples: the number of examples; None where it is not known.
    """

    model: PrunableModel
    sublayers: Sequence[Refitted]
    data: str
    examples: int | None = None

    def __str__(self) -> str:
        if not self.sublayers:
            return "no sub-layer has lost units or is above a dropped layer: nothing was re-fitted"
        before, after = (
            sum(getattr(each, moment) for each in self.sublayers) / len(self.sublayers)
            for moment in ("before", "after")
        )
        return (
            f"{len(self.sublayers)} sub-layers re-fitted on {self.data}: mean squared difference "
            f"from the unpruned model {before:.3g} -> {after:.3g} on the calibration data"
        )


def refit(
    pruned: RunnableModel,
    unpruned: RunnableModel,
    batches: Callable[[], Iterable[Batch]],
    *,
    ridge: float = RIDGE,
    target: Target = "output",
    say: Callable[[Refitted], None] = lambda _: None,
) -> list[Refitted]:
    """Re-fit the output projections of all sub-layers that have lost units, in place.

    Those above dropped layers are re-fitted too, if there are tokens enough.

    Args:
        pruned: the model to re-fit, in form ``remove``. Both are evaluated without dropout.
        unpruned: the model that it was pruned from, or another one of its shape.
        batches: function that returns the calibration data for one pass. Labels are not used.
            Padding is left out.
        ridge: see ``RIDGE``; above 0.
        target: what a sub-layer reproduces; see the module.
        say: function that is called after each sub-layer.

    Returns:
        The re-fitted sub-layers in order; empty where there are none.

    Raises:
        UsageError: models of different shapes, units that are masked or uniform, a ridge that is
            not above 0, or the target ``residual`` for a model that does not add the outputs of its
            sub-layers to its hidden states as they are.
        DataError: fewer tokens than unknowns, or values that are not finite.
    """
    if not ridge > 0:
        raise UsageError(f"ridge is {ridge}, it has to be above 0")
    places, unpruned_places = _places(pruned, unpruned)
    if not places:
        return []
    tokens, examples = _counted(pruned, places, batches())
    places = _with_enough(pruned, places, tokens, examples=examples, optional=unpruned_places)
    if not places:
        return []
    refitted: dict[Place, Refitted] = {}
    projections = [pruned.sublayers[component][layer].output for component, layer in places]
    with torch.no_grad(), pruned.evaluating(), unpruned.evaluating():
        passes = passes_through(pruned, projections, next(iter(batches())))
        rounds = 1 if max(passes) == 1 else SHARED_ROUNDS
        for place, number in [*zip(places, passes, strict=True)] * rounds:
            solved = _refit_one(
                pruned, unpruned, place, batches(), passes=number, ridge=ridge, target=target
            )
            first = refitted.get(place, solved)
            refitted[place] = replace(solved, before=first.before)
            say(solved)
    return list(refitted.values())


def _places(pruned: RunnableModel, unpruned: RunnableModel) -> tuple[list[Place], frozenset[Place]]:
    """The sub-layers to re-fit, in the order of computation, and those that have all units."""
    places = []
    whole = set()
    for components in _ORDER:
        present = [name for name in components if name in pruned.sublayers]
        for name in present:
            depths = [len(model.sublayers.get(name, ())) for model in (pruned, unpruned)]
            if depths[0] != depths[1]:
                raise UsageError(f"{name}: the models have {depths[0]} and {depths[1]} layers")
        depth = max((len(pruned.sublayers[name]) for name in present), default=0)
        is_above_dropped = False
        for layer in range(depth):
            if any(_is_dropped(pruned, (name, layer)) for name in present):
                is_above_dropped |= not any(
                    _is_dropped(unpruned, (name, layer)) for name in present
                )
                continue
            for name in present:
                if _has_lost_units(pruned, unpruned, (name, layer)):
                    places.append((name, layer))
                elif is_above_dropped and pruned.sublayers[name][layer].kept:
                    places.append((name, layer))
                    whole.add((name, layer))
    return places, frozenset(whole)


def _is_dropped(model: RunnableModel, place: Place) -> bool:
    component, layer = place
    stack = model.layers.get(layers_of(component))
    return stack is not None and not stack[layer].is_kept


def _has_lost_units(pruned: RunnableModel, unpruned: RunnableModel, place: Place) -> bool:
    component, layer = place
    part, whole = pruned.sublayers[component][layer], unpruned.sublayers[component][layer]
    where = f"{component}: layer {layer}"
    if part.units != whole.units or not set(part.kept) <= set(whole.kept):
        raise UsageError(f"{where}: keeps units that the unpruned model does not have")
    if part.present != part.kept:
        raise UsageError(
            f"{where}: has masked or uniform units; re-fitting is for units that are removed"
        )
    return len(part.kept) < len(whole.kept)


def _counted(
    model: RunnableModel, places: Sequence[Place], batches: Iterable[Batch]
) -> tuple[dict[str, int], int]:
    """The number of tokens of each component, and of examples."""
    tokens = dict.fromkeys((component for component, _ in places), 0)
    examples = 0
    for batch in batches:
        for component in tokens:
            real = model.queries(component, batch)  # B x T
            tokens[component] += int(real.sum())
        examples += len(real)
    return tokens, examples


def _with_enough(
    model: RunnableModel,
    places: Sequence[Place],
    tokens: Mapping[str, int],
    *,
    examples: int,
    optional: Collection[Place],
) -> list[Place]:
    """The sub-layers with at least as many tokens as unknowns, before anything is changed.

    Args:
        places: the sub-layers to re-fit.
        tokens: by component.
        examples: the number of examples, for messages.
        optional: sub-layers that are left out, with a warning, where they lack tokens.

    Raises:
        DataError: another sub-layer lacks tokens.
    """
    unknowns = {place: _unknowns(model.sublayers[place[0]][place[1]]) for place in places}
    left_out = [each for each in places if each in optional and tokens[each[0]] < unknowns[each]]
    if left_out:
        names = ", ".join(f"{component} of layer {layer}" for component, layer in left_out)
        print(
            f"warning: {names}: above a dropped layer, but not re-fitted, as the {examples} "
            "calibration examples have too few tokens",
            file=sys.stderr,
        )
    unknowns = {each: number for each, number in unknowns.items() if each not in left_out}
    for (component, layer), number in unknowns.items():
        if tokens[component] < number:
            raise DataError(
                f"{component}: layer {layer}: re-fitting has {number} unknowns for each output, "
                f"and the {examples} calibration examples have {tokens[component]} tokens only; "
                "give more examples (of a classifier's training set, half of those are used that "
                "it was not trained on; `headprune prune --without-labels` uses all)"
            )
    if not unknowns:
        return []
    component, layer = place = max(
        unknowns, key=lambda each: unknowns[each] / max(1, tokens[each[0]])
    )
    if tokens[component] < ENOUGH * unknowns[place]:
        print(
            f"warning: {component}: layer {layer}: re-fitting has {unknowns[place]} unknowns for "
            f"each output and only {tokens[component]} tokens; with fewer than {ENOUGH} tokens for "
            "each, the model may get worse on other text; give more examples",
            file=sys.stderr,
        )
    return list(unknowns)


def _unknowns(sublayer: PrunableSublayer) -> int:
    return len(sublayer.kept) * sublayer.unit_size + (sublayer.output.bias is not None)


def _refit_one(
    pruned: RunnableModel,
    unpruned: RunnableModel,
    place: Place,
    batches: Iterable[Batch],
    *,
    passes: int,
    ridge: float,
    target: Target,
) -> Refitted:
    component, layer = place
    sublayer = pruned.sublayers[component][layer]
    streams = streams_of(sublayer)
    projections = [stream.output for stream in streams]
    columns = [stream.as_columns(stream.output.weight) for stream in streams]  # C x U'd each
    unpruned_projections = [
        each.output for each in streams_of(unpruned.sublayers[component][layer])
    ]
    sums = [
        LeastSquares(
            len(sublayer.kept) * stream.unit_size,
            weight.size(0),
            bias=stream.output.bias is not None,
            device=weight.device,
        )
        for stream, weight in zip(streams, columns, strict=True)
    ]
    for batch in batches:
        real = pruned.queries(component, batch)  # B x T
        if pruned.batch_dim == 1:
            real = real.T  # T x B
        with_sums = target == "residual"
        whole_outputs = outputs_of(
            unpruned, unpruned_projections, batch, passes=passes, with_sums=with_sums
        )
        pruned_outputs = outputs_of(pruned, projections, batch, passes=passes, with_sums=with_sums)
        for of_stream, whole, part in zip(
            sums * passes, whole_outputs, pruned_outputs, strict=True
        ):
            x = part.inputs  # B x T x U'd (or T x B x U'd)
            mask = real.to(x.device)
            y, output = (_target(each, mask, target, place) for each in (whole, part))  # N x C
            of_stream.add(x[mask], y.to(x.device) - output)
    if not all(of_stream.finite for of_stream in sums):
        raise DataError(f"{component}: layer {layer}: its outputs are not finite (NaN or infinity)")
    corrections = [of_stream.solve(ridge) for of_stream in sums]
    for projection, weight, correction in zip(projections, columns, corrections, strict=True):
        weight.add_(correction.weight.to(weight.dtype))
        if correction.bias is not None:
            projection.bias.add_(correction.bias.to(projection.bias.dtype))
    widths = [weight.size(0) for weight in columns]
    return Refitted(
        component=component,
        layer=layer,
        unknowns=sums[0].unknowns,
        tokens=sums[0].tokens,
        before=_mean([each.before for each in corrections], widths),
        after=_mean([each.after for each in corrections], widths),
    )


def _mean(values: Sequence[float], weights: Sequence[int]) -> float:
    pairs = zip(values, weights, strict=True)
    return sum(value * weight for value, weight in pairs) / sum(weights)


def _target(output: Output, mask: Tensor, target: Target, place: Place) -> Tensor:
    """The output of the tokens in a mask, with the residual connection if wanted: N x C, float64.

    Raises:
        UsageError: the output is not added to the residual connection as it is.
    """
    result = output.result[mask.to(output.result.device)].double()
    if target == "output":
        return result
    if output.added is None:
        component, layer = place
        raise UsageError(
            f"{component}: layer {layer}: its output is not added to the hidden states as it is "
            "(it is normalised, scaled or rearranged before); give the target output"
        )
    return result + output.added[mask.to(output.added.device)].to(result)
