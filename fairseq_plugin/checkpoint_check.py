"""Check a checkpoint's weights against its options and its plan."""

from __future__ import annotations

import re
from argparse import Namespace
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from fairseq_plugin.fitting import HEAD_FORMS, KEPT_HEADS, StoredSublayer, stored_sublayers
from fairseq_plugin.shape import layers_present, model_shape, output_width
from headprune.components import HEADS, LAYERS, side_of
from headprune.errors import DataError, UsageError
from headprune.plan import PruningPlan, is_whole
from headprune.weights import is_finite

_SIDES = ("encoder", "decoder")
_SIZES = ("layers", "attention_heads", "embed_dim", "ffn_embed_dim")
_LARGEST = 10**6
"""Limit of a size that no tensor bounds; far above every model's."""

NO_WEIGHTS = ("version", "_float_tensor")
"""Endings of the names of tensors that fairseq stores beside the weights; one has no values."""


def split_fused(weights: dict[str, Any]) -> None:
    """Split the fused projections of fairseq before 0.8 as fairseq itself does, in place."""
    for key in [name for name in weights if isinstance(name, str) and "in_proj_" in name]:
        prefix, _, attribute = key.rpartition("in_proj_")
        fused = weights[key]
        if isinstance(fused, Tensor) and fused.dim() and fused.size(0) % 3 == 0:
            del weights[key]
            for name, part in zip("qkv", fused.chunk(3), strict=True):
                weights[f"{prefix}{name}_proj.{attribute}"] = part


def check(options: Mapping[str, Any], weights: Mapping[Any, Any], *, path: str) -> None:
    """Check that the options are possible, and that the weights are those of such a model.

    Raises:
        DataError: an option is missing, of the wrong type or out of range; a tensor is missing,
            of another shape or not finite; or the plan is that of another model.
    """
    _check_tensors(weights, path=path)
    _check_sizes(options, weights, path=path)
    plan = _check_plan(options, model_shape(Namespace(**options)), path=path)
    _check_layers(options, weights, plan, path=path)
    for sublayer in stored_sublayers(plan, _form(options)):
        shapes = _attention_shapes if sublayer.component in HEADS else _feed_forward_shapes
        _require_shapes(
            weights,
            shapes(options, sublayer, _units_present(options, plan, sublayer)),
            options=options,
            path=path,
        )
    for name, some in _shapes_where_present(options, weights):
        _require(weights[name], some, name=name, path=path)
    _check_kept_heads(weights, plan, form=_form(options), path=path)


def _require_shapes(
    weights: Mapping[Any, Any],
    shapes: Iterable[tuple[str, tuple[int, ...]]],
    *,
    options: Mapping[str, Any],
    path: str,
) -> None:
    """Check that the tensors exist and have these shapes."""
    for name, wanted in shapes:
        tensor = weights.get(name)
        if tensor is None:
            raise DataError(
                f"{path}: a checkpoint of {options.get('arch') or options.get('_name')} without "
                f"{name}; heads can be pruned from fairseq's transformer and models derived from it"
            )
        _require(tensor, wanted, name=name, path=path)


def _check_tensors(weights: Mapping[Any, Any], *, path: str) -> None:
    for name, tensor in weights.items():
        if not isinstance(name, str) or not isinstance(tensor, Tensor):
            raise DataError(f"{path}: {name!r} in it is no tensor")
        if tensor.layout is not torch.strided or tensor.device.type != "cpu" or tensor.is_quantized:
            raise DataError(f"{path}: {name} is no plain tensor ({tensor.layout}, {tensor.dtype})")
        if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
            raise DataError(f"{path}: {name} has more elements than the file holds for it")
        if not name.endswith(NO_WEIGHTS) and not is_finite(tensor):
            raise DataError(f"{path}: {name} has values that are not finite (NaN or infinity)")


def _check_sizes(options: Mapping[str, Any], weights: Mapping[str, Tensor], *, path: str) -> None:
    arch = options.get("arch") or options.get("_name")
    for side in _SIDES:
        if any(options.get(f"{side}_{size}") is None for size in _SIZES):
            raise DataError(
                f"{path}: a checkpoint of {arch}, not of an encoder-decoder Transformer"
            )
    if not isinstance(options.get("no_cross_attention", False), (bool, type(None))):
        raise DataError(f"{path}: its option no_cross_attention is neither true nor false")
    optional = (
        *("decoder_input_dim", "decoder_output_dim"),
        *("max_source_positions", "max_target_positions"),
    )
    names = [f"{side}_{size}" for side in _SIDES for size in _SIZES]
    for name in (*names, *(name for name in optional if options.get(name) is not None)):
        value = options[name]
        if not is_whole(value) or not 1 <= value <= _LARGEST:
            shown = f"{value!r:.40}"
            raise DataError(
                f"{path}: its option {name} is {shown}, it has to be a whole number from 1 to "
                f"{_LARGEST:,}"
            )
    for side in _SIDES:
        layers, stored = options[f"{side}_layers"], _layers(weights, side)
        if stored > layers or (stored < layers and not options.get("head_plan")):
            raise DataError(
                f"{path}: its option {side}_layers is {layers}, its weights are of {stored} layers"
            )
        heads, width = options[f"{side}_attention_heads"], options[f"{side}_embed_dim"]
        if width % heads:
            raise DataError(
                f"{path}: its option {side}_embed_dim is {width}, which does not divide into "
                f"{heads} heads"
            )


def _layers(weights: Mapping[str, Tensor], side: str) -> int:
    """The number of layers, from the names of the weights."""
    pattern = re.compile(rf"{side}\.layers\.([0-9]{{1,9}})\.")
    return len({match[1] for name in weights if (match := pattern.match(name))})


def _check_plan(
    options: Mapping[str, Any], shape: dict[str, tuple[int, ...]], *, path: str
) -> PruningPlan:
    """The plan in the options, of all components; of all units if there is none."""
    form, text = options.get("head_form"), options.get("head_plan")
    if form is not None and form not in HEAD_FORMS:
        raise DataError(
            f"{path}: its option head_form is {form!r:.40}, known are {', '.join(HEAD_FORMS)}"
        )
    if text is not None and not isinstance(text, str):
        raise DataError(f"{path}: its option head_plan is no text")
    try:
        if text is None:
            return PruningPlan.full(shape)
        plan = PruningPlan.from_json(text, source=f"{path}: its option head_plan")
        plan.require_shape(shape)
        return plan.units_left(shape)
    except UsageError as error:
        raise DataError(f"{path}: its option head_plan does not fit its weights: {error}") from None


def _check_layers(
    options: Mapping[str, Any], weights: Mapping[str, Tensor], plan: PruningPlan, *, path: str
) -> None:
    """Check that the number of layers is the one in the plan."""
    for side, component in zip(_SIDES, LAYERS, strict=True):
        wanted = len(layers_present(plan, component, _form(options)))
        stored = _layers(weights, side)
        if wanted != stored:
            raise DataError(
                f"{path}: its options keep {wanted} layers of the {side}, its weights are of "
                f"{stored} layers"
            )


def _form(options: Mapping[str, Any]) -> str:
    return "mask" if options.get("head_form") == "mask" else "remove"


def _units_present(options: Mapping[str, Any], plan: PruningPlan, sublayer: StoredSublayer) -> int:
    """The number of units whose weights are in the checkpoint."""
    units: int = plan.units[sublayer.component][sublayer.layer]
    masked = _form(options) == "mask"
    return units if masked else len(plan.kept[sublayer.component][sublayer.layer])


def _attention_shapes(
    options: Mapping[str, Any], sublayer: StoredSublayer, heads: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of every projection of an attention, and of its bias."""
    component, prefix = sublayer.component, sublayer.prefix
    side = side_of(component)
    width = options[f"{side}_embed_dim"]
    key_width = options["decoder_embed_dim" if component == "DS" else "encoder_embed_dim"]
    rows = heads * (width // options[f"{side}_attention_heads"])
    if heads:  # an attention without heads has no such projection
        for name, columns in (("q", width), ("k", key_width), ("v", key_width)):
            yield f"{prefix}{name}_proj.weight", (rows, columns)
            yield f"{prefix}{name}_proj.bias", (rows,)
    yield f"{prefix}out_proj.weight", (width, rows)
    yield f"{prefix}out_proj.bias", (width,)


def _feed_forward_shapes(
    options: Mapping[str, Any], sublayer: StoredSublayer, neurons: int
) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Name and shape of both projections of a feed-forward sub-layer, and of their biases."""
    width, prefix = options[f"{side_of(sublayer.component)}_embed_dim"], sublayer.prefix
    if neurons:
        yield f"{prefix}fc1.weight", (neurons, width)
        yield f"{prefix}fc1.bias", (neurons,)
    yield f"{prefix}fc2.weight", (width, neurons)
    yield f"{prefix}fc2.bias", (width,)


def _shapes_where_present(
    options: Mapping[str, Any], weights: Mapping[str, Tensor]
) -> Iterator[tuple[str, tuple[int | None, ...]]]:
    """Name and shape of tensors that some models lack; None stands for any size."""
    norm = re.compile(r"(encoder|decoder)\.layers\.\d+\.\w+_layer_norm\.(weight|bias)")
    for name in weights:
        if match := norm.fullmatch(name):
            yield name, (options[f"{match[1]}_embed_dim"],)
    for side in _SIDES:  # decoder_input_dim is an option that fairseq does not use
        for module in ("embed_tokens", "embed_positions"):
            if f"{side}.{module}.weight" in weights:
                yield f"{side}.{module}.weight", (None, options[f"{side}_embed_dim"])
    if "decoder.output_projection.weight" in weights:
        yield "decoder.output_projection.weight", (None, output_width(Namespace(**options)))


def _require(tensor: Tensor, wanted: tuple[int | None, ...], *, name: str, path: str) -> None:
    if not tensor.is_floating_point():
        raise DataError(f"{path}: {name} is of type {tensor.dtype}, not of floating-point numbers")
    fits = tensor.dim() == len(wanted) and all(
        size in (None, actual) for actual, size in zip(tensor.shape, wanted, strict=True)
    )
    if not fits:
        shape = " x ".join(map(str, tensor.shape)) or "a single number"
        sizes = " x ".join("any" if size is None else str(size) for size in wanted)
        raise DataError(f"{path}: {name} is {shape}, by the options it should be {sizes}")


def _check_kept_heads(
    weights: Mapping[str, Tensor], plan: PruningPlan, *, form: str, path: str
) -> None:
    """Check the head numbers that version 0.1.0 also stored beside an attention's weights."""
    for sublayer in stored_sublayers(plan, form):
        if sublayer.component in HEADS:
            name = sublayer.prefix.removesuffix(".") + KEPT_HEADS
            stored = weights.get(name)
            kept = plan.kept[sublayer.component][sublayer.layer]
            if stored is not None and stored.tolist() != list(kept):
                raise DataError(f"{path}: {name} names other heads than the plan in its options")
