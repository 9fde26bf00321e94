"""Fine-tuning and prediction with transformers' Trainer.

The optimizer is AdamW, by default without weight decay. The learning rate rises over the first
tenth of the updates and falls linearly to 0; gradients are clipped to norm 1. Batches consist of
sentences of similar length, padded to the longest. The result is the model after the last epoch: no
epoch is selected on the development set.
"""

from __future__ import annotations

import json
import math
import random
import sys
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from safetensors import safe_open
from torch import Tensor
from transformers import (
    DataCollator,
    DataCollatorForSeq2Seq,
    DataCollatorWithPadding,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)
from transformers.integrations.integration_utils import TensorBoardCallback
from transformers.trainer import TRAINER_STATE_NAME

from headprune.bfloat16 import warn_if_slow
from headprune.errors import DataError, UsageError
from headprune.recovery.variant import GateTraining
from headprune.results.curves import Curve
from headprune.weights import is_finite
from hf_plugin.distillation import DistillationTrainer, Teacher
from hf_plugin.gates import L0Trainer
from hf_plugin.image_processors import ImageCollator
from hf_plugin.scores.losses import predicted_tokens, text_losses
from hf_plugin.tasks.examples import Examples
from hf_plugin.tasks.predictions import IGNORED, predicted
from hf_plugin.tasks.task import TaskType
from hf_plugin.tokenizers import Reader, as_tokenizer, padding_tokenizer, require_vocabulary
from hf_plugin.trainer import ResumableTrainer

WARM_UP = 0.1
"""Share of the updates over which the learning rate rises."""

GATES_WARM_UP = 0.5
"""Share of the updates during which the target of learned gates rises."""


TEXTS_AT_ONCE = 8
"""Batch size of language models where it changes nothing but the memory."""


@dataclass(frozen=True, kw_only=True)
class Schedule:
    """Schedule of a fine-tuning.

    Attributes:
        epochs: number of epochs.
        batch_size: number of examples in a batch.
        learning_rate: the highest learning rate.
        seed: seed of the data order and dropout.
        bf16: whether to compute in bfloat16 (autocast).
        weight_decay: of all weights but biases and layer norms.
        adam_epsilon: the term that keeps AdamW from dividing by 0.
    """

    epochs: float
    batch_size: int
    learning_rate: float
    seed: int
    bf16: bool = False
    weight_decay: float = 0.0
    adam_epsilon: float = 1e-8


@dataclass(frozen=True)
class Training:
    """A finished fine-tuning.

    Attributes:
        seconds: duration, since the checkpoint from which it was resumed if it was.
        resumed: whether it was interrupted and resumed.
        curve: the loss of each epoch.
    """

    seconds: float
    resumed: bool
    curve: Curve = Curve()


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
        """Check the mean loss of the epoch."""
        loss = (logs or {}).get("loss")
        if loss is not None and not math.isfinite(float(loss)):
            how = f"the loss is {loss} in epoch {math.ceil(state.epoch or 0)}"
            raise _diverged(how, args.learning_rate)


def encode(examples: Examples, reader: Reader, *, max_length: int) -> Dataset:
    """Convert examples to token numbers; the longer sentence is cut first, to ``max_length``.

    The label of a word is that of its first token; other tokens have the label -100. Words beyond
    ``max_length`` are left out, with a warning. Texts that are predicted themselves are cut into
    pieces of ``max_length`` tokens, each of which is a row of its own.

    Images are read when they are needed: their rows have the path ``image``.

    Returns:
        Data with the column ``label``; with ``labels`` where words have labels, or texts are
        predicted: the tokens of translations, each of which is cut to ``max_length`` too.

    Raises:
        DataError: the tokenizer does not know the larger part of the text, or all texts to predict
            have fewer than two tokens.
        UsageError: ``max_length`` is below 2 and texts are predicted.
    """
    if examples.images is not None:
        paths = [str(examples.images / path) for (path,) in examples.texts]
        return Dataset.from_dict({"image": paths, "label": list(examples.labels)})
    tokenizer = as_tokenizer(reader)
    require_vocabulary(tokenizer, (sentence for text in examples.texts for sentence in text))
    if examples.of_words:
        return _encode_words(examples, tokenizer, max_length=max_length)
    if examples.of_text:
        return _encode_texts(examples, tokenizer, max_length=max_length)
    if examples.of_translation:
        sources = [text for (text,) in examples.texts]
        targets = list(examples.labels)
        pairs = tokenizer(sources, text_target=targets, truncation=True, max_length=max_length)
        return Dataset.from_dict({**pairs})
    columns = [list(column) for column in zip(*examples.texts, strict=True)]
    encoded = tokenizer(*columns, truncation=True, max_length=max_length)
    labels = [
        [float(each) for each in label] if isinstance(label, tuple) else label
        for label in examples.labels
    ]
    return Dataset.from_dict({**encoded, "label": labels})


def count_cut(examples: Examples, encoded: Dataset, reader: Reader, *, max_length: int) -> int:
    """The number of texts, or pairs of texts, that ``encode`` has cut.

    Words that were left out and texts that are predicted themselves are not counted.
    """
    if examples.images is not None or examples.of_words or examples.of_text:
        return 0
    tokenizer = as_tokenizer(reader)
    longest = (n for n, tokens in enumerate(encoded["input_ids"]) if len(tokens) >= max_length)
    lengths = (len(tokenizer(*examples.texts[n], verbose=False)["input_ids"]) for n in longest)
    return sum(length > max_length for length in lengths)


def _encode_words(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, *, max_length: int
) -> Dataset:
    encoded = tokenizer(
        [list(words) for words in examples.texts],
        is_split_into_words=True,
        truncation=True,
        max_length=max_length,
    )
    labels: list[list[int]] = []
    for number, of_words in enumerate(examples.labels):
        before: int | None = None
        labels.append([])
        for word in encoded.word_ids(number):
            is_first = word is not None and word != before
            labels[-1].append(of_words[word] if is_first else IGNORED)
            before = word
    found = [len(row) - row.count(IGNORED) for row in labels]
    missing = [len(row) - n for row, n in zip(examples.labels, found, strict=True)]
    if any(missing):
        print(
            f"warning: {sum(missing)} of {sum(map(len, examples.labels))} words, in "
            f"{sum(map(bool, missing))} of {len(missing)} texts, are left out: they have no token "
            f"among the first {max_length}",
            file=sys.stderr,
        )
    return Dataset.from_dict({**encoded, "labels": labels})


def _encode_texts(
    examples: Examples, tokenizer: PreTrainedTokenizerBase, *, max_length: int
) -> Dataset:
    if max_length < 2:
        raise UsageError(
            f"max length {max_length}: a token is predicted from those before it; give 2 or more"
        )
    texts = [text for (text,) in examples.texts]
    pieces = [
        tokens[start : start + max_length]
        for tokens in tokenizer(texts, verbose=False)["input_ids"]
        for start in range(0, len(tokens), max_length)
    ]
    pieces = [piece for piece in pieces if len(piece) > 1]  # a first token is not predicted
    if not pieces:
        raise DataError(f"{len(texts)} texts, none of which has two tokens; give longer ones")
    return Dataset.from_dict(
        {
            "input_ids": pieces,
            "attention_mask": [[1] * len(piece) for piece in pieces],
            "labels": pieces,
        }
    )


def labels_of(examples: Examples, data: Dataset) -> Sequence[Any]:
    """The labels to compare predictions with; those of words that were left out are missing.

    Of texts that are predicted themselves, they are the numbers of predicted tokens.

    Args:
        examples: the examples.
        data: what ``encode`` returns for them.
    """
    if examples.of_text:
        return [predicted_tokens(row) for row in data["labels"]]
    if not examples.of_words:
        return examples.labels
    return [tuple(label for label in row if label != IGNORED) for row in data["labels"]]


def collator_for(data: Dataset, reader: Reader) -> DataCollator:
    """The function that pads encoded examples, and the labels of their tokens, in a batch.

    Of images, it reads them.
    """
    if "image" in data.column_names:
        return ImageCollator(reader)
    tokenizer = padding_tokenizer(as_tokenizer(reader))
    # Other data sets call the one label of a text `labels` too.
    if "labels" in data.column_names and isinstance(data[0]["labels"], list):
        return DataCollatorForSeq2Seq(tokenizer)  # pads labels by themselves
    return DataCollatorWithPadding(tokenizer)


def fine_tune(
    model: PreTrainedModel,
    reader: Reader,
    data: Dataset,
    *,
    schedule: Schedule,
    folder: Path,
    teacher: Teacher | None = None,
    gates: GateTraining | None = None,
    callbacks: Sequence[TrainerCallback] = (),
) -> Training:
    """Fine-tune ``model`` in place.

    A training that is resumed after an interruption gives the same weights as an uninterrupted one.

    Args:
        model: the classifier.
        reader: its tokenizer or image processor.
        data: encoded examples, from ``encode``.
        schedule: the schedule.
        folder: receives a checkpoint after each epoch; training resumes from the last one.
        teacher: the model that ``model`` learns from besides the labels, if any.
        gates: the learned gates that ``model`` gets, if any; they are not closed here.
        callbacks: further callbacks of the Trainer.

    Raises:
        UsageError: a teacher whose hidden states cannot be compared.
        DataError: the loss or a weight is no longer finite.
    """
    trainer = _trainer(
        model, reader, schedule=schedule, folder=folder, data=data, teacher=teacher, gates=gates
    )
    for callback in callbacks:
        trainer.add_callback(callback)
    checkpoint = _last_checkpoint(folder)
    output = trainer.train(resume_from_checkpoint=checkpoint)
    if not all(is_finite(weight) for weight in model.parameters()):
        raise _diverged("weights are no longer finite", schedule.learning_rate)
    losses = tuple(
        (int(entry["step"]), float(entry["loss"]))
        for entry in trainer.state.log_history
        if "loss" in entry
    )
    return Training(
        float(output.metrics["train_runtime"]),
        resumed=checkpoint is not None,
        curve=Curve(train=losses),
    )


def to_tensorboard(folder: Path) -> TrainerCallback:
    """The callback that writes what the Trainer logs to a folder for TensorBoard.

    Raises:
        ModuleNotFoundError: the package tensorboard is not installed.
    """
    from torch.utils.tensorboard import SummaryWriter

    return TensorBoardCallback(SummaryWriter(log_dir=str(folder)))


class AfterEpochs(TrainerCallback):
    """Calls a function with the number of each epoch but the last, once the epoch has ended.

    Random numbers that the function draws do not change the training.
    """

    def __init__(self, function: Callable[[int], None]) -> None:
        self._function = function

    def on_epoch_end(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any
    ) -> None:
        """Call the function."""
        if state.global_step < state.max_steps:
            with _random_states_kept():
                self._function(round(state.epoch or 0))


@contextmanager
def _random_states_kept() -> Iterator[None]:
    """Restore the random states of Python, NumPy and torch after the block."""
    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng():
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def predict(
    model: PreTrainedModel,
    reader: Reader,
    data: Dataset,
    *,
    schedule: Schedule,
    folder: Path,
    type_: TaskType,
) -> list[Any]:
    """Predict each example in float32; see ``hf_plugin.tasks.predictions.predicted``.

    Of a text, the prediction is the sum of -log p over its tokens.

    Raises:
        DataError: an output of the model is not finite.
    """
    trainer = _trainer(
        model,
        reader,
        schedule=replace(schedule, bf16=False),
        folder=folder,
        data=data,
        for_training=False,
        of_text=type_ is TaskType.language_modelling,
    )
    order = _by_length(data)
    with _without_autocast(model):
        output_of_trainer = trainer.predict(data.select(order))
    restored = np.argsort(order)
    logits = np.asarray(output_of_trainer.predictions, dtype=np.float64)[restored]
    if not np.isfinite(logits).all():
        raise DataError("the model's outputs are not finite (NaN or infinity)")
    if type_ is TaskType.language_modelling:
        return list(logits.tolist())
    labels = torch.as_tensor(np.asarray(output_of_trainer.label_ids)[restored])
    return predicted(torch.from_numpy(logits), type_, labels=labels)


@contextmanager
def _without_autocast(model: PreTrainedModel) -> Iterator[None]:
    """Run the model without the autocast that a training in bfloat16 has wrapped it in.

    accelerate leaves it there, as an attribute of the model, which hides the method of its class.
    """
    wrapped = model.__dict__.pop("forward", None)
    try:
        yield
    finally:
        if wrapped is not None:
            model.forward = wrapped


def _by_length(data: Dataset) -> list[int]:
    """The order of examples from long to short, in which batches have the least padding."""
    if "input_ids" not in data.column_names:
        return list(range(len(data)))
    lengths = np.array([len(tokens) for tokens in data["input_ids"]])
    return list(np.argsort(-lengths, kind="stable").tolist())


def _trainer(
    model: PreTrainedModel,
    reader: Reader,
    *,
    schedule: Schedule,
    folder: Path,
    data: Dataset,
    for_training: bool = True,
    of_text: bool = False,
    teacher: Teacher | None = None,
    gates: GateTraining | None = None,
) -> Trainer:
    is_of_images = "image" in data.column_names
    by_length = for_training and not is_of_images
    on_cpu = not torch.accelerator.is_available()
    if schedule.bf16 and on_cpu:
        warn_if_slow("--bf16")
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=schedule.epochs,
        per_device_train_batch_size=schedule.batch_size,
        # A language model has an output for each entry of its vocabulary, for each token.
        per_device_eval_batch_size=TEXTS_AT_ONCE if of_text else max(64, schedule.batch_size),
        learning_rate=schedule.learning_rate,
        lr_scheduler_type="linear",
        warmup_steps=WARM_UP,
        weight_decay=schedule.weight_decay,
        adam_epsilon=schedule.adam_epsilon,
        # When predicting, the Trainer would group by length too, without restoring the order.
        train_sampling_strategy="group_by_length" if by_length else "random",
        remove_unused_columns=not is_of_images,  # the collator reads the images of paths
        seed=schedule.seed,
        data_seed=schedule.seed,
        bf16=schedule.bf16,
        use_cpu=on_cpu,
        save_strategy="epoch",
        save_total_limit=1,
        logging_strategy="epoch",
        logging_nan_inf_filter=False,  # the filter would leave NaN and infinity out of the mean
        report_to="none",
        disable_tqdm=False,
        dataloader_pin_memory=torch.cuda.is_available(),
    )
    if arguments.n_gpu > 1:
        # With several GPUs the Trainer would give each one its own batch.
        arguments._n_gpu = 1
    common: dict[str, Any] = dict(
        args=arguments,
        train_dataset=data if for_training else None,
        data_collator=collator_for(data, reader),
        processing_class=reader,
        callbacks=[_StopWhereItDiverges()],
        preprocess_logits_for_metrics=_text_losses if of_text else _logits_alone,
    )
    if gates is not None:
        common["gates"] = ",".join(gates.components)
        if gates.speed is not None:
            common["gates_speed"] = gates.speed
        if gates.budget is None:
            return L0Trainer(model, l0_lambda=gates.l0_lambda, **common)
        updates = math.ceil(len(data) / schedule.batch_size) * schedule.epochs
        return L0Trainer(
            model,
            l0_target=str(gates.budget),
            l0_warmup_updates=int(updates * GATES_WARM_UP),
            **common,
        )
    if teacher is None:
        return ResumableTrainer(model, **common)
    return DistillationTrainer(
        model, teacher=teacher.model, distillation=teacher.distillation, **common
    )


def _logits_alone(outputs: Any, _: Tensor) -> Tensor:
    """The logits, without the hidden states that some models (BART) return after them.

    Those of all examples would fill the memory.
    """
    first: Tensor = outputs[0] if isinstance(outputs, tuple) else outputs
    return first


def _text_losses(logits: Any, labels: Tensor) -> Tensor:
    """The losses of texts in the place of their logits, all of which would fill the memory."""
    return text_losses(logits[0] if isinstance(logits, tuple) else logits, labels)


def _last_checkpoint(folder: Path) -> str | None:
    """Find the newest complete checkpoint; damaged ones are skipped with a warning.

    The trainer's state is written last, so a checkpoint without it is incomplete.
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
    """Find a damaged file in a checkpoint; None if there is none."""
    for path in sorted(checkpoint.iterdir()):
        try:
            if path.suffix in (".pt", ".pth", ".bin"):
                with zipfile.ZipFile(path) as archive:
                    if archive.testzip() is not None:
                        return path
            elif path.suffix == ".safetensors":
                with safe_open(path, framework="pt"):
                    pass
        except Exception:  # a damaged file may cause any error
            return path
    return None


def _is_json(path: Path) -> bool:
    """Check that a JSON file is complete."""
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except ValueError:
        return False
    return True
