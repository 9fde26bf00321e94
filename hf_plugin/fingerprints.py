"""Fingerprints: hashes that identify Hugging Face models."""

from __future__ import annotations

import torch
from transformers import PreTrainedModel

from headprune.scores.fingerprint import fingerprint
from hf_plugin.families import attentions
from hf_plugin.headless import Weightless


def model_fingerprint(model: PreTrainedModel) -> str:
    """The SHA-256 of the model's weights and of the numbers of its uniform heads.

    Raises:
        UsageError: a model that cannot be pruned.
    """
    uniform = {
        f"{component}.{layer}.uniform_heads": torch.tensor(attention.uniform)
        for component, layers in attentions(model).items()
        for layer, attention in enumerate(layers)
        if attention.uniform
    }
    # Older files hold the empty weights of layers without heads, whose names were hashed too.
    empty = {
        f"{name}.{part}": tensor
        for name, module in model.named_modules()
        if isinstance(module, Weightless)
        for part, tensor in module.named_buffers()
    }
    return fingerprint({**model.state_dict(), **empty, **uniform})
