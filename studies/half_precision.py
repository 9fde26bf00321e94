"""Write a trained baseline in half precision, to pass it on: half the size, and no paths in it.

    python -m studies.half_precision runs/multi30k/baseline/model.pt -o multi30k.pt

The optimizer's state is left out too. A study takes the file by its key `baseline_model`.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from fairseq_plugin.checkpoints import Checkpoint
from headprune.errors import DataError, UsageError, exit_status
from headprune.files import require_separate

_KEPT_FACTS = ("train_iterator", "epoch", "val_loss", "best")
"""Entries of a checkpoint's `extra_state` that fairseq reads, or that say how good the model is."""

_PATHS = {
    **dict.fromkeys(("data", "save_dir"), ""),
    **dict.fromkeys(("user_dir", "finetune_from_model", "distill_from", "tensorboard_logdir")),
    "restore_file": "checkpoint_last.pt",
}
"""Options that hold paths of the machine that trained the model, and what stands in for them."""


def main(arguments: Sequence[str]) -> None:
    """Write the checkpoint.

    Raises:
        DataError: the file is no whole checkpoint of a Transformer, or has a weight beyond float16.
        UsageError: the model is pruned, or would be replaced.
    """
    parser = argparse.ArgumentParser(
        prog="python -m studies.half_precision",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("model", type=Path, help="the checkpoint, of float32 weights")
    parser.add_argument("-o", "--output", type=Path, required=True, help="the file to write")
    given = parser.parse_args(arguments)
    require_separate({"--output": given.output}, inputs=[given.model])
    checkpoint = Checkpoint.load(given.model)
    if not checkpoint.plan.is_full:
        raise UsageError(f"{given.model}: is pruned; give the unpruned baseline")
    state = checkpoint.state
    weights = halved(state["model"])
    for name, tensor in weights.items():
        if tensor.is_floating_point() and (tensor.isinf() & state["model"][name].isfinite()).any():
            largest = torch.finfo(tensor.dtype).max
            raise DataError(f"{given.model}: {name} has weights beyond float16's {largest:g}")
    state["model"] = weights
    state["last_optimizer_state"] = None
    extra = state.get("extra_state") or {}
    state["extra_state"] = {name: extra[name] for name in _KEPT_FACTS if name in extra}
    for holder in ("cfg", "args"):
        for options in sections(state.get(holder)):
            options |= {name: path for name, path in _PATHS.items() if name in options}
    checkpoint.save(given.output)


def sections(options: object) -> Iterator[dict[str, Any]]:
    """A checkpoint's options and all groups of options in them, as dictionaries."""
    values = vars(options) if isinstance(options, argparse.Namespace) else options
    if isinstance(values, dict):
        yield values
        for value in values.values():
            yield from sections(value)


def halved(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights rounded to float16; tied ones, which share their memory, stay tied."""
    rounded: dict[int, Tensor] = {}
    return {
        name: rounded.setdefault(tensor.data_ptr(), tensor.half())
        if tensor.is_floating_point()
        else tensor
        for name, tensor in weights.items()
    }


if __name__ == "__main__":
    sys.exit(exit_status(main, sys.argv[1:]))
