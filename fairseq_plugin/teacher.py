"""The teacher of a distillation: a checkpoint's model for a training's task."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import torch
from fairseq.data import Dictionary
from fairseq.models.transformer import TransformerModel

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import fairseq_silent, languages_of, load_model, trained_on
from headprune.errors import UsageError
from headprune.plan import HeadPlan

_OPTION = "--distill-from"


def load_teacher(path: str, task: Any) -> TransformerModel:
    """Load a checkpoint, stock fairseq's or head-pruned, in evaluation mode without gradients.

    Random numbers are drawn as if it had not been loaded.

    Args:
        path: the checkpoint.
        task: the task of the training.

    Raises:
        UsageError: a model of another task, other languages or another vocabulary.
        DataError: a file that cannot be read, or a vocabulary of another size.
    """
    checkpoint = Checkpoint.load(Path(path))
    data = Path(str(task.cfg.data).split(os.pathsep)[0])
    own, wanted = languages_of(checkpoint, data), (task.cfg.source_lang, task.cfg.target_lang)
    if own != wanted:
        raise UsageError(
            f"{_OPTION} {path}: translates {'-'.join(own)}, the training is for {'-'.join(wanted)}"
        )
    require_vocabulary(checkpoint, task, name=f"{_OPTION} {path}")
    if checkpoint.form is None:  # stock fairseq's: its layers are then found as those of the model
        checkpoint = checkpoint.prune(HeadPlan.full(checkpoint.shape))
    with torch.random.fork_rng(devices=[]), fairseq_silent():
        model, _ = load_model(checkpoint, data)
    return model.requires_grad_(False)


def require_vocabulary(checkpoint: Checkpoint, task: Any, *, name: str) -> None:
    """Compare a task's dictionaries with those of the data that the checkpoint was trained on.

    A checkpoint has no dictionary, and its data may be gone; then nothing is compared. A vocabulary
    of another size is found when the model is loaded.

    Args:
        checkpoint: the unpruned model.
        task: the task that it is used for.
        name: the option and the file, for the message.

    Raises:
        UsageError: another vocabulary.
    """
    try:
        folder = trained_on(checkpoint)
    except UsageError:
        return
    for language, dictionary in (
        (task.cfg.source_lang, task.source_dictionary),
        (task.cfg.target_lang, task.target_dictionary),
    ):
        file = folder / f"dict.{language}.txt"
        if file.is_file() and Dictionary.load(str(file)) != dictionary:
            raise UsageError(
                f"{name}: was trained with another vocabulary ({file}) than the "
                f"training's, of {len(dictionary)} entries; give the unpruned model"
            )
