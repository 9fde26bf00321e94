"""Fingerprints: hashes that identify a model's weights."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping

import torch
from torch import Tensor


def fingerprint(weights: Mapping[str, Tensor]) -> str:
    """The SHA-256 of the weights, with their names, in the order of these.

    Floating-point weights count as float32, which is what models are scored in.
    """
    digest = hashlib.sha256()
    for name, tensor in sorted(weights.items()):
        digest.update(name.encode())
        plain = tensor.detach().cpu()
        plain = plain.float() if plain.is_floating_point() else plain
        raw = plain.contiguous().view(-1).view(torch.uint8)
        digest.update(raw.numpy().tobytes())
    return digest.hexdigest()
