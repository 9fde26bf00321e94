"""Re-fitting: the weights that are kept are solved anew by least squares, without training.

Kwon et al. (2022, section 4.3) choose after pruning one factor for each kept unit, layer by layer,
by linear least squares, so that each pruned sub-layer reproduces the unpruned one's output. Here
the whole output projection is solved. With x' the input of a pruned sub-layer's output projection
(the outputs of its kept units, in the pruned model) and y the unpruned sub-layer's output for the
same token,

    minimise over W, b:   sum_t |y_t - W x'_t - b|^2 + lambda |W - W_0|^2

with W_0 the weights as they are. The sub-layers are solved from the bottom to the top, so that x'
comes from a model that is re-fitted below. Each takes one pass over the data, in which both models
run up to this sub-layer only; the memory does not depend on the number of batches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from headprune.components import layers_of
from headprune.errors import DataError, UsageError
from headprune.model import Batch, PrunableModel, PrunableSublayer, RunnableModel
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
        unknowns: the unknowns of the least squares for each output.
        tokens: the number of tokens.
        before, after: the mean squared difference from the unpruned output, over the calibration
            data, before and after re-fitting this sub-layer (those below are re-fitted in both).
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
    output = sublayer.output
    columns = sublayer.as_columns(output.weight)  # C x U'd
    target = unpruned.sublayers[component][layer].output
    sums = LeastSquares(
        len(sublayer.kept) * sublayer.unit_size,
        columns.size(0),
        bias=output.bias is not None,
        device=output.weight.device,
    )
    for batch in batches:
        real = pruned.queries(component, batch)  # B x T
        if pruned.batch_dim == 1:
            real = real.T  # T x B
        _, wanted = _run_to(unpruned, target, batch)  # B x T x C, or T x B x C
        x, given = _run_to(pruned, output, batch)  # ... x U'd, ... x C
        real = real.to(x.device)
        sums.add(x[real], wanted.to(x.device)[real].double() - given[real].double())
    if not sums.finite:
        raise DataError(f"{component}: layer {layer}: its outputs are not finite (NaN or infinity)")
    correction = sums.solve(ridge)
    columns.add_(correction.weight.to(columns.dtype))
    if correction.bias is not None:
        output.bias.add_(correction.bias.to(output.bias.dtype))
    return Refitted(
        component=component,
        layer=layer,
        unknowns=sums.unknowns,
        tokens=sums.tokens,
        before=correction.before,
        after=correction.after,
    )


class _Reached(Exception):
    """The output projection has been computed; the modules above it need not be."""


def _run_to(model: RunnableModel, output: nn.Linear, batch: Batch) -> tuple[Tensor, Tensor]:
    """Run a model up to an output projection, and return the input and the output of it."""
    seen: list[Tensor] = []

    def keep(_: nn.Module, inputs: tuple[Tensor, ...], result: Tensor) -> None:
        seen.extend((inputs[0], result))
        raise _Reached

    hook = output.register_forward_hook(keep)
    try:
        model.run(batch)
    except _Reached:
        pass
    finally:
        hook.remove()
    x, y = seen
    return x, y
