"""Fine-tuning and prediction with transformers' Trainer.

AdamW without weight decay, a learning rate that rises over the first tenth of the updates and falls
linearly to 0, gradients clipped to norm 1; batches of sentences of like length, padded to their
longest. What counts is the model after the last epoch: none is chosen on the development set.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from transformers import (
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
)
from transformers.trainer import TRAINER_STATE_NAME

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
) -> float:
    """Fine-tune ``model``, in place.

    Args:
        data: of ``encode``.
        folder: a checkpoint is written here after each epoch; where there is one, training goes
            on from it.

    Returns:
        Seconds that it took, without those before a checkpoint it went on from.
    """
    trainer = _trainer(model, tokenizer, schedule=schedule, folder=folder, data=data)
    output = trainer.train(resume_from_checkpoint=_last_checkpoint(folder))
    return float(output.metrics["train_runtime"])


def predict(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: Dataset,
    *,
    schedule: Schedule,
    folder: Path,
) -> list[float]:
    """For each example the number of the likeliest label, or the predicted number."""
    trainer = _trainer(model, tokenizer, schedule=schedule, folder=folder)
    predicted = trainer.predict(data).predictions
    # Some models return more than logits, and these come first.
    first = predicted[0] if isinstance(predicted, tuple) else predicted
    logits = np.asarray(first, dtype=np.float64)
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
    )


def _last_checkpoint(folder: Path) -> str | None:
    """The newest checkpoint that is whole: the trainer's state is written last."""
    states = folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}")
    whole = [state.parent for state in states if _is_json(state)]
    newest = max(whole, key=lambda path: int(path.name[11:]), default=None)
    return None if newest is None else str(newest)


def _is_json(path: Path) -> bool:
    """Whether the file was written to its end."""
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True
