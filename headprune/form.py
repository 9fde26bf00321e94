"""Forms of pruning."""

from __future__ import annotations

from enum import StrEnum


class Form(StrEnum):
    """Form of the pruned heads (see docs/glossary.md).

    remove: their weights are removed. mask: their outputs are multiplied by 0, with the same
    result. uniform: their attention scores are multiplied by 0 (Hugging Face models only).
    """

    remove = "remove"
    mask = "mask"
    uniform = "uniform"
