"""The building of layers, for encoder and decoder alike: numbers, wrapping, dropping."""

from __future__ import annotations

from typing import Any

from fairseq.distributed import fsdp_wrap
from fairseq.modules.checkpoint_activations import checkpoint_wrapper
from torch import nn

from fairseq_plugin.modules.stack import drop_layers
from fairseq_plugin.options import HeadPrunedTransformerConfig as Config
from fairseq_plugin.options import stored_plan


def next_layer(stack: Any) -> int:
    """Count the layers of a stack while fairseq builds them; it does not pass their index."""
    layer: int = getattr(stack, "layers_built", 0)
    stack.layers_built = layer + 1
    return layer


def wrap(layer: nn.Module, cfg: Config) -> nn.Module:
    """Wrap a layer as fairseq wraps its own, for activation checkpointing and FSDP."""
    if cfg.checkpoint_activations:
        layer = checkpoint_wrapper(layer, offload_to_cpu=cfg.offload_activations)
    # With checkpointing, FSDP must wrap the layer whatever its size is.
    min_params = 0 if cfg.checkpoint_activations else cfg.min_params_to_wrap
    wrapped: nn.Module = fsdp_wrap(layer, min_num_params=min_params)
    return wrapped


def drop_layers_of(stack: Any, cfg: Config, component: str) -> None:
    """Drop the layers of a stack that the plan in the configuration does not keep."""
    units = stored_plan(cfg).kept.get(component)
    if units is not None:
        kept = [layer for layer, unit in enumerate(units) if unit]
        form: Any = str(cfg.head_form)
        drop_layers(stack, kept, form=form, component=component)
