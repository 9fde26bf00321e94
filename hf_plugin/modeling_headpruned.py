"""Models that were pruned with headprune, for transformers alone.

transformers loads them with this file, which lies beside the weights, as in
``AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)``. The config
names the heads, feed-forward neurons and layers that are kept; the weights of all others are not in
the files. Heads that are ``uniform`` have theirs, and average the values of all tokens.

The classes are made on demand: ``HeadPrunedBertModel`` of transformers' ``BertModel``.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
import transformers
from torch import Tensor, nn

from .head_names import FAMILIES, FEED_FORWARD, PREFIX, FeedForwardNames, Names, layer_lists
from .pruned_files import PrunedConfig, PrunedFiles, expect_layout, store_by_head

try:
    from .dropped import make_dropped
    from .headless import make_headless, make_neuronless
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
            uniform = (config.uniform_heads or {}).get(component)
            for number, layer in enumerate(_layers(base, names.layers)):
                kept = config.kept_heads[component][number]
                _cut_heads(layer, names, kept=kept, uniform=uniform[number] if uniform else [])
        for component, sublayer in FEED_FORWARD[family].items():
            if neurons := (config.kept_neurons or {}).get(component):
                for layer, ranges in zip(_layers(base, sublayer.layers), neurons, strict=True):
                    _cut_neurons(layer, sublayer, kept=_numbers(ranges))
        for component, name in layer_lists(family).items():
            if component in (config.kept_layers or {}):
                for number, layer in enumerate(_layers(base, name)):
                    if number not in config.kept_layers[component]:
                        make_dropped(layer)


def _layers(base: nn.Module, name: str) -> list[nn.Module]:
    """The layers of one stack; none where the model is the decoder alone."""
    try:
        return list(base.get_submodule(name).children())
    except AttributeError:
        return []


def _numbers(ranges: str) -> list[int]:
    """The neurons of a text such as ``0-511,600``."""
    ends = [part.partition("-") for part in ranges.split(",") if part]
    return [n for first, _, last in ends for n in range(int(first), int(last or first) + 1)]


def _cut_neurons(layer: nn.Module, names: FeedForwardNames, *, kept: list[int]) -> None:
    """Leave out the weights of all neurons but the kept ones."""
    output: Any = layer.get_submodule(names.output)
    inputs: list[Any] = [layer.get_submodule(name) for name in names.inputs]
    columns = torch.tensor(kept, dtype=torch.long)
    rows = torch.cat([block * output.in_features + columns for block in range(names.blocks)])
    _cut(inputs, output, rows=rows, columns=columns)
    if not kept:
        make_neuronless(inputs, output)


def _cut_heads(layer: nn.Module, names: Names, *, kept: list[int], uniform: list[int]) -> None:
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
    _cut(inputs.values(), output, rows=rows, columns=entries)
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


def _cut(inputs: Iterable[Any], output: Any, *, rows: Tensor, columns: Tensor) -> None:
    """Keep only these rows of the input projections and these columns of the output projection."""
    for linear in inputs:
        linear.weight = _part(linear.weight, rows, dim=0)
        if linear.bias is not None:
            linear.bias = _part(linear.bias, rows, dim=0)
        linear.out_features = len(rows)
    output.weight = _part(output.weight, columns, dim=1)
    output.in_features = len(columns)


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
    fields = ("kept_heads", "kept_neurons", "kept_layers", "uniform_heads", "uniform_layout")
    namespace: dict[str, Any] = {"__module__": __name__}
    if name.endswith("Config"):
        namespace |= {
            "model_type": f"{PREFIX}{stock.model_type}",  # type: ignore[attr-defined]
            **dict.fromkeys(fields),
            "__annotations__": {**dict.fromkeys(fields[:-1], dict | None), fields[-1]: str | None},
        }
        pruned_class = type(name, (PrunedConfig, stock), namespace)
    else:
        config = stock.config_class.__name__  # type: ignore[attr-defined]
        namespace["config_class"] = __getattr__(f"{_PRUNED}{config}")
        pruned_class = type(name, (HeadPrunedModel, stock), namespace)
    return globals().setdefault(name, pruned_class)
