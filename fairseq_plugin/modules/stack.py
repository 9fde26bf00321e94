"""Encoders and decoders with whole layers pruned.

In form ``remove`` a dropped layer is not in the model. In form ``mask`` it is computed, and its
output is replaced by its input:

    out = xi layer(x) + (1 - xi) x,    xi in {0, 1}
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from fairseq_plugin.fitting import HeadForm
from headprune.errors import UsageError
from headprune.gates import LayerGate


def drop_layers(stack: Any, kept: Sequence[int], *, form: HeadForm, component: str) -> None:
    """Drop the layers of an encoder or decoder of fairseq's that are not among ``kept``.

    Args:
        stack: an encoder or decoder with all layers in ``layers``.
        kept: the numbers of the layers that stay.
        form: ``remove`` or ``mask``.
        component: ``EL`` or ``DL``, to begin error messages with.

    Raises:
        UsageError: the stack has layers of another kind between these.
    """
    dropped = [layer for layer in range(stack.num_layers) if layer not in kept]
    if not dropped:
        return
    if len(stack.layers) != stack.num_layers:
        raise UsageError(f"{component}: layers cannot be dropped together with --base-layers")
    if form == "mask":
        for layer in dropped:
            gate = LayerGate(torch.zeros(()))
            stack.layers[layer].register_forward_hook(gate, with_kwargs=True)
    else:
        _remove(stack, dropped)


def remove_masked_layers(stack: Any) -> None:
    """Bring a stack of form ``mask`` into form ``remove``."""
    masked = [
        number
        for number in range(len(stack.layers))
        if any(isinstance(hook, LayerGate) for hook in stack.layers[number]._forward_hooks.values())
    ]
    _remove(stack, masked)


def _remove(stack: Any, layers: Sequence[int]) -> None:
    for number in reversed(layers):
        del stack.layers[number]
    stack.num_layers = len(stack.layers)
