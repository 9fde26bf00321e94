"""The plan of a Hugging Face model, and its plan after a requested pruning."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from torch import Tensor
from transformers import PreTrainedModel

from headprune.components import COMPONENTS, HEADS, LAYERS, layers_of, unit_name
from headprune.errors import UsageError
from headprune.plan import PruningPlan, is_whole
from hf_plugin.families import attentions, family_of, feed_forwards, stacks, sublayers
from hf_plugin.head_names import has_one_stack

Heads = Mapping[int, Iterable[int]]
"""For some layers, the heads to prune; layers below 0 count from the top."""


def head_plan(model: PreTrainedModel) -> PruningPlan:
    """The plan of the heads that ``model`` keeps, in the unpruned model's numbering.

    Raises:
        UsageError: a model that cannot be pruned.
    """
    return full_plan(model, HEADS)


def full_plan(model: PreTrainedModel, components: Container[str] = COMPONENTS) -> PruningPlan:
    """The plan of the given components, as far as ``model`` has them, even if nothing is pruned.

    Dropped layers keep no head and no neuron.

    Raises:
        UsageError: a model that cannot be pruned.
    """
    kept: dict[str, Sequence[Sequence[int]]] = {
        name: [sublayer.kept for sublayer in by_layer]
        for name, by_layer in sublayers(model).items()
        if name in components
    }
    for name, layers in stacks(model).items():
        if name in components:
            kept[name] = [(0,) if layer.is_kept else () for layer in layers]
    shape = model_shape(model)
    return PruningPlan(kept=kept, units={name: shape[name] for name in kept})


def plan(model: PreTrainedModel) -> PruningPlan:
    """The plan of ``model``: of its heads, and of neurons and layers where some are pruned.

    Raises:
        UsageError: a model that cannot be pruned.
    """
    components = [*HEADS]
    layers = stacks(model)
    for name, by_layer in feed_forwards(model).items():
        stack = layers.get(layers_of(name), ())
        dropped = {number for number, layer in enumerate(stack) if not layer.is_kept}
        if any(part.is_pruned for number, part in enumerate(by_layer) if number not in dropped):
            components.append(name)
    for name, stack in layers.items():
        if not all(layer.is_kept for layer in stack):
            components.append(name)
    return full_plan(model, components)


def model_shape(model: PreTrainedModel) -> dict[str, tuple[int, ...]]:
    """The units of each layer of the unpruned model, of every component that it has.

    Raises:
        UsageError: a model that cannot be pruned.
    """
    shape = {
        name: tuple(sublayer.units for sublayer in by_layer)
        for name, by_layer in sublayers(model).items()
    }
    return shape | {name: (1,) * len(layers) for name, layers in stacks(model).items()}


def plan_after(
    model: PreTrainedModel, request: PruningPlan | Heads, *, form: str = "remove"
) -> PruningPlan:
    """The plan of ``model`` when ``request`` has been carried out.

    It names all heads, and all further components whose units ``request`` prunes.

    Args:
        model: any that can be pruned; it may have been pruned before.
        request: the plan to reach, or further heads to prune. The latter may include heads that
            are already pruned, as in transformers 4. Components that a plan does not name stay as
            they are.
        form: ``remove`` or ``uniform``, the form in which it will be carried out.

    Raises:
        UsageError: a plan of another shape, a layer or head that does not exist, a head to remove
            that is uniform, neurons or layers to make uniform, or a dict for a model with several
            components of heads.
    """
    if isinstance(request, PruningPlan):
        return _checked(request, model, form=form)
    now = head_plan(model)
    if not isinstance(request, Mapping):
        raise UsageError(
            f"give a HeadPlan or a dict {{layer: [heads]}}, not {type(request).__name__}"
        )
    if len(now.kept) > 1:
        raise UsageError(
            f"the {family_of(model)} model has heads in {', '.join(now.kept)}: say which with a "
            "HeadPlan, a dict of layers does not"
        )
    (component,) = now.kept
    left = list(now.kept[component])
    seen: dict[int, object] = {}
    for given, heads in request.items():
        layer = _layer(given, layers=len(left), component=component)
        if layer in seen:
            raise UsageError(
                f"{component}: layer {layer} is given twice, as {seen[layer]} and {given}"
            )
        seen[layer] = given
        total = now.heads[component][layer]
        where = f"{component}: layer {layer}"
        pruned = _heads(heads, total=total, where=where)
        uniform = pruned.intersection(attentions(model)[component][layer].uniform)
        if uniform and form == "remove":
            raise UsageError(
                f"{where}: head {min(uniform)} is uniform; to remove uniform heads give a HeadPlan"
            )
        left[layer] = tuple(head for head in left[layer] if head not in pruned)
    return PruningPlan(kept={component: left}, units=now.units)


def _checked(request: PruningPlan, model: PreTrainedModel, *, form: str) -> PruningPlan:
    """The plan after ``request``, checked not to restore pruned units."""
    request.require_shape(model_shape(model), of=f"the {family_of(model)} model")
    # With a layer all its heads and neurons go.
    decides_on_layers = any(name in LAYERS for name in request.units)
    named = COMPONENTS if decides_on_layers else (*HEADS, *LAYERS, *request.units)
    now = full_plan(model, named)
    request = without_units_of_dropped_layers(now.replaced_by(request), family_of(model))
    # Layers first: the units of a dropped one are gone too.
    for name in reversed(tuple(request.kept)):
        unit = unit_name(name)
        for layer, (kept, kept_now) in enumerate(
            zip(request.kept[name], now.kept[name], strict=True)
        ):
            gone = sorted(set(kept) - set(kept_now))
            if gone and name in LAYERS:
                raise UsageError(
                    f"{name}: the plan keeps layer {layer}, which was dropped before; a dropped "
                    "layer does not come back"
                )
            if gone:
                raise UsageError(
                    f"{name}: layer {layer}: the plan keeps {unit} {gone[0]}, which was pruned "
                    f"before; a pruned {unit} does not come back"
                )
            if form == "uniform" and name not in HEADS and kept != kept_now:
                raise UsageError(
                    f"form: uniform is for heads, and the plan prunes {name}; take form remove"
                )
    return request


def without_units_of_dropped_layers(plan: PruningPlan, family: str) -> PruningPlan:
    """The same plan without the heads and neurons of dropped layers.

    Where one stack is encoder and decoder (BERT), its layers' attention to an encoder goes too.
    """
    plan = plan.without_units_of_dropped_layers()
    if not has_one_stack(family) or not {"ED", "EL"} <= set(plan.kept):
        return plan
    pairs = zip(plan.kept["ED"], plan.kept["EL"], strict=True)
    of_layers = [heads if layer else () for heads, layer in pairs]
    return replace(plan, kept={**plan.kept, "ED": of_layers})


def _layer(given: object, *, layers: int, component: str) -> int:
    if not is_whole(given):
        raise UsageError(f"{component}: {given!r} is no layer number")
    if not -layers <= given < layers:
        raise UsageError(
            f"{component}: there is no layer {given}, the model has {layers} ({-layers} to "
            f"{layers - 1})"
        )
    return int(given) % layers


def numbers_of(given: Any) -> Any:
    """Convert a tensor, an array or a list of their scalars to a list of numbers."""
    if isinstance(given, (Tensor, np.ndarray)):
        return given.tolist()
    if isinstance(given, (list, tuple)):
        return [each.item() if isinstance(each, Tensor) else each for each in given]
    return given


def _heads(given: object, *, total: int, where: str) -> set[int]:
    """The heads to prune, each of which must exist in the unpruned model."""
    numbers = numbers_of(given)
    if isinstance(numbers, (str, bytes)) or not isinstance(numbers, Iterable):
        raise UsageError(f"{where}: give heads as a list, not {given!r}")
    heads = set()
    for head in numbers:
        if not is_whole(head) or not 0 <= head < total:
            raise UsageError(
                f"{where} has no head {head!r}, the unpruned model has {total} (0 to {total - 1})"
            )
        heads.add(int(head))
    return heads
