"""Fine-tuning and prediction with transformers' Trainer.

AdamW without weight decay, a learning rate that rises over the first tenth of the updates and falls
linearly to 0, gradients clipped to norm 1; batches of sentences of like length, padded to their
longest. What counts is the model after the last epoch: none is chosen on the development set.
"""

from __future__ import annotations

import json
import math
import sys
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from safetensors import safe_open
from transformers import (
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.trainer import TRAINER_STATE_NAME

from headprune.errors import DataError
from headprune.weights import is_finite
from hf_plugin.glue.data import Examples
from hf_plugin.tokenizers import require_vocabulary

WARM_UP = 0.1
"""Share of the updates over which the learning rate rises."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """How a model is fine-tuned: epochs, sentences in a batch, highest rate, seed, precision."""

    epochs: float
    batch_size: int
    learning_rate: float
    seed: int
    bf16: bool = False


@dataclass(frozen=True)
class Training:
    """A fine-tuning that has ended.

    Attributes:
        seconds: without those before a checkpoint from which it was resumed.
        resumed: whether it was interrupted and resumed.
    """

    seconds: float
    resumed: bool


class Diverged(DataError):
    """A fine-tuning whose loss or weights are no longer finite."""


def _diverged(how: str, learning_rate: float) -> Diverged:
    return Diverged(
        f"the fine-tuning has diverged: {how}, with learning rate {learning_rate:g}; give a lower "
        "one"
    )


class _StopWhereItDiverges(TrainerCallback):
    """End the training before the checkpoint of an epoch whose loss is not finite is written."""

    def on_log(
        self,
        args: TrainingArguments,
        state: TrainerState,
        control: TrainerControl,
        logs: Mapping[str, Any] | None = None,
        **_: Any,
    ) -> None:
        """Look at the mean loss of the epoch."""
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(float(loss)):
            how = f"the loss is {loss} in epoch {math.ceil(state.epoch or 0)}"
            raise _diverged(how, args.learning_rate)


def encode(examples: Examples, tokenizer: PreTrainedTokenizerBase, *, max_length: int) -> Dataset:
    """The examples as token numbers, cut to ``max_length`` tokens, the longer sentence first.

    Raises:
        DataError: the tokenizer does not know the larger part of the text.
    """
    require_vocabulary(tokenizer, (sentence for text in examples.texts for sentence in text))
    columns = [list(column) for column in zip(*examples.texts, strict=True)]
    encoded = tokenizer(*columns, truncation=True, max_length=max_length)
    return Dataset.from_dict({**encoded, "label": list(examples.labels)})


def fine_tune(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: Dataset,
    *,
    schedule: Schedule,
    folder: Path,
) -> Training:
    """Fine-tune ``model``, in place.

    A training that is resumed after an interruption gives the same weights as one that was not.

    Args:
        data: of ``encode``.
        folder: a checkpoint is written here after each epoch; where there is one, training goes
            on from it.

    Returns:
        How long it took, and whether it was resumed.

    Raises:
        DataError: the loss or a weight is no longer finite.
    """
    trainer = _trainer(model, tokenizer, schedule=schedule, folder=folder, data=data)
    checkpoint = _last_checkpoint(folder)
    output = trainer.train(resume_from_checkpoint=checkpoint)
    if not all(is_finite(weight) for weight in model.parameters()):
        raise _diverged("weights are no longer finite", schedule.learning_rate)
    return Training(float(output.metrics["train_runtime"]), resumed=checkpoint is not None)


def predict(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: Dataset,
    *,
    schedule: Schedule,
    folder: Path,
) -> list[float]:
    """For each example the number of the likeliest label, or the predicted number.

    Raises:
        DataError: an output of the model is not finite.
    """
    trainer = _trainer(model, tokenizer, schedule=schedule, folder=folder)
    predicted = trainer.predict(data).predictions
    # Some models return more than logits, and these come first.
    first = predicted[0] if isinstance(predicted, tuple) else predicted
    logits = np.asarray(first, dtype=np.float64)
    if not np.isfinite(logits).all():
        raise DataError("the model's outputs are not finite (NaN or infinity)")
    chosen = logits.squeeze(-1) if logits.shape[-1] == 1 else logits.argmax(-1)
    return list(chosen.tolist())


def _trainer(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    *,
    schedule: Schedule,
    folder: Path,
    data: Dataset | None = None,
) -> Trainer:
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=schedule.epochs,
        per_device_train_batch_size=schedule.batch_size,
        per_device_eval_batch_size=max(64, schedule.batch_size),
        learning_rate=schedule.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=WARM_UP,
        weight_decay=0.0,
        # The Trainer would predict in that order too, and not put the predictions back in theirs.
        train_sampling_strategy="random" if data is None else "group_by_length",
        seed=schedule.seed,
        data_seed=schedule.seed,
        bf16=schedule.bf16,
        use_cpu=not torch.accelerator.is_available(),
        save_strategy="epoch",
        save_total_limit=1,
        logging_strategy="epoch",
        logging_nan_inf_filter=False,  # which leaves such a loss out of the mean
        report_to="none",
        disable_tqdm=False,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    if arguments.n_gpu > 1:
        # The Trainer would give each of several GPUs a batch of its own.
        arguments._n_gpu = 1
    return Trainer(
        model=model,
        args=arguments,
        train_dataset=data,
        data_collator=DataCollatorWithPadding(tokenizer),
        processing_class=tokenizer,
        callbacks=[_StopWhereItDiverges()],
    )


def _last_checkpoint(folder: Path) -> str | None:
    """The newest whole checkpoint; damaged ones are passed over with a warning.

    The trainer's state is written last: a checkpoint without it was interrupted.
    """
    states = folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}")
    written = [state.parent for state in states if _is_json(state)]
    for checkpoint in sorted(written, key=lambda path: int(path.name[11:]), reverse=True):
        damaged = _damaged_file(checkpoint)
        if damaged is None:
            return str(checkpoint)
        print(
            f"warning: {damaged}: corrupt or truncated; the training does not resume from it",
            file=sys.stderr,
        )
    return None


def _damaged_file(checkpoint: Path) -> Path | None:
    """A file of weights or of the trainer's that is not whole."""
    for path in sorted(checkpoint.iterdir()):
        try:
            if path.suffix in (".pt", ".pth", ".bin"):
                with zipfile.ZipFile(path) as archive:
                    if archive.testzip() is not None:
                        return path
            elif path.suffix == ".safetensors":
                with safe_open(path, framework="pt"):
                    pass
        except Exception:  # whatever a damaged file leads to
            return path
    return None


def _is_json(path: Path) -> bool:
    """Whether the file was written to its end."""
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True
