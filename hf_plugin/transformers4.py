"""Head pruning as code for transformers 4 calls it.

Two functions that transformers 5 removed, and ``install``, which puts them where such code imports
them from and gives models their method ``prune_heads`` and their argument ``head_mask`` again:

>>> import hf_plugin.transformers4
>>> hf_plugin.transformers4.install()
>>> from transformers.pytorch_utils import find_pruneable_heads_and_indices
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch
import transformers.modeling_utils
import transformers.pytorch_utils
from torch import Tensor, nn
from transformers import PreTrainedModel

from headprune.errors import UsageError
from headprune.plan import is_whole
from hf_plugin.modeling import MODELS, prune_heads
from hf_plugin.surgery import head_plan, masked, numbers_of

MASKS = {"head_mask": "ES", "decoder_head_mask": "DS", "cross_attn_head_mask": "ED"}
"""For each argument of transformers 4, the component that it masks."""


def find_pruneable_heads_and_indices(
    heads: Iterable[int], n_heads: int, head_size: int, already_pruned_heads: set[int]
) -> tuple[set[int], Tensor]:
    """The heads that are still to prune, and the entries of a projection that stay.

    Args:
        heads: numbers in the unpruned model.
        n_heads: heads that the attention has now.
        head_size: d.
        already_pruned_heads: numbers in the unpruned model.

    Returns:
        Those of ``heads`` that were not pruned before, and the indices (int64) of the rows of W_q,
        W_k and W_v, or columns of W_o, of all other heads.

    Raises:
        IndexError: a head that the attention does not have.
    """
    gone = set(already_pruned_heads)
    wanted = numbers_of(heads)
    to_prune = {int(head) for head in wanted} - gone
    places = {head - sum(other < head for other in gone) for head in to_prune}
    if not places <= {*range(n_heads)}:
        raise IndexError(f"heads {sorted(to_prune)}: the attention has {n_heads} heads left")
    kept = [place for place in range(n_heads) if place not in places]
    entries = torch.arange(n_heads * head_size).view(n_heads, head_size)
    return to_prune, entries[kept].flatten()


def prune_linear_layer(layer: nn.Linear, index: Tensor, dim: int = 0) -> nn.Linear:
    """A new linear layer with some rows (dim 0) or columns (dim 1) of another; it is trained."""
    index = index.to(layer.weight.device)
    weight = layer.weight.detach().index_select(dim, index)
    pruned = nn.Linear(
        weight.size(1),
        weight.size(0),
        bias=layer.bias is not None,
        device=weight.device,
        dtype=weight.dtype,
    )
    with torch.no_grad():
        pruned.weight.copy_(weight)
        if layer.bias is not None:
            bias = layer.bias.detach()
            pruned.bias.copy_(bias if dim == 1 else bias.index_select(0, index))
    return pruned


def install() -> None:
    """Let code for transformers 4 find what transformers 5 has removed.

    - ``transformers.pytorch_utils`` and ``transformers.modeling_utils`` have
      ``find_pruneable_heads_and_indices`` and ``prune_linear_layer``.
    - Models have ``prune_heads({layer: [heads]})``, which is ``hf_plugin.prune_heads``; a model
      with a ``_prune_heads`` of its own is pruned by that.
    - Models take ``head_mask`` ((heads,) or (layers, heads) of the unpruned model; for models with
      a decoder also ``decoder_head_mask`` and ``cross_attn_head_mask``), by keyword, with
      gradients. A model that cannot be masked refuses it with a ``UsageError``.

    Calling it twice does nothing more.
    """
    for module in (transformers.pytorch_utils, transformers.modeling_utils):
        for function in (find_pruneable_heads_and_indices, prune_linear_layer):
            if not hasattr(module, function.__name__):
                setattr(module, function.__name__, function)
    if "prune_heads" in vars(PreTrainedModel):
        return
    methods = {"prune_heads": _prune_heads, "__call__": _masking(nn.Module.__call__)}
    for name, method in methods.items():
        setattr(PreTrainedModel, name, method)
    for stock in MODELS:  # forward is called by itself too
        setattr(stock, "forward", _masking(stock.forward))  # noqa: B010


def _prune_heads(self: PreTrainedModel, heads_to_prune: Mapping[int, Iterable[int]]) -> None:
    """Prune heads of the model: for some layers, heads by their numbers in the unpruned model."""
    base: Any = self.base_model
    if hasattr(base, "_prune_heads"):  # a model class of the user's own
        pruned = dict(getattr(self.config, "pruned_heads", None) or {})
        for layer, heads in heads_to_prune.items():
            pruned[layer] = sorted({*pruned.get(layer, ()), *heads})
        self.config.pruned_heads = pruned
        base._prune_heads(heads_to_prune)
        return
    now = head_plan(self)
    layers = len(next(iter(now.heads.values())))
    merged: dict[Any, Any] = {}
    for layer, heads in heads_to_prune.items():  # a layer may be named twice, as 11 and as -1
        known = is_whole(layer) and -layers <= layer < layers
        number = layer % layers if known else layer
        numbers = numbers_of(heads)
        iterable = isinstance(numbers, Iterable) and not isinstance(numbers, str)
        merged[number] = [*merged.get(number, ()), *numbers] if iterable else heads
    prune_heads(self, merged)


def _masking(call: Callable[..., Any]) -> Callable[..., Any]:
    """``call`` of a model, with the arguments for masks taken from it."""

    @functools.wraps(call)
    def with_masks(self: Any, *inputs: Any, **options: Any) -> Any:
        if all(options.get(name) is None for name in MASKS):
            for name in MASKS.keys() & options.keys() - _parameters(type(self).forward):
                del options[name]
            return call(self, *inputs, **options)
        if MASKS.keys() & options.keys() <= _parameters(type(self).forward):
            return call(self, *inputs, **options)  # a forward of the user's own, for transformers 4
        given = {name: options.pop(name, None) for name in MASKS}
        with masked(self, _gates(self, given)):
            return call(self, *inputs, **options)

    return with_masks


@functools.cache
def _parameters(forward: Callable[..., Any]) -> frozenset[str]:
    """The names of the arguments of a model's forward pass."""
    return frozenset(inspect.signature(forward).parameters)


def _gates(model: PreTrainedModel, given: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """For each component xi, (layers, heads), of the masks as transformers 4 takes them."""
    heads = head_plan(model).heads
    gates = {name: torch.ones(len(layers), layers[0]) for name, layers in heads.items()}
    for argument, mask in given.items():
        if mask is None:
            continue
        component = MASKS[argument]
        if argument == "head_mask" and "ES" not in heads:  # a decoder by itself
            component = "DS"
        if component not in gates:
            raise UsageError(
                f"{argument}: {type(model).__name__} has no {component}, it has {', '.join(gates)}"
            )
        shape = tuple(gates[component].shape)
        if not isinstance(mask, Tensor) or tuple(mask.shape) not in (shape, shape[1:]):
            kind = tuple(mask.shape) if isinstance(mask, Tensor) else type(mask).__name__
            raise UsageError(
                f"{argument} is {kind}; give a tensor (heads,) or (layers, heads), here "
                f"{shape[1:]} or {shape}"
            )
        gates[component] = mask.expand(shape)
    return gates
