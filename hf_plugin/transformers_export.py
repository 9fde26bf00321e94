"""Export pruned models to folders that transformers loads without the plugin.

Pruned heads and neurons come back as zeros. Where the feed-forward sub-layers of a stack are all
equally wide, and where layers are dropped, the model equals one of a smaller stock config, and is
written as exactly that. Transformers 5 loads the folder, and transformers 4 if it has the family:
the config gets entries for it. A warning says where it computes something else all the same.
"""

from __future__ import annotations

import copy
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from headprune.components import layers_of
from headprune.errors import DataError, UsageError
from headprune.folders import new_folder, require_outside
from headprune.model import streams_of
from headprune.surgery import COLUMNS, ROWS, uncut
from hf_plugin.checked_export import CheckedExport
from hf_plugin.cutting import rows_of, stored
from hf_plugin.families import attentions, family_of, feed_forwards, stacks
from hf_plugin.folder_files import copy_files, named_as
from hf_plugin.folders import NOT_COPIED, Folder
from hf_plugin.head_names import FEED_FORWARD
from hf_plugin.modeling import stock_class, stock_config
from hf_plugin.places import reporting
from hf_plugin.pruned_files import CODE
from hf_plugin.random_batches import compared_batches
from hf_plugin.sublayers import Attention, Sublayer
from hf_plugin.transformers4_configs import add_entries

TOLERANCE = 1e-5
"""The allowed difference of an output, relative to the largest output where that is above 1.

Zeros only change the order in which a processor adds numbers."""


def export_to_transformers(path: Path, output: Path) -> CheckedExport:
    """Write a folder of a stock model that computes the same, and the tokenizer.

    The rows of W_q, W_k and W_v and the columns of W_o of a removed head are zeros, so that its
    output is 0. Of a uniform head the rows of W_q are zeros: its scores are all 0. A neuron's row
    of W_1 and column of W_2 are zeros too, unless all layers of the stack keep equally many: then
    the model is as narrow as they are. Dropped layers are left out. The folder appears when the
    model in it was found to give the outputs of the pruned one. Training it further brings zeros
    back to life. A warning says where transformers 4 would compute something else.

    Args:
        path: the model's folder, pruned (by transformers 4 too) or not.
        output: the folder to write; it must not exist, or be empty.

    Raises:
        UsageError: ``output`` lies in ``path``; a family that cannot be pruned; or no stock model
            computes the same without the dropped layers.
        DataError: ``output`` is taken, the model cannot be read, the outputs differ, or a link in
            the folder points to a place outside it.
    """
    require_outside(output, path)
    folder = Folder.load(path)
    with new_folder(output) as temporary:
        model = folder.load_model().eval()
        stock = _stock_model(model, where=str(path))
        full = stock.model
        unwanted = named_as(*NOT_COPIED, *CODE)
        copy_files(path, temporary, wanted=lambda name: not unwanted(name))
        full.save_pretrained(temporary)
        reasons = add_entries(temporary)  # before the check of what transformers 5 reads
        with reporting(f"{path}: not exported: transformers does not read it"):
            written: Any = type(full).from_pretrained(temporary)
        difference = _largest_difference(model.float(), written.float().eval())
        if not difference <= TOLERANCE:
            raise DataError(
                f"{path}: not exported: the outputs with zeros differ from the model's by "
                f"{difference:.1e}, more than {TOLERANCE:.0e}"
            )
    for reason in reasons:
        print(f"warning: {output}: {reason}", file=sys.stderr)
    contents = f"{stock.description}, for transformers' {type(full).__name__}"
    return CheckedExport(plan=folder.plan, contents=contents, difference=difference)


_LOWEST_IS_OTHER = ("modernbert", "t5", "mt5")
"""Families whose lowest layer has something that the others lack."""

_BY_LAYER = ("layer_types", "no_rope_layers")
"""Entries of configs that are lists with one value for each layer."""

_CACHE_OF_ENCODER = ("t5", "mt5", "umt5")
"""Families whose cache transformers makes as deep as the encoder."""


@dataclass(frozen=True)
class _StockModel:
    model: PreTrainedModel
    description: str


def _stock_model(model: PreTrainedModel, *, where: str) -> _StockModel:
    """The stock model with the same outputs as ``model``."""
    config = stock_config(model.config)
    dropped = _leave_out_dropped_layers(model, config, where=where)
    narrow = _narrow_feed_forwards(model, config)
    make_stock: Any = stock_class(type(model))
    stock: PreTrainedModel = make_stock(config).to(model.dtype)
    names = {module: name for name, module in model.named_modules()}
    weights = model.state_dict()
    zeros: dict[str, None] = {}
    for component, by_layer in attentions(model).items():
        dropped_layers = _dropped_layers(model, component)
        for number, attention in enumerate(by_layer):
            weights.update(_with_zeros(attention, names, zeroed=attention.queries))
            if len(attention.kept) < attention.units and number not in dropped_layers:
                zeros["heads"] = None
    for component, feed_forward_layers in feed_forwards(model).items():
        dropped_layers = _dropped_layers(model, component)
        for number, sublayer in enumerate(feed_forward_layers):
            if component not in narrow and len(sublayer.kept) < sublayer.units:
                weights.update(_with_zeros(sublayer, names))
                if number not in dropped_layers:
                    zeros["neurons"] = None
    with reporting(f"{where}: not exported: its weights do not fit a stock model"):
        stock.load_state_dict(_renumbered(weights, model, names))
    if model.can_generate():
        stock.generation_config = copy.deepcopy(model.generation_config)
    padded = [f"zeros in place of pruned {' and '.join(zeros)}"] if zeros else []
    sizes = [f"{entry}={getattr(config, entry)}" for entry in (*dropped, *narrow.values())]
    return _StockModel(stock, ", ".join((*padded, *sizes)) or "all weights")


def _leave_out_dropped_layers(
    model: PreTrainedModel, config: PreTrainedConfig, *, where: str
) -> tuple[str, ...]:
    """Set the number of layers in the config; return the changed entries.

    Raises:
        UsageError: no stock model computes the same.
    """
    entries = []
    family = family_of(model)
    for component, names in FEED_FORWARD[family].items():
        layers = stacks(model).get(layers_of(component), ())
        kept = [number for number, layer in enumerate(layers) if layer.is_kept]
        if len(kept) == len(layers):
            continue
        if not kept:
            raise UsageError(f"{where}: no layer of a stack is left; transformers has none without")
        if reason := _difference_of_layers(kept, config, family):
            raise UsageError(f"{where}: {reason}; no stock model computes the same")
        depth = names.depth
        setattr(config, depth, len(kept))
        for entry in _BY_LAYER:
            if values := getattr(config, entry, None):
                setattr(config, entry, [values[number] for number in kept])
        if stages := getattr(config, "stage_names", None):
            if type(model).__name__.endswith("Backbone"):
                raise UsageError(
                    f"{where}: layers are dropped, and its outputs are states of its layers"
                )
            config.stage_names = stages[: len(kept) + 1]
            config.set_output_features_output_indices(None, None)
        entries.append(depth)
    if family in _CACHE_OF_ENCODER and model.can_generate() and entries:
        depths = (config.num_layers, config.num_decoder_layers)
        if depths[0] < depths[1]:
            raise UsageError(
                f"{where}: {depths[0]} layers of the encoder and {depths[1]} of the decoder are "
                f"left; a stock {family} with fewer in the encoder does not generate (transformers "
                "sizes its cache by the encoder's). Drop as many layers of the decoder, or use the "
                "pruned folder, which generates"
            )
    return tuple(entries)


def _difference_of_layers(kept: list[int], config: PreTrainedConfig, family: str) -> str:
    """Say why a stock model without the dropped layers computes something else.

    Empty where it computes the same.
    """

    def has(entry: str) -> bool:
        return bool(getattr(config, entry, None))

    if kept[0] and (family in _LOWEST_IS_OTHER or has("conv_kernel_size")):
        return f"layer 0 is dropped, which a stock {family} treats unlike the others"
    if has("use_weighted_layer_sum"):
        return "layers are dropped, and its output is a weighted sum over all layers"
    if has("scale_attn_by_inverse_layer_idx") and kept[-1] >= len(kept):
        scaled = "its attention is scaled by the number of the layer"
        return f"layers below others are dropped, and {scaled}"
    if has("use_mid_position_embeddings"):
        return "layers are dropped, and positions are added between its layers"
    return ""


def _narrow_feed_forwards(model: PreTrainedModel, config: PreTrainedConfig) -> dict[str, str]:
    """Set the feed-forward width in the config for stacks with equal widths in all layers.

    Returns:
        For each component that is now narrower, the entry that says so.
    """
    entries = {}
    units: dict[str, int] = {}
    widths: dict[str, set[int]] = {}  # T5 has one entry for encoder and decoder
    for component, sublayers in feed_forwards(model).items():
        if entry := sublayers[0].names.width:
            entries[component] = entry
            dropped = _dropped_layers(model, component)
            kept = {
                len(sublayer.kept)
                for number, sublayer in enumerate(sublayers)
                if number not in dropped
            }
            widths.setdefault(entry, set()).update(kept)
            units[entry] = sublayers[0].units
    narrow = {
        entry: min(found)
        for entry, found in widths.items()
        if len(found) == 1 and 0 < min(found) < units[entry]
    }
    for entry, width in narrow.items():
        setattr(config, entry, width)
    return {component: entry for component, entry in entries.items() if entry in narrow}


def _dropped_layers(model: PreTrainedModel, component: str) -> set[int]:
    """The numbers of the dropped layers that heads or neurons of a component would be in."""
    stack = stacks(model).get(layers_of(component), ())
    return {number for number, layer in enumerate(stack) if not layer.is_kept}


def _renumbered(
    weights: dict[str, Tensor], model: PreTrainedModel, names: dict[nn.Module, str]
) -> dict[str, Tensor]:
    """Rename weights so that the remaining layers are numbered from 0 without gaps."""
    new_names: dict[str, str | None] = {}
    for layers in stacks(model).values():
        kept = [layer.module for layer in layers if layer.is_kept]
        for layer in layers:
            stack, _, _ = names[layer.module].rpartition(".")
            number = kept.index(layer.module) if layer.is_kept else None
            new_names[names[layer.module]] = None if number is None else f"{stack}.{number}"
    renumbered = {}
    for key, tensor in weights.items():
        layer_name = next((name for name in new_names if key.startswith(f"{name}.")), None)
        if key.endswith("contact_head.regression.weight"):  # ESM's, 1 x layers * heads
            (layers,) = stacks(model).values()
            by_layer = tensor.unflatten(1, (len(layers), -1))
            renumbered[key] = by_layer[:, [layer.is_kept for layer in layers]].flatten(1)
        elif layer_name is None:
            renumbered[key] = tensor
        elif (new_name := new_names[layer_name]) is not None:
            renumbered[new_name + key.removeprefix(layer_name)] = tensor
    return renumbered


def _with_zeros(
    sublayer: Sublayer, names: dict[nn.Module, str], *, zeroed: tuple[nn.Linear, ...] = ()
) -> dict[str, Tensor]:
    """The parameters of a sub-layer at full size.

    Args:
        sublayer: a sub-layer of the pruned model.
        names: the names of the model's modules.
        zeroed: projections to queries, in which the rows of uniform heads become zeros.
    """
    weights = {}
    for linear in sublayer.inputs:
        options: Any = {"size": sublayer.rows_per_unit(linear), "queries": linear in zeroed}
        rows = _rows(sublayer, rows_of(linear), **options)
        weights[f"{names[linear]}.weight"] = stored(linear, rows).contiguous()
        if linear.bias is not None:
            weights[f"{names[linear]}.bias"] = _rows(sublayer, linear.bias, **options)
    for stream in streams_of(sublayer):
        columns = uncut(
            rows_of(stream.output).detach(),
            sublayer.present,
            units=sublayer.units,
            unit_size=stream.unit_size,
            dim=COLUMNS,
        )
        weights[f"{names[stream.output]}.weight"] = stored(stream.output, columns).contiguous()
    return weights


def _rows(sublayer: Sublayer, tensor: Tensor, *, size: int, queries: bool) -> Tensor:
    """Insert zero rows for pruned units into a projection, (blocks * Ud) x C, or into its bias."""
    parts = tensor.detach().reshape(
        sublayer.names.blocks, len(sublayer.present) * size, *tensor.shape[1:]
    )
    full = [
        uncut(part, sublayer.present, units=sublayer.units, unit_size=size, dim=ROWS)
        for part in parts
    ]
    if queries and isinstance(sublayer, Attention):  # which are the first block
        full[0].unflatten(0, (sublayer.units, -1))[list(sublayer.uniform)] = 0
    return torch.cat(full)


@torch.no_grad()
def _largest_difference(model: PreTrainedModel, written: PreTrainedModel) -> float:
    largest = 0.0
    for batch in compared_batches(model):
        one, other = (each(**batch, return_dict=True) for each in (model, written))
        for name, expected in one.items():
            if isinstance(expected, Tensor):
                difference = (other[name] - expected).abs().max() / max(1.0, expected.abs().max())
                largest = max(largest, float(difference.nan_to_num(torch.inf)))
    return largest
