"""Stop trainings that diverge with an error, before a checkpoint is written."""

from __future__ import annotations

import math
from functools import wraps
from typing import Any

from fairseq import checkpoint_utils
from fairseq.trainer import Trainer

from headprune.errors import DataError

_ADVICE = "give a lower --lr, a longer warm-up or a --clip-norm"
_SIGNS = (
    "gradients are Nan/Inf",
    "Minimum loss scale reached",
    "value cannot be converted to type float without overflow",
)
"""Beginnings of the messages of fairseq and torch about numbers that are not finite."""


def end_with_an_error() -> None:
    """Let fairseq's training stop with one line when gradients or the validation loss diverge."""
    Trainer.train_step = with_one_line(Trainer.train_step)
    checkpoint_utils.save_checkpoint = of_finite_loss(checkpoint_utils.save_checkpoint)


def with_one_line(train_step: Any) -> Any:
    """Let a training step that finds no finite gradient end with one line, a DataError."""

    @wraps(train_step)
    def step(self: Trainer, *arguments: Any, **options: Any) -> Any:
        try:
            return train_step(self, *arguments, **options)
        except Exception as problem:
            # fairseq's search for the place of the NaN may fail with an error of its own.
            for error in (problem, problem.__context__):
                if str(error).startswith(_SIGNS):
                    raise DataError(
                        f"the training has diverged at update {self.get_num_updates() + 1} "
                        f"({error}); {_ADVICE}"
                    ) from problem
            raise

    return step


def of_finite_loss(save_checkpoint: Any) -> Any:
    """Let fairseq save checkpoints with a finite loss alone, and raise a DataError otherwise."""

    @wraps(save_checkpoint)
    def save(cfg: Any, trainer: Trainer, epoch_iterator: Any, val_loss: float | None) -> Any:
        if val_loss is not None and not math.isfinite(val_loss):
            raise DataError(
                f"the training has diverged: after update {trainer.get_num_updates()} the "
                f"{cfg.best_checkpoint_metric} of the validation is {val_loss}; {_ADVICE}"
            )
        return save_checkpoint(cfg, trainer, epoch_iterator, val_loss)

    return save
