"""Checking a model's folder: its config's numbers, and its weights against the config."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel

from headprune.errors import DataError
from headprune.plan import is_whole
from headprune.weights import is_finite, is_zip, verify_zip
from hf_plugin.families import attentions
from hf_plugin.places import reporting

_LIMITS = {
    **dict.fromkeys(
        ("num_hidden_layers", "n_layers", "encoder_layers", "decoder_layers"), (1, 1000)
    ),
    **dict.fromkeys(
        (
            *("num_attention_heads", "n_heads"),
            *("encoder_attention_heads", "decoder_attention_heads"),
        ),
        (1, 10_000),
    ),
    **dict.fromkeys(
        (
            *("hidden_size", "dim", "d_model", "embedding_size", "vocab_size"),
            *("intermediate_size", "hidden_dim", "encoder_ffn_dim", "decoder_ffn_dim"),
            *("max_position_embeddings", "num_labels"),
        ),
        (1, 10_000_000),
    ),
    "type_vocab_size": (0, 10_000_000),
}
"""For the sizes in the known families' configs the smallest and the largest that make sense."""


def check_config(name_or_path: str | os.PathLike[str]) -> None:
    """Check the sizes in the config of a folder, before anything is made of these sizes.

    Raises:
        DataError: one is not a whole number, or out of range.
    """
    path = Path(name_or_path) / "config.json"
    if not path.is_file():
        return  # a name on the hub, or no model: transformers says so
    with reporting(f"{name_or_path}: cannot read the model"):
        config = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise DataError(f"{path}: not an object")
    for name, (smallest, largest) in _LIMITS.items():
        value = config.get(name)
        if value is None:
            continue
        if not is_whole(value) or not smallest <= value <= largest:
            raise DataError(
                f"{path}: {name} is {value!r:.40}, it has to be a whole number from {smallest} to "
                f"{largest:,}"
            )


def check_weights(path: Path, outline: PreTrainedModel) -> None:
    """Check the weights in a folder's files, if there are any, against its config.

    What can only be known by loading them all is not looked at here: ``Folder.load_model`` does.

    Args:
        outline: the model that the config describes, without values.

    Raises:
        DataError: a file that cannot be read; an attention's projection is missing, or a tensor of
            another shape than the config's, or not finite.
    """
    prefix = f"{outline.base_model_prefix}."
    wanted = {
        name.removeprefix(prefix): tensor.shape for name, tensor in outline.state_dict().items()
    }
    found = set()
    for file in _weight_files(path):
        with reporting(f"{path}: cannot read the weights in {file.name}"):
            for name, tensor in _tensors(file):
                key = name.removeprefix(prefix)
                found.add(key)
                # Files of pruned models may hold a matrix by heads, as three dimensions.
                if key in wanted and tensor.numel() != wanted[key].numel():
                    raise DataError(
                        f"{path}: {name} in {file.name} has the shape {_shape(tensor.shape)}, its "
                        f"config asks for {_shape(wanted[key])}"
                    )
                if not is_finite(tensor):
                    raise DataError(f"{path}: {name} in {file.name} {_NOT_FINITE}")
    lost = sorted(set(_projections(outline, prefix)) - found)
    if found and lost:
        raise DataError(f"{path}: its files do not hold {lost[0]} as its config says")


_NOT_FINITE = "has values that are not finite (NaN or infinity)"


def require_finite(model: PreTrainedModel, *, name: str) -> None:
    """Check that all weights of a model are finite.

    Raises:
        DataError: one is not.
    """
    for key, parameter in model.named_parameters():
        if not is_finite(parameter):
            raise DataError(f"{name}: {key} {_NOT_FINITE}")


def _weight_files(path: Path) -> list[Path]:
    """Those that transformers reads, in the order in which it looks for them."""
    for name, parts in (
        ("model.safetensors", "model-*.safetensors"),
        ("pytorch_model.bin", "pytorch_model-*.bin"),
    ):
        if (path / name).is_file():
            return [path / name]
        if (path / f"{name}.index.json").is_file():
            return sorted(path.glob(parts))
    return []


def _tensors(file: Path) -> Iterator[tuple[str, Tensor]]:
    if file.suffix == ".safetensors":
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  (it is no mapping)
                yield name, opened.get_tensor(name)
        return
    if is_zip(file):
        verify_zip(file)
    content = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(content, Mapping):
        raise DataError(f"{file}: no weights by name")
    for name, tensor in content.items():
        if isinstance(tensor, Tensor):
            yield str(name), tensor


def _projections(outline: PreTrainedModel, prefix: str) -> Iterator[str]:
    """The names of the attentions' matrices that have values."""
    names = {module: name for name, module in outline.named_modules()}
    for layers in attentions(outline).values():
        for attention in layers:
            for linear in (*attention.inputs, attention.output):
                if linear.weight.numel():
                    yield f"{names[linear]}.weight".removeprefix(prefix)


def _shape(shape: torch.Size) -> str:
    return " x ".join(map(str, shape)) or "of a single number"
