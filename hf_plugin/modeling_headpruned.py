"""Models that were pruned with headprune, for transformers alone.

transformers loads them with this file, which lies beside the weights, as in
``AutoModelForSequenceClassification.from_pretrained(folder, trust_remote_code=True)``. The config
names the heads, feed-forward neurons and layers that are kept; the weights of all others are not in
the files. Heads that are ``uniform`` have theirs, and average the values of all tokens.

The classes are made on demand: ``HeadPrunedBertModel`` of transformers' ``BertModel``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import transformers
from torch import Tensor, nn

from .cutting import cut_units, rows_of
from .dropped import make_dropped
from .head_names import (
    FAMILIES,
    FEED_FORWARD,
    FeedForwardNames,
    Names,
    layer_lists,
    note_unit_size,
    unit_size,
)
from .headless import make_headless, make_neuronless
from .position_bias import take_biases
from .pruned_files import ModelType, PrunedConfig, PrunedFiles, expect_layout, store_by_head

if int(transformers.__version__.partition(".")[0]) < 5:
    raise ImportError(
        f"pruned models need transformers 5, this is {transformers.__version__}; what `headprune "
        "export FOLDER --to transformers` writes is loaded by transformers 4 too"
    )

_PRUNED = "HeadPruned"


class HeadPrunedModel(PrunedFiles):
    """The part of a pruned model class that cuts the weights as the config says."""

    def __init__(self, config: Any, *inputs: Any, **options: Any) -> None:
        if getattr(config, "quantization_config", None) is not None and config.uniform_heads:
            raise ValueError("a model with uniform heads cannot be quantised while it is loaded")
        _name_inner_model(config)
        super().__init__(config, *inputs, **options)  # type: ignore[call-arg]
        family = config.model_type
        base: nn.Module = self.base_model  # type: ignore[attr-defined]
        for component, names in FAMILIES[family].items():
            uniform = (config.uniform_heads or {}).get(component)
            if component not in config.kept_heads:
                continue
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


def _name_inner_model(config: Any) -> None:
    """Let AutoModel build the stock model for a pruned config.

    Classifiers of Llama's kind build the model inside them with AutoModel, which knows stock
    configs alone; its units are cut afterwards, with those of the whole model.
    """
    mapping = transformers.AutoModel._model_mapping
    known = next((base for base in type(config).__mro__ if base in mapping), None)
    if known not in (None, type(config)):
        mapping.register(type(config), mapping[known])


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
    output = layer.get_submodule(names.output)
    inputs = _present(layer, (*names.inputs, *names.optional)).values()
    neurons = rows_of(output).size(1)
    cut_units(inputs, [output], places=kept, units=neurons, blocks=names.blocks)
    if not kept:
        make_neuronless(inputs, output)


def _cut_heads(layer: nn.Module, names: Names, *, kept: list[int], uniform: list[int]) -> None:
    """Leave out the weights of all heads but the kept and the uniform ones."""
    attention = layer.get_submodule(names.attention)
    outputs = [layer.get_submodule(name) for name in names.outputs]
    size = unit_size(attention, names)
    present = sorted({*kept, *uniform})
    inputs = _present(layer, names.all_inputs)
    heads = rows_of(outputs[0]).size(1) // size
    cut_units(inputs.values(), outputs, places=present, units=heads, blocks=names.blocks)
    note_unit_size(attention, names)
    take_biases(attention, names.bias, present)
    for attribute, value in ((names.count, len(present)), (names.width, len(present) * size)):
        if attribute is not None:
            setattr(attention, attribute, value)
    if not present:
        companion = names.companion.hidden_states if names.companion else None
        returns = names.returns
        make_headless(attention, inputs.values(), outputs, returns=returns, companion=companion)
    if uniform:
        for name in names.queries:
            if name in inputs:
                rows = rows_of(inputs[name]).size(0) // (names.blocks * len(present))
                on = [float(head in kept) for head in present for _ in range(rows)]
                factors = (*on, *[1.0] * ((names.blocks - 1) * len(on)))
                inputs[name].register_forward_hook(_ZeroQueries(factors))
                store_by_head(inputs[name], rows)
                expect_layout(inputs[name])


def _present(layer: nn.Module, names: tuple[str, ...]) -> dict[str, Any]:
    """The sub-modules of these names, as far as the layer has them."""
    modules = dict(layer.named_modules())
    return {name: modules[name] for name in names if name in modules}


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
            "model_type": ModelType(stock.model_type),  # type: ignore[attr-defined]
            **dict.fromkeys(fields),
            "__annotations__": {**dict.fromkeys(fields[:-1], dict | None), fields[-1]: str | None},
        }
        pruned_class = type(name, (PrunedConfig, stock), namespace)
    else:
        config = stock.config_class.__name__  # type: ignore[attr-defined]
        namespace["config_class"] = __getattr__(f"{_PRUNED}{config}")
        pruned_class = type(name, (HeadPrunedModel, stock), namespace)
    return globals().setdefault(name, pruned_class)
