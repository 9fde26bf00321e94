"""Support for pruned models in peft."""

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

_MAPPINGS = "TRANSFORMERS_MODELS_TO_"  # prefix of the names of peft's tables of defaults
_PREPARED = "knows_pruned_models"


def prepare_peft() -> None:
    """Register pruned models in peft, if it has been imported.

    - ``target_modules`` and other defaults are those of the unpruned model's family.
    - Prefix tuning gives each layer a prefix for its remaining heads only.
    - DoRA of an output projection without heads or neurons is refused: DoRA divides by the norm of
      the weights, and such a projection has no weights.

    Other models are treated as before.
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
                "of a layer without heads or neurons has none; leave it out with exclude_modules, "
                "or take LoRA"
            )
        update_layer(self, *inputs, base_layer=base_layer, **options)

    return update


def _of_present_heads(get_prompt: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(get_prompt)
    def prompt(self: Any, *inputs: Any, **options: Any) -> Any:
        prefix = get_prompt(self, *inputs, **options)
        model = self.get_base_model()
        is_pruned = hasattr(getattr(model, "config", None), "kept_heads")
        if isinstance(prefix, Cache) and is_pruned:
            _select_heads(prefix, _present(model))
        return prefix

    return prompt


def _present(model: Any) -> list[tuple[int, ...] | None]:
    """List the heads with weights of each layer, numbered as in the unpruned model.

    None stands for a layer with all its heads. Adapters may have replaced the projections, so the
    numbers are read from the attention modules.
    """
    # Models loaded by the code of an older version's folder have the prefix.
    of_family = FAMILIES[model.config.model_type.removeprefix(PREFIX)]
    names = of_family["DS" if "DS" in of_family else "ES"]
    layers = model.base_model.get_submodule(names.layers).children()
    modules = [layer.get_submodule(names.attention) for layer in layers]
    return [
        tuple(sorted({*each.kept_heads, *each.uniform_heads}))
        if hasattr(each, "kept_heads")
        else None
        for each in modules
    ]


def _select_heads(prefix: Cache, present: list[tuple[int, ...] | None]) -> None:
    """Remove the keys and values, B x H x T x d, of pruned heads from the cache."""
    cache: Any = prefix.self_attention_cache if isinstance(prefix, EncoderDecoderCache) else prefix
    for layer, heads in zip(cache.layers, present, strict=True):
        if heads is not None:
            layer.keys = _part(layer.keys, heads)
            layer.values = _part(layer.values, heads)


def _part(states: Tensor, heads: tuple[int, ...]) -> Tensor:
    if not heads:  # attentions without heads count the positions of this placeholder
        return states.new_zeros(states.size(0), 1, states.size(2), 1)
    return states[:, torch.tensor(heads, device=states.device)]
