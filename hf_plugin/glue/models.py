"""Pretrained models to fine-tune on a task."""

from __future__ import annotations

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headprune.errors import DataError, UsageError
from hf_plugin.folder_check import check_config, require_finite
from hf_plugin.glue.tasks import Task
from hf_plugin.head_names import PREFIX
from hf_plugin.places import place, reporting


def load_classifier(name: str, task: Task, *, untrained: bool) -> PreTrainedModel:
    """The model in the folder, or the hub's model, ``name``, with a classifier for ``task``.

    Args:
        untrained: whether the classifier may be missing, or be that of another task. One with as
            many labels as ``task`` is taken as it is; otherwise its weights are random, so set a
            seed before.

    Raises:
        DataError: no model, or one without the weights that it should have.
        UsageError: ``name`` is the default model, and is not installed; or the classifier is to
            be used as it is, and is for other labels.
    """
    folder = place(name)
    labels = dict(enumerate(task.labels)) or {0: task.label}
    check_config(folder)
    with reporting(f"{name}: no model to be had"):
        if not untrained:
            config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
            _require_labels(config.id2label, labels, name=name)
        model, info = AutoModelForSequenceClassification.from_pretrained(
            folder,
            id2label=labels,
            label2id={label: number for number, label in labels.items()},
            problem_type="regression" if task.range else "single_label_classification",
            # Training in half precision, as some models are saved, rounds small updates away.
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # what did not fit is looked at below
            output_loading_info=True,
            trust_remote_code=False,
        )
    assert isinstance(model, PreTrainedModel)
    encoder = f"{model.base_model_prefix}."
    unfit = {*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])}
    # Some encoders are published without a pooler; it is trained with the classifier then.
    lost = [key for key in unfit if not (untrained and _is_new(key, encoder))]
    if lost:
        raise DataError(
            f"{name}: {len(lost)} of its weights are missing or of another shape, {min(lost)} for "
            "one"
        )
    require_finite(model, name=name)
    return model


def _require_labels(found: dict[int, str], wanted: dict[int, str], *, name: str) -> None:
    """A classifier with the labels in another order would be measured wrongly."""
    unnamed = all(label == f"LABEL_{number}" for number, label in found.items())
    if unnamed and len(found) == len(wanted):
        return
    if {number: label.casefold() for number, label in found.items()} != wanted:
        raise UsageError(
            f"{name}: its classifier is for {', '.join(found.values())}, the task has "
            f"{', '.join(wanted.values())}, in this order; fine-tune it for one epoch or more"
        )


def _is_new(key: str, encoder: str) -> bool:
    return not key.startswith(encoder) or key.startswith(f"{encoder}pooler.")


def require_length(
    length: int, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, *, name: str
) -> None:
    """Raise a UsageError where the model takes fewer tokens than ``length``."""
    positions = model.config.max_position_embeddings
    if model.config.model_type.removeprefix(PREFIX) in ("roberta", "xlm-roberta", "camembert"):
        positions -= model.config.pad_token_id + 1  # they count from after the padding's number
    most = min(tokenizer.model_max_length, positions)
    if length > most:
        raise UsageError(f"max length {length}: {name} takes {most} tokens at most")
