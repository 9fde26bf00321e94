"""Check the sizes in a model's config, and the weights in its folder against the config."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from safetensors import safe_open
from torch import Tensor
from transformers import PreTrainedModel
from transformers.conversion_mapping import get_model_conversion_mapping

from headprune.errors import DataError
from headprune.json_files import json_object
from headprune.plan import is_whole
from headprune.weights import is_finite, is_zip, verify_zip
from hf_plugin.families import sublayers
from hf_plugin.head_names import FAMILIES, PREFIX
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
"""Sizes in the configs of the supported families, with their smallest and largest valid values."""


def check_config(name_or_path: str | os.PathLike[str]) -> None:
    """Check the sizes in the config of a folder, before a model of these sizes is created.

    Raises:
        DataError: a size is not a whole number, or out of range.
    """
    path = Path(name_or_path) / "config.json"
    if not path.is_file():
        return  # a name on the hub, or no model, which transformers reports
    with reporting(f"{name_or_path}: cannot read the model"):
        config = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(config, dict):
        raise DataError(f"{path}: not an object")
    if str(config.get("model_type", "")).removeprefix(PREFIX) not in FAMILIES:
        return  # its sizes may be of another kind; the family is refused in its own words
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

    Errors that only loading the whole model would reveal are left to ``Folder.load_model``.

    Args:
        path: the folder.
        outline: the model that the config describes, without values.

    Raises:
        DataError: a file cannot be read, the projection of a sub-layer is missing, or a tensor
            has another shape than in the config or values that are not finite.
    """
    prefix = f"{outline.base_model_prefix}."
    # Files of some families have other names, which transformers converts when it loads them.
    converted = bool(get_model_conversion_mapping(outline, add_legacy=False))
    shapes = {
        name.removeprefix(prefix): tensor.shape
        for name, tensor in outline.state_dict().items()
        if not converted
    }
    keys = set()
    for file in _weight_files(path):
        with reporting(f"{path}: cannot read the weights in {file.name}"):
            for name, tensor in _tensors(file):
                key = name.removeprefix(prefix)
                keys.add(key)
                # Files of pruned models may contain a matrix by heads, with three dimensions.
                if key in shapes and tensor.numel() != shapes[key].numel():
                    raise DataError(
                        f"{path}: {name} in {file.name} has the shape {_shape(tensor.shape)}, its "
                        f"config asks for {_shape(shapes[key])}"
                    )
                if not is_finite(tensor):
                    raise DataError(f"{path}: {name} in {file.name} {_NOT_FINITE}")
    missing = sorted(set(_projections(outline, prefix)) - keys)
    if keys and missing and not converted:
        raise DataError(f"{path}: its files do not hold {missing[0]} as its config says")


_NOT_FINITE = "has values that are not finite (NaN or infinity)"


def require_finite(model: PreTrainedModel, *, name: str) -> None:
    """Check that all weights of a model are finite.

    Raises:
        DataError: a weight is NaN or infinite.
    """
    for key, parameter in model.named_parameters():
        if not is_finite(parameter):
            raise DataError(f"{name}: {key} {_NOT_FINITE}")


def weights_named(path: Path, prefix: str) -> dict[str, Tensor]:
    """The tensors in a folder's files whose names begin with ``prefix``.

    Raises:
        DataError: a file cannot be read.
    """
    found: dict[str, Tensor] = {}
    for file in _weight_files(path):
        with reporting(f"{path}: cannot read the weights in {file.name}"):
            found |= dict(_tensors(file, prefix))
    return found


def _weight_files(path: Path) -> list[Path]:
    """List the files of weights that transformers would read.

    Raises:
        DataError: the index of a model in several files cannot be read, or names a file that is
            not there.
    """
    for name in ("model.safetensors", "pytorch_model.bin"):
        if (path / name).is_file():
            return [path / name]
        index = path / f"{name}.index.json"
        if index.is_file():
            return _parts(index)
    return []


def _parts(index: Path) -> list[Path]:
    """List the files that an index of weights names."""
    by_weight = json_object(index).get("weight_map")
    if not isinstance(by_weight, Mapping) or not by_weight:
        raise DataError(f"{index}: has no weight_map, the files of the weights")
    names = sorted({str(name) for name in by_weight.values()})
    for name in names:
        if not (index.parent / name).is_file():
            raise DataError(f"{index}: names {name}, which is not there")
    return [index.parent / name for name in names]


def _tensors(file: Path, prefix: str = "") -> Iterator[tuple[str, Tensor]]:
    if file.suffix == ".safetensors":
        with safe_open(file, framework="pt") as opened:
            for name in opened.keys():  # noqa: SIM118  (it is no mapping)
                if name.startswith(prefix):
                    yield name, opened.get_tensor(name)
        return
    if is_zip(file):
        verify_zip(file)
    content = torch.load(file, map_location="cpu", weights_only=True)
    if not isinstance(content, Mapping):
        raise DataError(f"{file}: no weights by name")
    for name, tensor in content.items():
        if isinstance(tensor, Tensor) and str(name).startswith(prefix):
            yield str(name), tensor


def _projections(outline: PreTrainedModel, prefix: str) -> Iterator[str]:
    """List the names of the sub-layers' matrices that are not empty."""
    names = {module: name for name, module in outline.named_modules()}
    for by_layer in sublayers(outline).values():
        for sublayer in by_layer:
            for linear in (*sublayer.inputs, *sublayer.outputs):
                if linear.weight.numel():
                    yield f"{names[linear]}.weight".removeprefix(prefix)


def _shape(shape: torch.Size) -> str:
    return " x ".join(map(str, shape)) or "of a single number"
