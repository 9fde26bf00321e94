"""Re-fitting of checkpoints, and its calibration data."""

from __future__ import annotations

from pathlib import Path

import torch

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.fitting import stored_sublayers
from fairseq_plugin.loading import fairseq_silent
from fairseq_plugin.scores.model import FairseqModel
from fairseq_plugin.scores.run import batches_of, data_name, load_items, load_scored
from headprune.errors import DataError
from headprune.plan import PruningPlan
from headprune.recovery.calibration import Calibration
from headprune.recovery.refit import RefittedModel, Target, refit
from headprune.scores.compute import Watch, unwatched

_BATCH = 32
_SPLIT = "train"


def calibration_of(
    checkpoint: Checkpoint,
    data: Path,
    *,
    examples: int,
    watch: Watch = unwatched,
) -> Calibration:
    """A checkpoint's model with sentence pairs of the training set.

    The valid and the test set stay unseen: models are chosen and reported on them.

    Args:
        checkpoint: the checkpoint, stock fairseq's or head-pruned.
        data: the binarised data folder.
        examples: the largest number of pairs; they are drawn at random, the same every time.
        watch: function that wraps iterators, for a progress bar.

    Raises:
        UsageError: no training set.
        DataError: data that cannot be read.
    """
    with fairseq_silent():
        model, task = load_scored(checkpoint, data)
        most = min(model.max_positions())
        items = [
            item
            for item in load_items(task, _SPLIT, data, max_examples=examples)
            if max(len(item["source"]), len(item["target"])) <= most
        ]
        if not items:
            raise DataError(f"{data}: no sentence pair of {_SPLIT} is short enough for the model")
        batches = batches_of(items, model, size=_BATCH)
    return Calibration(
        model=FairseqModel(model),
        batches=lambda purpose: watch(iter(batches), len(batches), purpose),
        data=f"{data_name(data)}.{_SPLIT}[{len(items)}]",
        examples=len(items),
    )


def refitted(
    checkpoint: Checkpoint,
    plan: PruningPlan,
    data: Path,
    calibration: Calibration,
    *,
    target: Target = "output",
) -> RefittedModel:
    """The checkpoint pruned to a plan, re-fitted to the unpruned model of ``calibration``."""
    pruned = checkpoint.prune(plan)
    with fairseq_silent():
        model, _ = load_scored(pruned, data)
        scored = FairseqModel(model)
        sublayers = refit(
            scored,
            calibration.model,
            lambda: calibration.batches("re-fitting"),
            target=target,
        )
    changed = {(each.component, each.layer) for each in sublayers}
    weights: dict[str, torch.Tensor] = pruned.state["model"]
    for stored in stored_sublayers(pruned.complete_plan, "remove"):
        if (stored.component, stored.layer) not in changed:
            continue
        output = scored.sublayers[stored.component][stored.layer].output
        for name, tensor in (("weight", output.weight), ("bias", output.bias)):
            key = f"{stored.output}.{name}"
            if tensor is not None:
                weights[key] = tensor.detach().to(device="cpu", dtype=weights[key].dtype).clone()
    return RefittedModel(
        model=pruned,
        sublayers=sublayers,
        data=calibration.data,
        examples=calibration.examples,
    )
