"""Rows of a model's embeddings and output layer by token, and numbers of tokens in its config."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedConfig, PreTrainedModel

from headprune.errors import UsageError
from hf_plugin.folders import outline_of

_LISTS = ("bad_words_ids", "suppress_tokens", "begin_suppress_tokens", "forced_decoder_ids")


def token_numbers(config: Any) -> set[int]:
    """The numbers of tokens that a config, or a generation config, names."""
    found: set[int] = set()

    def note(number: int) -> int:
        found.add(number)
        return number

    for name, value in _values(config).items():
        if _names_tokens(name):
            _mapped(value, note)
    return found


def renumber(config: Any, numbers: Mapping[int, int]) -> None:
    """Give the tokens that a config names their new numbers, in place.

    Numbers of no entry, which some configs have, become that of no token.
    """
    for name, value in _values(config).items():
        if _names_tokens(name):
            setattr(config, name, _mapped(value, lambda number: numbers.get(number)))


def trim(model: PreTrainedModel, numbers: Mapping[int, int]) -> None:
    """Remove rows from a model's embeddings and output layer, in place.

    The tensors to cut are those that have another shape in a model of the smaller vocabulary.

    Args:
        numbers: from the numbers of kept tokens to the new ones, in the same order.

    Raises:
        UsageError: a model whose config does not say the size of its vocabulary.
    """
    size = getattr(model.config, "vocab_size", None)
    if not isinstance(size, int):
        raise UsageError(f"{type(model).__name__}: its config has no vocab_size")
    config: PreTrainedConfig = copy.deepcopy(model.config)
    if len(numbers) < size:
        for name in ("vocab_size", "decoder_vocab_size"):
            if getattr(config, name, None) == size:
                setattr(config, name, len(numbers))
    renumber(config, numbers)
    shapes = {name: tensor.shape for name, tensor in _tensors(outline_of(config, where="")).items()}
    kept = torch.tensor(sorted(numbers), device=model.device)
    with torch.no_grad():
        for name, tensor in _tensors(model).items():
            for dim, (before, after) in enumerate(zip(tensor.shape, shapes[name], strict=True)):
                if before != after:
                    tensor.data = tensor.data.index_select(dim, kept)
    for module in model.modules():
        if isinstance(module, nn.Embedding):
            module.num_embeddings = module.weight.size(0)
        elif isinstance(module, nn.Linear):
            module.out_features = module.weight.size(0)
    model.config = config
    renumber(getattr(model, "generation_config", None), numbers)


def _tensors(model: nn.Module) -> dict[str, Tensor]:
    """All tensors; those that are tied to one another once."""
    return {**dict(model.named_parameters()), **dict(model.named_buffers())}


def _values(config: Any) -> dict[str, Any]:
    """The entries of a config; none where there is no config."""
    values: dict[str, Any] = {} if config is None else config.to_dict()
    return values


def _names_tokens(name: str) -> bool:
    return name.endswith(("token_id", "token_ids")) or name in _LISTS


def _mapped(value: Any, change: Any) -> Any:
    """A number, or lists of numbers, changed; None and true or false stay."""
    if isinstance(value, (list, tuple)):
        return [_mapped(each, change) for each in value]
    return change(value) if isinstance(value, int) and not isinstance(value, bool) else value
