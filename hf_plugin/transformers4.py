"""Head pruning with the functions, methods and arguments of transformers 4.

transformers 5 has removed two functions, the method ``prune_heads`` of models and their argument
``head_mask``. ``install`` adds them again, in the places where code for transformers 4 expects
them:

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
from hf_plugin.masks import masked
from hf_plugin.modeling import all_models, prune_heads
from hf_plugin.plans import head_plan, numbers_of

MASKS = {"head_mask": "ES", "decoder_head_mask": "DS", "cross_attn_head_mask": "ED"}
"""Arguments of transformers 4, with the components that they mask."""


def find_pruneable_heads_and_indices(
    heads: Iterable[int], n_heads: int, head_size: int, already_pruned_heads: set[int]
) -> tuple[set[int], Tensor]:
    """Find the heads that are not yet pruned, and the weights of the remaining heads.

    Args:
        heads: heads to prune, numbered as in the unpruned model.
        n_heads: the current number of heads.
        head_size: d.
        already_pruned_heads: heads pruned before, numbered as in the unpruned model.

    Returns:
        The heads among ``heads`` that were not pruned before, and the indices (int64) of the rows
        of W_q, W_k and W_v, or columns of W_o, of all other heads.

    Raises:
        IndexError: a head that the attention does not have.
    """
    pruned_before = set(already_pruned_heads)
    to_prune = {int(head) for head in numbers_of(heads)} - pruned_before
    places = {head - sum(other < head for other in pruned_before) for head in to_prune}
    if not places <= {*range(n_heads)}:
        raise IndexError(f"heads {sorted(to_prune)}: the attention has {n_heads} heads left")
    kept = [place for place in range(n_heads) if place not in places]
    entries = torch.arange(n_heads * head_size).view(n_heads, head_size)
    return to_prune, entries[kept].flatten()


def prune_linear_layer(layer: nn.Linear, index: Tensor, dim: int = 0) -> nn.Linear:
    """Create a trainable linear layer from some rows (dim 0) or columns (dim 1) of another."""
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
    """Add the functions, methods and arguments that transformers 5 has removed.

    - ``transformers.pytorch_utils`` and ``transformers.modeling_utils`` get
      ``find_pruneable_heads_and_indices`` and ``prune_linear_layer``.
    - Models get the method ``prune_heads({layer: [heads]})``, which calls
      ``hf_plugin.prune_heads``, or the method ``_prune_heads`` of a user's own model class.
    - Models accept ``head_mask`` ((heads,) or (layers, heads) of the unpruned model; for models
      with a decoder also ``decoder_head_mask`` and ``cross_attn_head_mask``) as a keyword argument,
      with gradients. Models that cannot be masked refuse it with a ``UsageError``.

    A second call has no effect.
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
    for stock in all_models():  # forward is also called directly
        setattr(stock, "forward", _masking(stock.forward))  # noqa: B010


def _prune_heads(self: PreTrainedModel, heads_to_prune: Mapping[int, Iterable[int]]) -> None:
    """Prune heads of some layers; heads are numbered as in the unpruned model."""
    base: Any = self.base_model
    if hasattr(base, "_prune_heads"):  # the user's own model class
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
    """Wrap the function ``call`` of a model, so that it accepts masks."""

    @functools.wraps(call)
    def with_masks(self: Any, *inputs: Any, **options: Any) -> Any:
        if all(options.get(name) is None for name in MASKS):
            for name in MASKS.keys() & options.keys() - _parameters(type(self).forward):
                del options[name]
            return call(self, *inputs, **options)
        if MASKS.keys() & options.keys() <= _parameters(type(self).forward):
            return call(self, *inputs, **options)  # the user's own forward, for transformers 4
        masks = {name: options.pop(name, None) for name in MASKS}
        with masked(self, _gates(self, masks)):
            return call(self, *inputs, **options)

    return with_masks


@functools.cache
def _parameters(forward: Callable[..., Any]) -> frozenset[str]:
    """List the names of the arguments of a model's forward pass."""
    return frozenset(inspect.signature(forward).parameters)


def _gates(model: PreTrainedModel, masks: Mapping[str, Tensor | None]) -> dict[str, Tensor]:
    """Convert masks of transformers 4 to gates xi, (layers, heads), by component."""
    heads = head_plan(model).heads
    gates = {name: torch.ones(len(layers), layers[0]) for name, layers in heads.items()}
    for argument, mask in masks.items():
        if mask is None:
            continue
        component = MASKS[argument]
        if argument == "head_mask" and "ES" not in heads:  # a model with a decoder only
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
