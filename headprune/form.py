"""How heads are pruned."""

from __future__ import annotations

from enum import StrEnum


class Form(StrEnum):
    """How heads are pruned (see the README).

    remove: their weights are gone. mask: their outputs are multiplied by 0, which computes the
    same. uniform: their attention scores are multiplied by 0, in Hugging Face models alone.
    """

    remove = "remove"
    mask = "mask"
    uniform = "uniform"
