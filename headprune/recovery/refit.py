"""Re-fitting: the weights that are kept are solved anew by least squares, without training.

Kwon et al. (2022, section 4.3) choose after pruning one factor for each kept unit, layer by layer,
by linear least squares, so that each pruned sub-layer reproduces the unpruned one's output, with
the residual connection. Here the whole output projection is solved, and the output is that without
the residual connection. With x' the input of a pruned sub-layer's output projection (the outputs of
its kept units, in the pruned model) and y the unpruned sub-layer's output for the same token,

    minimise over W, b:   sum_t |y_t - W x'_t - b|^2 + lambda |W - W_0|^2

with W_0 the weights as they are. The sub-layers are solved from the bottom to the top, so that x'
comes from a model that is re-fitted below. Each takes one pass over the data, in which both models
run up to this sub-layer only; the memory does not depend on the number of batches. A sub-layer with
companion streams has an output projection for each, which are all solved, by their own inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headprune.components import layers_of
from headprune.errors import DataError, UsageError
from headprune.model import Batch, PrunableModel, PrunableSublayer, RunnableModel, streams_of
from headprune.recovery.least_squares import LeastSquares

RIDGE = 1e-3
"""Default of the penalty lambda, as a share of the mean of sum_t x'_ti^2 over the inputs i."""

_ORDER = ("ES", "EF"), ("DS", "ED", "DF")
"""The sub-layers of one layer of the encoder and of the decoder, in the order of computation."""

Place = tuple[str, int]
"""Component and layer."""


@dataclass(frozen=True, kw_only=True)
class Refitted:
    """One re-fitted sub-layer.

    Attributes:
        component, layer: its place.
        unknowns: the unknowns of the least squares for each output, of the sub-layer's own stream.
        tokens: the number of tokens.
        before, after: the mean squared difference from the unpruned output (of all streams), over
            the calibration data, before and after re-fitting this sub-layer (those below are
            re-fitted in both).
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
    """

    model: PrunableModel
    sublayers: Sequence[Refitted]
    data: str

    def __str__(self) -> str:
        if not self.sublayers:
            return "no sub-layer has lost units, so nothing was re-fitted"
        before, after = (
            sum(getattr(each, moment) for each in self.sublayers) / len(self.sublayers)
            for moment in ("before", "after")
        )
        return (
            f"{len(self.sublayers)} sub-layers re-fitted on {self.data}: mean squared difference "
            f"from the unpruned outputs {before:.3g} -> {after:.3g}"
        )


def refit(
    pruned: RunnableModel,
    unpruned: RunnableModel,
    batches: Callable[[], Iterable[Batch]],
    *,
    ridge: float = RIDGE,
    say: Callable[[Refitted], None] = lambda _: None,
) -> list[Refitted]:
    """Re-fit the output projections of all sub-layers that have lost units, in place.

    Args:
        pruned: the model to re-fit, in form ``remove``. Both are evaluated without dropout.
        unpruned: the model that it was pruned from, or another one of its shape.
        batches: function that returns the calibration data for one pass. Labels are not used.
            Padding is left out.
        ridge: see ``RIDGE``; above 0.
        say: function that is called after each sub-layer.

    Returns:
        The re-fitted sub-layers in order; empty where none has lost units.

    Raises:
        UsageError: models of different shapes, units that are masked or uniform, or a ridge that
            is not above 0.
        DataError: fewer tokens than unknowns, or values that are not finite.
    """
    if not ridge > 0:
        raise UsageError(f"ridge is {ridge}, it has to be above 0")
    places = _places(pruned, unpruned)
    if not places:
        return []
    _require_enough(pruned, places, batches())
    refitted = []
    with torch.no_grad(), pruned.evaluating(), unpruned.evaluating():
        for place in places:
            refitted.append(_refit_one(pruned, unpruned, place, batches(), ridge=ridge))
            say(refitted[-1])
    return refitted


def _places(pruned: RunnableModel, unpruned: RunnableModel) -> list[Place]:
    """The sub-layers that have lost units, in the order of computation."""
    places = []
    for components in _ORDER:
        present = [name for name in components if name in pruned.sublayers]
        for name in present:
            depths = [len(model.sublayers.get(name, ())) for model in (pruned, unpruned)]
            if depths[0] != depths[1]:
                raise UsageError(f"{name}: the models have {depths[0]} and {depths[1]} layers")
        depth = max((len(pruned.sublayers[name]) for name in present), default=0)
        for layer in range(depth):
            for name in present:
                if _has_lost_units(pruned, unpruned, (name, layer)):
                    places.append((name, layer))
    return places


def _has_lost_units(pruned: RunnableModel, unpruned: RunnableModel, place: Place) -> bool:
    component, layer = place
    stack = pruned.layers.get(layers_of(component))
    if stack is not None and not stack[layer].is_kept:
        return False
    part, whole = pruned.sublayers[component][layer], unpruned.sublayers[component][layer]
    where = f"{component}: layer {layer}"
    if part.units != whole.units or not set(part.kept) <= set(whole.kept):
        raise UsageError(f"{where}: keeps units that the unpruned model does not have")
    if part.present != part.kept:
        raise UsageError(
            f"{where}: has masked or uniform units; re-fitting is for units that are removed"
        )
    return len(part.kept) < len(whole.kept)


def _require_enough(model: RunnableModel, places: list[Place], batches: Iterable[Batch]) -> None:
    """Check the number of tokens before anything is changed."""
    unknowns = {place: _unknowns(model.sublayers[place[0]][place[1]]) for place in places}
    tokens = dict.fromkeys((component for component, _ in places), 0)
    examples = 0
    for batch in batches:
        for component in tokens:
            real = model.queries(component, batch)  # B x T
            tokens[component] += int(real.sum())
        examples += len(real)
    for (component, layer), number in unknowns.items():
        if tokens[component] < number:
            raise DataError(
                f"{component}: layer {layer}: re-fitting has {number} unknowns for each output, "
                f"and the {examples} calibration examples have {tokens[component]} tokens only; "
                "give more examples"
            )


def _unknowns(sublayer: PrunableSublayer) -> int:
    return len(sublayer.kept) * sublayer.unit_size + (sublayer.output.bias is not None)


def _refit_one(
    pruned: RunnableModel,
    unpruned: RunnableModel,
    place: Place,
    batches: Iterable[Batch],
    *,
    ridge: float,
) -> Refitted:
    component, layer = place
    sublayer = pruned.sublayers[component][layer]
    streams = streams_of(sublayer)
    outputs = [stream.output for stream in streams]
    columns = [stream.as_columns(stream.output.weight) for stream in streams]  # C x U'd each
    targets = [each.output for each in streams_of(unpruned.sublayers[component][layer])]
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
        wanted = _run_to(unpruned, targets, batch)  # of each stream: any, B x T x C (or T x B x C)
        given = _run_to(pruned, outputs, batch)  # of each stream: ... x U'd, ... x C
        for of_stream, (_, y), (x, now) in zip(sums, wanted, given, strict=True):
            mask = real.to(x.device)
            of_stream.add(x[mask], y.to(x.device)[mask].double() - now[mask].double())
    if not all(of_stream.finite for of_stream in sums):
        raise DataError(f"{component}: layer {layer}: its outputs are not finite (NaN or infinity)")
    corrections = [of_stream.solve(ridge) for of_stream in sums]
    for output, weight, correction in zip(outputs, columns, corrections, strict=True):
        weight.add_(correction.weight.to(weight.dtype))
        if correction.bias is not None:
            output.bias.add_(correction.bias.to(output.bias.dtype))
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


class _Reached(Exception):
    """The output projections have been computed; the modules above them need not be."""


def _run_to(
    model: RunnableModel, outputs: Sequence[nn.Linear], batch: Batch
) -> list[tuple[Tensor, Tensor]]:
    """Run a model up to the last of some output projections; return their inputs and outputs."""
    seen: list[tuple[Tensor, Tensor]] = []

    def keep(_: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        seen.append((inputs[0], result))
        if len(seen) == len(outputs):
            raise _Reached

    with ExitStack() as hooks:
        for output in outputs:
            hooks.callback(output.register_forward_hook(keep).remove)
        with suppress(_Reached):
            model.run(batch)
    return seen
