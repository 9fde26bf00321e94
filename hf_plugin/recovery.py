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
from hf_plugin.finetuning.held_out import TrainingPart, held_out
from hf_plugin.finetuning.models import load_classifier, require_length
from hf_plugin.finetuning.training import encode
from hf_plugin.folders import Folder
from hf_plugin.places import device
from hf_plugin.scores.model import HuggingFaceModel, on_device_of
from hf_plugin.scores.own_outputs import translates, with_translations
from hf_plugin.scores.run import batch_size_of, batches_of, whole_model
from hf_plugin.tasks.task import LabelledData, cut_name
from hf_plugin.tokenizers import load_reader, set_padding


def calibration_of(
    model_name: str,
    *,
    data: LabelledData,
    examples: int,
    max_length: int,
    parts: Sequence[TrainingPart] = (),
    without_labels: bool = False,
    watch: Watch = unwatched,
) -> Calibration:
    """A model with training examples that it was not fine-tuned on.

    They are among those that scores are computed on (see ``hf_plugin.finetuning.held_out``): no
    model is reported on them, and no ablation is.

    Args:
        model_name: a Hugging Face folder.
        data, max_length, parts: see ``hf_plugin.scores.run.score_heads``.
        examples: the largest number of examples.
        without_labels: take any model that reads text, and the texts of the data alone; models that
            translate read their own greedy translations.
        watch: wraps the batches, for a progress bar.
    """
    if without_labels:
        model = whole_model(model_name)
    else:
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
    if without_labels:
        encoded = encoded.remove_columns("label")
    calibrated = HuggingFaceModel(model)
    size = batch_size_of(model)

    def read(purpose: str) -> Iterator[Mapping[str, torch.Tensor]]:
        return batches_of(encoded, reader, size=size, watch=lambda b, n: watch(b, n, purpose))

    translated: list[Mapping[str, torch.Tensor]] = []
    if without_labels and translates(model):
        # Once: re-fitting reads all batches again for each sub-layer.
        with calibrated.evaluating():
            translated += (
                with_translations(model, on_device_of(model, batch))
                for batch in read("translating")
            )

    def batches(purpose: str) -> Iterator[Mapping[str, torch.Tensor]]:
        return watch(iter(translated), len(translated), purpose) if translated else read(purpose)

    return Calibration(
        model=calibrated,
        batches=batches,
        data=cut_name(f"{data.name_of('train')}[{len(part)}]", max_length),
        examples=len(part),
    )


def refitted(
    folder: Folder, plan: PruningPlan, calibration: Calibration, *, target: core.Target = "output"
) -> core.RefittedModel:
    """The folder's model pruned to a plan, re-fitted to the unpruned one of ``calibration``."""
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
    return core.RefittedModel(
        model=pruned,
        sublayers=sublayers,
        data=calibration.data,
        examples=calibration.examples,
    )
