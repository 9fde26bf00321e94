"""The sub-layers and layers of a Hugging Face model, found by the names of its family.

A family that is not in the table of ``head_names`` is refused by name.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import nn
from transformers import PreTrainedModel

from headprune.errors import UsageError
from hf_plugin.cutting import PLAIN
from hf_plugin.head_names import (
    FAMILIES,
    FEED_FORWARD,
    PREFIX,
    CompanionNames,
    FeedForwardNames,
    Names,
    layer_lists,
)
from hf_plugin.headless import Weightless
from hf_plugin.sublayers import Attention, CompanionProjections, FeedForward, Layer, Sublayer

_TOWERS = {"clip": "CLIPTextModel and CLIPVisionModel"}
_COMPOSITE = ("encoder-decoder", "vision-encoder-decoder", "speech-encoder-decoder")


def family_of(model: PreTrainedModel) -> str:
    """The model type of ``model``, that of the unpruned model where it is pruned.

    Raises:
        UsageError: not a transformers model, or see ``require_family``.
    """
    if not isinstance(model, PreTrainedModel):
        raise UsageError(
            f"{type(model).__name__} is no transformers model; prune the model itself, before it "
            "is compiled or wrapped"
        )
    if getattr(model.config, "inner_group_num", 1) != 1:
        raise UsageError(
            "albert: groups of several layers (inner_group_num above 1) cannot be pruned"
        )
    return require_family(str(model.config.model_type))


def require_family(model_type: str) -> str:
    """The family of a model type; ``bert`` for ``headpruned-bert``.

    Raises:
        UsageError: a family whose parts are pruned instead, or that is not known.
    """
    family = model_type.removeprefix(PREFIX)
    if family in _TOWERS:
        raise UsageError(
            f"{family}: prune its towers, {_TOWERS[family]}, which are models of their own"
        )
    if family in _COMPOSITE:
        raise UsageError(f"{family}: prune its encoder and decoder, then put them together")
    if family not in FAMILIES:
        raise UsageError(f"{family} is not a known family; docs/guides/families.md lists all")
    return family


def form_of(model: PreTrainedModel) -> str:
    """The form in which ``model`` is pruned: ``none``, ``remove``, ``uniform`` or both.

    Raises:
        UsageError: see ``attentions``.
    """
    forms = {
        "remove": any(
            len(sublayer.present) < sublayer.units
            for by_layer in sublayers(model).values()
            for sublayer in by_layer
        ),
        "uniform": any(
            attention.uniform for by_layer in attentions(model).values() for attention in by_layer
        ),
    }
    return "+".join(name for name, is_used in forms.items() if is_used) or "none"


def is_decoder_alone(model: PreTrainedModel) -> bool:
    """Check if ``model`` is a decoder without an encoder, such as a causal language model."""
    components = FAMILIES[family_of(model)]
    return "ES" not in components or bool(getattr(model.config, "is_decoder", False))


def passes_through_layers(model: PreTrainedModel) -> tuple[int, ...] | None:
    """The number of times that a forward pass runs each layer with weights of its own; None: one.

    ALBERT runs each of its groups as often as layers share it.
    """
    groups = getattr(model.config, "num_hidden_groups", None)
    if groups is None or groups >= model.config.num_hidden_layers:
        return None
    depth = model.config.num_hidden_layers
    # The expression of transformers' AlbertTransformer, rounding errors included.
    group_of_layer = [int(layer / (depth / groups)) for layer in range(depth)]
    return tuple(map(group_of_layer.count, range(groups)))


def attentions(model: PreTrainedModel) -> dict[str, tuple[Attention, ...]]:
    """The attentions of each component of ``model``, from the bottom layer to the top.

    Args:
        model: a base model or one with a task head.

    Raises:
        UsageError: see ``family_of``; or ``model`` is a part of a model; or a projection is not a
            plain ``nn.Linear``: prune before quantising or adding adapters.
    """
    family = family_of(model)
    layers_by_component = {
        component: tuple(
            _attention(layer, names, where=f"{component}: layer {number}")
            for number, layer in enumerate(stack)
        )
        for component, names in FAMILIES[family].items()
        if (stack := _stack(model, names.layers)) and _has(stack[0], names.attention)
    }
    if not layers_by_component:
        raise UsageError(f"{type(model).__name__} is a part of a {family} model; give all of it")
    return layers_by_component


def feed_forwards(model: PreTrainedModel) -> dict[str, tuple[FeedForward, ...]]:
    """The feed-forward sub-layers of encoder and decoder, from the bottom layer to the top.

    Their projections may be of any class; ``require_plain`` refuses those that cannot be cut.
    Stacks whose layers have other feed-forward sub-layers than their family are left out.

    Raises:
        UsageError: see ``family_of``.
    """
    feed_forwards_by_component = {}
    for component, names in FEED_FORWARD[family_of(model)].items():
        try:
            by_layer = [_feed_forward(layer, names) for layer in _stack(model, names.layers)]
        except AttributeError:
            continue
        if by_layer:
            feed_forwards_by_component[component] = tuple(by_layer)
    return feed_forwards_by_component


def sublayers(model: PreTrainedModel) -> dict[str, tuple[Sublayer, ...]]:
    """The sub-layers of each component of heads or neurons, from the bottom layer to the top.

    Raises:
        UsageError: see ``attentions``.
    """
    return {**attentions(model), **feed_forwards(model)}


def stacks(model: PreTrainedModel) -> dict[str, tuple[Layer, ...]]:
    """The layers of each component of whole layers, from the bottom to the top.

    Raises:
        UsageError: see ``family_of``.
    """
    return {
        component: tuple(Layer(module=layer) for layer in stack)
        for component, name in layer_lists(family_of(model)).items()
        if (stack := _stack(model, name))
    }


def require_plain(linear: nn.Module, *, where: str) -> None:
    """Check that a projection is a plain ``nn.Linear``, whose weight can be cut.

    Raises:
        UsageError: it is quantised, or has an adapter, or is pruned by torch itself.
    """
    # Quantised linears are subclasses of nn.Linear; torch's own pruning makes the weight something
    # that is worked out anew before each pass.
    plain = isinstance(linear, Weightless) or (
        type(linear) in PLAIN and "weight" in linear._parameters
    )
    if not plain:
        kind = f"{type(linear).__module__}.{type(linear).__name__}"
        raise UsageError(f"{where} is a {kind}; prune before quantising or adding adapters")


def _stack(model: PreTrainedModel, name: str) -> tuple[nn.Module, ...]:
    """The layers in the sub-module ``name`` of the base model; empty if it does not exist."""
    try:
        return tuple(model.base_model.get_submodule(name).children())
    except AttributeError:
        return ()


def _has(layer: nn.Module, name: str) -> bool:
    """Check if a layer has a sub-module of this name; decoders alone attend to an encoder."""
    return name in dict(layer.named_modules())


def _feed_forward(layer: nn.Module, names: FeedForwardNames) -> FeedForward:
    modules = dict(layer.named_modules())
    present = (*names.inputs, *(name for name in names.optional if name in modules))
    inputs: list[Any] = [layer.get_submodule(name) for name in present]
    output: Any = layer.get_submodule(names.output)
    companion: list[Any] = [layer.get_submodule(name) for name in names.companion]
    return FeedForward(
        module=layer.get_submodule(names.feed_forward),
        inputs=tuple(inputs),
        output=output,
        names=replace(names, inputs=present, optional=()),
        companion=tuple(companion),
    )


def _attention(layer: nn.Module, names: Names, *, where: str) -> Attention:
    modules = dict(layer.named_modules())
    inputs = {
        name: _linear(layer, name, where=where)
        for name in names.all_inputs
        if name not in names.optional or name in modules
    }
    return Attention(
        module=layer.get_submodule(names.attention),
        inputs=tuple(inputs.values()),
        queries=tuple(inputs[name] for name in names.queries if name in inputs),
        output=_linear(layer, names.output, where=where),
        names=names,
        companion=_companion(layer, names.companion, where=where),
    )


def _companion(
    layer: nn.Module, names: CompanionNames | None, *, where: str
) -> CompanionProjections | None:
    if names is None:
        return None
    return CompanionProjections(
        inputs=tuple(_linear(layer, name, where=where) for name in names.inputs),
        output=_linear(layer, names.output, where=where),
    )


def _linear(layer: nn.Module, name: str, *, where: str) -> nn.Linear:
    module = layer.get_submodule(name)
    require_plain(module, where=f"{where}: {name}")
    return module  # type: ignore[return-value]
