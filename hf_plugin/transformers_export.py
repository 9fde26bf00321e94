"""Exporting pruned models to folders of full size that every version of transformers loads."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from headprune.errors import DataError
from headprune.folders import new_folder, require_outside
from headprune.plan import HeadPlan
from headprune.surgery import COLUMNS, ROWS, uncut
from hf_plugin.families import Attention, attentions
from hf_plugin.folder_files import copy_files, named_as
from hf_plugin.folders import NOT_COPIED, Folder
from hf_plugin.modeling import CONFIGS, HeadPrunedModel
from hf_plugin.pruned_files import CODE
from hf_plugin.random_batches import SHAPES, random_batch

TOLERANCE = 1e-5
"""The allowed difference of an output, relative to the largest output where that is above 1.

Zeros change nothing but the order in which a processor adds numbers up."""

_OF_PRUNED = (
    *("kept_heads", "uniform_heads", "uniform_layout", "pruned_heads"),
    *("auto_map", "headprune", "transformers_weights", "model_type"),
)


@dataclass(frozen=True)
class TransformersExport:
    """The model that was written.

    Attributes:
        plan: the heads that are not zero.
        model_class: the class of transformers that loads the folder.
        difference: the largest found, relative as ``TOLERANCE`` is.
    """

    plan: HeadPlan
    model_class: str
    difference: float

    def __str__(self) -> str:
        return (
            f"{self.plan}, zeros in place of the other heads, for transformers' "
            f"{self.model_class}; outputs differ by at most {self.difference:.1e} "
            f"({len(SHAPES)} batches of random tokens)"
        )


def export_to_transformers(path: Path, output: Path) -> TransformersExport:
    """Write a folder of full size, with zeros in place of pruned heads, and the tokenizer.

    The rows of W_q, W_k and W_v and the columns of W_o of a removed head are zeros, so that its
    output is 0. Of a uniform head the rows of W_q are zeros: its scores are all 0. The folder
    appears when the model in it was found to give the outputs of the pruned one. Training it
    further brings the heads back.

    Args:
        path: the model's folder, head-pruned (by transformers 4 too) or not.
        output: the folder to write; it must not exist, or be empty.

    Raises:
        UsageError: ``output`` lies in ``path``; a family that cannot be pruned.
        DataError: ``output`` is taken, the model cannot be read, the outputs differ, or a link in
            the folder points to a place outside it.
    """
    require_outside(output, path)
    folder = Folder.load(path)
    with new_folder(output) as temporary:
        model = folder.load_model().eval()
        full = _full_size(model)
        unwanted = named_as(*NOT_COPIED, *CODE)
        copy_files(path, temporary, wanted=lambda name: not unwanted(name))
        full.save_pretrained(temporary)
        written: Any = type(full).from_pretrained(temporary)
        difference = _largest_difference(model.float(), written.float().eval())
        if not difference <= TOLERANCE:
            raise DataError(
                f"{path}: not exported: the outputs with zeros differ from the model's by "
                f"{difference:.1e}, more than {TOLERANCE:.0e}"
            )
    return TransformersExport(folder.plan, type(full).__name__, difference)


def _full_size(model: PreTrainedModel) -> PreTrainedModel:
    """The stock model with the weights of ``model``, zeros where it has none."""
    stock: Any = type(model)
    while issubclass(stock, HeadPrunedModel):
        stock = stock.__bases__[-1]
    full: PreTrainedModel = stock(_stock_config(model.config)).to(model.dtype)
    names = {module: name for name, module in model.named_modules()}
    weights = model.state_dict()
    for layers in attentions(model).values():
        for attention in layers:
            for linear in attention.inputs:
                for part, tensor in (("weight", linear.weight), ("bias", linear.bias)):
                    if tensor is not None:
                        zeroed = linear in attention.queries
                        weights[f"{names[linear]}.{part}"] = _rows(attention, tensor, zeroed)
            weights[f"{names[attention.output]}.weight"] = uncut(
                attention.output.weight.detach(),
                attention.present,
                heads=attention.heads,
                head_dim=attention.head_size,
                dim=COLUMNS,
            )
    full.load_state_dict(weights)
    return full


def _rows(attention: Attention, tensor: Tensor, queries: bool) -> Tensor:
    """All rows of a projection (blocks * Hd) x C, or of its bias, from those that are present."""
    blocks = attention.names.blocks
    parts = tensor.detach().reshape(
        blocks, len(attention.present) * attention.head_size, *tensor.shape[1:]
    )
    full = [
        uncut(
            part,
            attention.present,
            heads=attention.heads,
            head_dim=attention.head_size,
            dim=ROWS,
        )
        for part in parts
    ]
    if queries:  # which are the first block
        full[0].unflatten(0, (attention.heads, -1))[list(attention.uniform)] = 0
    return torch.cat(full)


def _stock_config(config: PreTrainedConfig) -> PreTrainedConfig:
    stock = copy.deepcopy(config)
    for plain, pruned in CONFIGS.items():
        if type(config) is pruned:
            stock.__class__ = plain
    for name in _OF_PRUNED:
        vars(stock).pop(name, None)
    return stock


@torch.no_grad()
def _largest_difference(model: PreTrainedModel, written: PreTrainedModel) -> float:
    largest = 0.0
    for seed, shape in enumerate(SHAPES):
        batch = random_batch(model, *shape, seed=seed)
        one, other = (each(**batch, return_dict=True) for each in (model, written))
        for name, expected in one.items():
            if isinstance(expected, Tensor):
                difference = (other[name] - expected).abs().max() / max(1.0, expected.abs().max())
                largest = max(largest, float(difference.nan_to_num(torch.inf)))
    return largest
