"""The fine-tuning during which the score movement of a classifier is computed."""

from __future__ import annotations

import copy
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import torch
from transformers import (
    PreTrainedModel,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from headprune.errors import UsageError
from headprune.scores.movement import FineTuned, Movement
from hf_plugin.finetuning.training import Schedule, encode, fine_tune
from hf_plugin.scores.model import HuggingFaceModel
from hf_plugin.tasks.examples import Examples
from hf_plugin.tasks.task import cut_name
from hf_plugin.tokenizers import Reader


class StepCallback(TrainerCallback):
    """Calls a function before each update of the weights, with gradients that are not clipped yet.

    The Trainer clips gradients before its callbacks are called, so the callback clips them in the
    Trainer's place, in the same way.
    """

    def __init__(self, step: Callable[[], None]) -> None:
        self.step = step
        self._max_norm = 0.0

    def on_train_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Take over the clipping."""
        self._max_norm, args.max_grad_norm = args.max_grad_norm, 0.0

    def on_pre_optimizer_step(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        """Call the function, and clip."""
        self.step()
        if self._max_norm > 0:
            torch.nn.utils.clip_grad_norm_(kwargs["model"].parameters(), self._max_norm)


def require_schedule(schedule: Schedule) -> None:
    """Raise a UsageError for a number of epochs or a learning rate that is not above 0."""
    if not schedule.epochs > 0 or not schedule.learning_rate > 0:
        raise UsageError("movement: give --epochs and --learning-rate above 0")


def fine_tuned(
    model: PreTrainedModel,
    reader: Reader,
    examples: Examples,
    *,
    components: Sequence[str],
    name: str,
    max_length: int,
    schedule: Schedule,
) -> FineTuned:
    """Fine-tune a copy of a classifier, and forget the copy.

    Args:
        model: the classifier; it is left as it was, and so is torch's random state.
        reader: its tokenizer or image processor.
        examples: the training examples.
        components: those whose units are scored.
        name: the name of the examples in signatures.
        max_length: the longest example, in tokens.
        schedule: the schedule of the fine-tuning.

    Raises:
        UsageError: a number of epochs or a learning rate that is not above 0.
        DataError: the fine-tuning diverges.
    """
    require_schedule(schedule)
    trained = copy.deepcopy(model)
    movement = Movement(HuggingFaceModel(trained), components)
    with (
        tempfile.TemporaryDirectory() as folder,
        redirect_stdout(sys.stderr),  # the Trainer's words on its progress
        torch.random.fork_rng(),
    ):
        fine_tune(
            trained,
            reader,
            encode(examples, reader, max_length=max_length),
            schedule=schedule,
            folder=Path(folder),
            callbacks=[StepCallback(movement.add)],
        )
    return FineTuned(
        values=movement.values,
        steps=movement.steps,
        data=cut_name(f"{name}[{len(examples)}]", max_length),
        settings={
            "part": "training",
            "trained-on": "yes",
            "finetune": f"{schedule.epochs:g}ep",
            "batch_size": schedule.batch_size,
            "learning_rate": schedule.learning_rate,
            "weight_decay": schedule.weight_decay,
            "seed": schedule.seed,
        },
    )
