"""Pruned models in peft: its defaults, prefixes for the heads that are present, and one refusal."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers.cache_utils import Cache, EncoderDecoderCache

from headprune.errors import UsageError
from hf_plugin.head_names import FAMILIES, PREFIX
from hf_plugin.headless import BiasAlone

_MAPPINGS = "TRANSFORMERS_MODELS_TO_"  # the names of peft's tables of defaults begin so
_PREPARED = "knows_pruned_models"


def prepare_peft() -> None:
    """Tell peft about pruned models, where it was imported.

    - ``target_modules`` and other defaults are those of the family of the unpruned model.
    - Prefix tuning gives each layer a prefix for the heads that are present.
    - DoRA of an output projection without heads is refused: it divides by the norm of the
      weights, and such a projection has no weights.

    What peft does with other models stays as it was.
    """
    if "peft" not in sys.modules or hasattr(sys.modules["peft"], _PREPARED):
        return
    constants = importlib.import_module("peft.utils.constants")
    for name, defaults in vars(constants).items():
        if name.startswith(_MAPPINGS) and isinstance(defaults, dict):
            for family in FAMILIES:
                if family in defaults:
                    defaults.setdefault(f"{PREFIX}{family}", defaults[family])
    dora: Any = importlib.import_module("peft.tuners.lora.dora").DoraLinearLayer
    dora.update_layer = _refusing(dora.update_layer)
    peft: Any = sys.modules["peft"]
    peft.PeftModel.get_prompt = _of_present_heads(peft.PeftModel.get_prompt)
    setattr(peft, _PREPARED, True)


def _refusing(update_layer: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(update_layer)
    def update(self: Any, *inputs: Any, base_layer: Any, **options: Any) -> None:
        if isinstance(base_layer, BiasAlone):
            raise UsageError(
                "use_dora=True divides by the norm of a layer's weights, and the output projection "
                "of a layer without heads has none; leave it out with exclude_modules, or take LoRA"
            )
        update_layer(self, *inputs, base_layer=base_layer, **options)

    return update


def _of_present_heads(get_prompt: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(get_prompt)
    def prompt(self: Any, *inputs: Any, **options: Any) -> Any:
        prefix = get_prompt(self, *inputs, **options)
        model = self.get_base_model()
        kind = str(getattr(getattr(model, "config", None), "model_type", ""))
        if isinstance(prefix, Cache) and kind.startswith(PREFIX):
            _select_heads(prefix, _present(model))
        return prefix

    return prompt


def _present(model: Any) -> list[tuple[int, ...]]:
    """For each layer, the heads with weights, by their numbers in the unpruned model.

    Adapters may stand in place of the projections, so only the attention modules are looked at.
    """
    component = "DS" if "DS" in FAMILIES[model.config.model_type.removeprefix(PREFIX)] else "ES"
    names = FAMILIES[model.config.model_type.removeprefix(PREFIX)][component]
    layers = model.base_model.get_submodule(names.layers).children()
    modules = [layer.get_submodule(names.attention) for layer in layers]
    return [tuple(sorted({*each.kept_heads, *each.uniform_heads})) for each in modules]


def _select_heads(prefix: Cache, present: list[tuple[int, ...]]) -> None:
    """Leave the keys and values, B x H x T x d, of heads that are present alone in the cache."""
    cache: Any = prefix.self_attention_cache if isinstance(prefix, EncoderDecoderCache) else prefix
    for layer, heads in zip(cache.layers, present, strict=True):
        layer.keys = _part(layer.keys, heads)
        layer.values = _part(layer.values, heads)


def _part(states: Tensor, heads: tuple[int, ...]) -> Tensor:
    if not heads:  # from this attentions without heads count positions
        return states.new_zeros(states.size(0), 1, states.size(2), 1)
    return states[:, torch.tensor(heads, device=states.device)]
