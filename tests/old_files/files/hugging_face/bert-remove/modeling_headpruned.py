"""Models whose attention heads were pruned with headprune, for transformers alone.

transformers loads them with this file, which lies beside the weights, as in
``AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)``. The config
says which heads of which layers are kept; the weights of the others are not in the files. Heads
that are ``uniform`` have theirs, and average the values of all tokens.

The classes are made on demand: ``HeadPrunedBertModel`` of transformers' ``BertModel``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from .head_names import FAMILIES, PREFIX, Names
from .pruned_files import PrunedConfig, PrunedFiles, expect_layout, store_by_head

try:
    from .headless import make_headless
except ImportError as error:
    raise ImportError(
        f"pruned models need transformers 5, this is {transformers.__version__}; what `headprune "
        "export FOLDER --to transformers` writes is loaded by every version"
    ) from error

_PRUNED = "HeadPruned"


class HeadPrunedModel(PrunedFiles):
    """The part of a pruned model class that cuts the weights as the config says."""

    def __init__(self, config: Any, *inputs: Any, **options: Any) -> None:
        if getattr(config, "quantization_config", None) is not None and config.uniform_heads:
            raise ValueError("a model with uniform heads cannot be quantised while it is loaded")
        super().__init__(config, *inputs, **options)  # type: ignore[call-arg]
        family = config.model_type.removeprefix(PREFIX)
        base: nn.Module = self.base_model  # type: ignore[attr-defined]
        for component, names in FAMILIES[family].items():
            try:
                layers = base.get_submodule(names.layers)
            except AttributeError:
                continue  # a model with the decoder alone
            uniform = (config.uniform_heads or {}).get(component)
            for number, layer in enumerate(layers.children()):
                kept = config.kept_heads[component][number]
                _cut_layer(layer, names, kept=kept, uniform=uniform[number] if uniform else [])


def _cut_layer(layer: nn.Module, names: Names, *, kept: list[int], uniform: list[int]) -> None:
    """Leave out the weights of all heads but the kept and the uniform ones."""
    attention = layer.get_submodule(names.attention)
    output: Any = layer.get_submodule(names.output)
    size = int(getattr(attention, names.size))
    heads = output.in_features // size
    present = sorted({*kept, *uniform})
    entries = torch.arange(heads * size).view(heads, size)[present].flatten()  # H'd
    rows = torch.cat([block * heads * size + entries for block in range(names.blocks)])
    every = dict(layer.named_modules())
    inputs: dict[str, Any] = {
        name: every[name] for name in (*names.inputs, *names.optional) if name in every
    }
    for linear in inputs.values():
        linear.weight = _part(linear.weight, rows, dim=0)
        if linear.bias is not None:
            linear.bias = _part(linear.bias, rows, dim=0)
        linear.out_features = len(rows)
    output.weight = _part(output.weight, entries, dim=1)
    output.in_features = len(entries)
    for attribute, value in ((names.count, len(present)), (names.width, len(entries))):
        if attribute is not None:
            setattr(attention, attribute, value)
    if not present:
        make_headless(attention, tuple(inputs.values()), output)
    if uniform:
        on = [float(head in kept) for head in present for _ in range(size)]
        factors = (*on, *[1.0] * ((names.blocks - 1) * len(on)))
        for name in names.queries:
            if name in inputs:
                inputs[name].register_forward_hook(_ZeroQueries(factors))
                store_by_head(inputs[name], size)
                expect_layout(inputs[name])


def _part(parameter: Tensor, index: Tensor, *, dim: int) -> nn.Parameter:
    part = parameter.detach().index_select(dim, index.to(parameter.device))
    return nn.Parameter(part, requires_grad=parameter.requires_grad)


@dataclass(frozen=True)
class _ZeroQueries:
    """A hook on a projection to queries: those of uniform heads become 0."""

    factors: tuple[float, ...]

    def __call__(self, _: nn.Module, inputs: tuple[Any, ...], output: Tensor) -> Tensor:
        return output * output.new_tensor(self.factors)  # ... x H'd


def __getattr__(name: str) -> Any:
    """Make the pruned class of a config or a model of transformers."""
    stock = getattr(transformers, name.removeprefix(_PRUNED), None)
    if not name.startswith(_PRUNED) or not isinstance(stock, type):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    fields = ("kept_heads", "uniform_heads", "uniform_layout")
    namespace: dict[str, Any] = {"__module__": __name__}
    if name.endswith("Config"):
        namespace |= {
            "model_type": f"{PREFIX}{stock.model_type}",  # type: ignore[attr-defined]
            **dict.fromkeys(fields),
            "__annotations__": {**dict.fromkeys(fields[:2], dict | None), fields[2]: str | None},
        }
        pruned_class = type(name, (PrunedConfig, stock), namespace)
    else:
        config = stock.config_class.__name__  # type: ignore[attr-defined]
        namespace["config_class"] = __getattr__(f"{_PRUNED}{config}")
        pruned_class = type(name, (HeadPrunedModel, stock), namespace)
    return globals().setdefault(name, pruned_class)
