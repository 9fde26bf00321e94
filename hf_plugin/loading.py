"""Load models, including those that were pruned by transformers 4."""

from __future__ import annotations

import os
import re
from typing import Any

import torch
import transformers
from transformers import AutoConfig, AutoModel, PreTrainedConfig, PreTrainedModel

from headprune.errors import DataError, UsageError
from hf_plugin import modeling
from hf_plugin.families import require_family
from hf_plugin.folder_check import check_config
from hf_plugin.modeling import CONFIGS, pruned_class
from hf_plugin.places import reporting
from hf_plugin.plans import head_plan, plan_after
from hf_plugin.pruned_configs import kept_lists


def from_pretrained(
    name_or_path: str | os.PathLike[str],
    model_class: Any = None,
    *,
    config: PreTrainedConfig | None = None,
    **options: Any,
) -> PreTrainedModel:
    """Load a model, also one that transformers 4 pruned, whose config has ``pruned_heads``.

    transformers 5 ignores that entry and then finds weights of the wrong size. What is loaded is
    what ``prune_heads`` makes; saved again, the Auto classes read it.

    Args:
        name_or_path: a folder, or a name on the hub.
        model_class: an Auto class or a model class; without one, the class that saved the model.
        config: replaces the model's own config.
        options: options for ``from_pretrained``, those that change the config included. Code in
            the model's folder runs only with ``trust_remote_code=True``.

    Raises:
        UsageError: a family that cannot be pruned; no model class.
        DataError: ``pruned_heads`` names heads that do not exist.
    """
    options.setdefault("trust_remote_code", False)  # else transformers asks on standard input
    if config is None:
        places = _hub_options(options)
        config, options = read_config(name_or_path, **options)
        options |= places
    if config.output_attentions:
        # transformers would take sdpa, which gives none, and refuse to save the model.
        options.setdefault("attn_implementation", "eager")
    if model_class is None:
        model_class = class_that_saved(config, where=str(name_or_path))
    is_model = isinstance(model_class, type) and issubclass(model_class, PreTrainedModel)
    if is_model and isinstance(config, tuple(CONFIGS.values())):
        model_class = pruned_class(model_class)
    model: PreTrainedModel = model_class.from_pretrained(name_or_path, config=config, **options)
    return model


def complete_model(path: str | os.PathLike[str], *, name: str) -> PreTrainedModel:
    """Load a model of which no weight is left to chance, as the class that saved it.

    Args:
        path: a folder, or a name on the hub.
        name: what messages call it.

    Raises:
        UsageError: see ``from_pretrained``.
        DataError: no weights, or not those of the config.
    """
    with reporting(f"{name}: cannot read the weights"):
        config, _ = read_config(path)
        loaded: Any = from_pretrained(
            path,
            None if config.architectures else AutoModel,
            config=config,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # mismatches are named below
        )
    model: PreTrainedModel
    model, info = loaded
    computed = {key for key, _ in model.named_buffers()}  # such as rotary frequencies
    missing = set(info["missing_keys"]) - computed
    lost = [*missing, *(key for key, *_ in info["mismatched_keys"])]
    if lost:
        raise DataError(f"{name}: its files do not hold {min(lost)} as its config says")
    return model


def read_config(
    name_or_path: str | os.PathLike[str], **options: Any
) -> tuple[PreTrainedConfig, dict[str, Any]]:
    """The config of a model, and the options that the config does not use.

    Heads that transformers 4 pruned are in it as in our own.

    Raises:
        UsageError: a family that cannot be pruned, with pruned heads.
        DataError: ``pruned_heads`` names heads that do not exist, or a size makes no sense.
    """
    check_config(name_or_path)
    options.setdefault("trust_remote_code", False)
    config, others = AutoConfig.from_pretrained(name_or_path, return_unused_kwargs=True, **options)
    if getattr(config, "pruned_heads", None):
        require_family(config.model_type)
        _adopt(config, where=str(name_or_path))
    return config, others


def _adopt(config: PreTrainedConfig, *, where: str) -> None:
    """Convert ``pruned_heads`` of transformers 4 to this plugin's fields."""
    with torch.device("meta"):
        whole = AutoModel.from_config(config)
    pruned = config.pruned_heads
    try:
        if isinstance(pruned, dict):
            layers = {len(layers) for layers in head_plan(whole).kept.values()}
            pruned = _by_layer(pruned, layers=min(layers))
        plan = plan_after(whole, pruned)
    except UsageError as error:
        raise DataError(f"{where}: pruned_heads of its config: {error}") from None
    config.__class__ = CONFIGS[type(config)]
    config.kept_heads = kept_lists(plan)
    config.kept_neurons = config.kept_layers = config.uniform_heads = None
    config.pruned_heads = {}


def _by_layer(pruned: dict[Any, Any], *, layers: int) -> dict[Any, Any]:
    """Normalise ``pruned_heads``: each layer appears once, by its number from the bottom.

    transformers 4 stored the layer numbers as given to ``prune_heads``. One layer can appear as 11
    and as -1; the heads of both entries are pruned. Keys are text in JSON.
    """
    merged: dict[Any, Any] = {}
    for key, heads in pruned.items():
        layer = int(key) if re.fullmatch(r"-?[0-9]+", str(key)) else key
        if isinstance(layer, int) and -layers <= layer < layers:
            layer %= layers
        if layer in merged and isinstance(heads, list) and isinstance(merged[layer], list):
            heads = [*merged[layer], *heads]
        merged[layer] = heads
    return merged


def _hub_options(options: dict[str, Any]) -> dict[str, Any]:
    """The options that locate a model; its config is read with them, too."""
    names = (
        *("cache_dir", "force_download", "local_files_only", "revision", "subfolder", "token"),
        "trust_remote_code",
    )
    return {name: options[name] for name in names if name in options}


def class_that_saved(config: PreTrainedConfig, *, where: str) -> Any:
    """The model class that a config names; for pruned models, the pruned class.

    Raises:
        UsageError: it names none that is known.
    """
    for name in config.architectures or ():
        model_class = getattr(modeling, name, None) or getattr(transformers, name, None)
        if isinstance(model_class, type) and issubclass(model_class, PreTrainedModel):
            pruned = isinstance(config, tuple(CONFIGS.values()))
            return pruned_class(model_class) if pruned else model_class
    raise UsageError(
        f"{where}: its config does not say which model class saved it; give one, such as "
        "AutoModelForSequenceClassification"
    )
