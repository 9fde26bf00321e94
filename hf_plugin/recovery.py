"""Re-fitting of Hugging Face models, and its calibration data."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from torch import nn

from headprune.errors import DataError
from headprune.plan import PruningPlan
from headprune.recovery import refit as core
from headprune.recovery.calibration import Calibration
from headprune.scores.compute import Watch, unwatched
from headprune.scores.registry import SCORING
from hf_plugin.families import require_own_layers
from hf_plugin.folders import Folder
from hf_plugin.glue.held_out import TrainingPart, held_out
from hf_plugin.glue.models import load_classifier, require_length
from hf_plugin.glue.training import encode
from hf_plugin.places import device
from hf_plugin.scores.model import HuggingFaceModel
from hf_plugin.scores.run import batch_size_of, batches_of
from hf_plugin.tasks.task import LabelledData, cut_name
from hf_plugin.tokenizers import load_reader, set_padding


def calibration_of(
    model_name: str,
    *,
    data: LabelledData,
    examples: int,
    max_length: int,
    parts: Sequence[TrainingPart] = (),
    watch: Watch = unwatched,
) -> Calibration:
    """A classifier with training examples that it was not fine-tuned on.

    They are among those that scores are computed on (see ``hf_plugin.glue.held_out``): no model is
    reported on them, and no ablation is.

    Args:
        model_name: a Hugging Face folder.
        data, max_length, parts: see ``hf_plugin.scores.run.score_heads``.
        examples: the largest number of examples.
        watch: wraps the batches, for a progress bar.
    """
    model = load_classifier(model_name, data.task, untrained=False)
    model.to(device())  # type: ignore[arg-type]
    reader = load_reader(model_name, data.task)
    require_length(max_length, model, reader, name=model_name)
    set_padding(model, reader)
    train = data.load("train")
    divided = held_out(train, model=Path(model_name), parts=parts)
    if divided.trained_on == "yes":
        print(
            f"warning: {model_name} was fine-tuned on all training examples; calibration uses some "
            "of them",
            file=sys.stderr,
        )
    part = train.select(divided.part(SCORING, most=examples))
    if not len(part):
        raise DataError(f"{data.task.name}: no example to calibrate on")
    encoded = encode(part, reader, max_length=max_length)

    def batches(purpose: str) -> Iterator[Mapping[str, torch.Tensor]]:
        size = batch_size_of(model)
        return batches_of(encoded, reader, size=size, watch=lambda b, n: watch(b, n, purpose))

    return Calibration(
        model=HuggingFaceModel(model),
        batches=batches,
        data=cut_name(f"{data.name_of('train')}[{len(part)}]", max_length),
    )


def refitted(
    folder: Folder, plan: PruningPlan, calibration: Calibration, *, target: core.Target = "output"
) -> core.RefittedModel:
    """The folder's model pruned to a plan, re-fitted to the unpruned one of ``calibration``."""
    require_own_layers(folder.model)
    pruned = folder.prune(plan)
    dtype = pruned.model.dtype
    pruned.model.float().to(device())  # type: ignore[arg-type]
    sublayers = core.refit(
        HuggingFaceModel(pruned.model),
        calibration.model,
        lambda: calibration.batches("re-fitting"),
        target=target,
    )
    nn.Module.to(pruned.model, device="cpu", dtype=dtype)
    return core.RefittedModel(model=pruned, sublayers=sublayers, data=calibration.data)
