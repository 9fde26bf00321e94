"""Distillation of Hugging Face models: a Trainer with a teacher.

>>> trainer = DistillationTrainer(
...     model, arguments, teacher=unpruned, distillation=Distillation(temperature=4.0),
...     train_dataset=data,
... )  # doctest: +SKIP
>>> trainer.train()  # doctest: +SKIP

The teacher is not a part of the model: no checkpoint contains it, and it draws no random numbers.
"""

from __future__ import annotations

import inspect
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import mse_loss
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from headprune.divergences import bernoulli_divergence, divergence
from headprune.errors import UsageError
from headprune.recovery.distillation import Distillation
from headprune.recovery.distillation_loss import hidden_difference, recorded, require_comparable
from hf_plugin.finetuning.models import load_classifier, require_length
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.scores.losses import labels_of_tokens_before
from hf_plugin.scores.model import HuggingFaceModel, is_language_model
from hf_plugin.tasks.predictions import IGNORED
from hf_plugin.tasks.task import Task
from hf_plugin.tokenizers import Reader, load_reader, set_padding
from hf_plugin.trainer import ResumableTrainer


@dataclass(frozen=True)
class Teacher:
    """A teacher, and how much the student follows it."""

    model: PreTrainedModel
    distillation: Distillation

    @property
    def fingerprint(self) -> str:
        """The fingerprint of the teacher's weights."""
        return model_fingerprint(self.model)


def load_teacher(
    name: str,
    task: Task,
    distillation: Distillation,
    *,
    reader: Reader,
    max_length: int,
) -> Teacher:
    """Load the teacher in the folder, or the hub's model, ``name``.

    Args:
        task: the task that the student is trained for.
        reader: the student's tokenizer or image processor.
        max_length: the largest number of tokens of an example.

    Raises:
        UsageError: a classifier with other labels or another vocabulary, or that takes fewer
            tokens.
        DataError: it cannot be read, or has no classifier.
    """
    model = load_classifier(name, task, untrained=False)
    own = load_reader(name, task)
    _require_same(own, reader, name=name)
    require_length(max_length, model, own, name=name)
    set_padding(model, own)
    return Teacher(model, distillation)


def _require_same(own: Reader, reader: Reader, *, name: str) -> None:
    """Check that a teacher's inputs are those of the student."""
    if isinstance(own, PreTrainedTokenizerBase) and isinstance(reader, PreTrainedTokenizerBase):
        if own.get_vocab() != reader.get_vocab():
            raise UsageError(
                f"--distill-from {name}: its vocabulary ({len(own)} entries) is not the model's "
                f"({len(reader)}); give a teacher with the same tokenizer, such as the unpruned "
                "model"
            )
    elif own.to_dict() != reader.to_dict():  # type: ignore[union-attr]
        raise UsageError(
            f"--distill-from {name}: its image processor is not the model's; give a teacher with "
            "the same one, such as the unpruned model"
        )


class DistillationTrainer(ResumableTrainer):
    """transformers' Trainer for a model that also learns the outputs of a teacher.

    The log has the mean divergence (``distill_loss``) and, where hidden states are compared, their
    mean difference (``hidden_loss``). Evaluation reports the loss of the task alone.

    Args:
        model: the student. Labels may be single or several ones for each example or token, or
            numbers.
        teacher: a model of the same task with the same tokenizer; for hidden states also of the
            same width, with its layers numbered alike.
        distillation: the weights of the loss.
        arguments, options: all other arguments of the Trainer.

    Raises:
        UsageError: models that cannot be compared, or the student as its own teacher.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        *arguments: Any,
        teacher: PreTrainedModel,
        distillation: Distillation | None = None,
        **options: Any,
    ) -> None:
        if teacher is model:
            raise UsageError(
                "the teacher is the model itself, which is trained; give a copy that was made "
                "before pruning, copy.deepcopy(model)"
            )
        if teacher.config.num_labels != model.config.num_labels:
            raise UsageError(
                f"the teacher has {teacher.config.num_labels} outputs, the model "
                f"{model.config.num_labels}"
            )
        super().__init__(model, *arguments, **options)
        self.distillation = distillation or Distillation()
        self.teacher = teacher.to(self.args.device).eval().requires_grad_(False)  # type: ignore[arg-type]
        self._accepted = set(inspect.signature(teacher.forward).parameters)
        self._losses: dict[str, list[Tensor]] = {}
        if self.distillation.hidden:
            self._student_parts = HuggingFaceModel(model)
            self._teacher_parts = HuggingFaceModel(teacher)
            require_comparable(self._student_parts.layers, self._teacher_parts.layers)

    def compute_loss(
        self,
        model: torch.nn.Module,
        inputs: dict[str, Tensor | Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of the task; in training, with its teacher's part."""
        chosen = self.distillation
        if not model.training or not chosen.needs_teacher:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        given = dict(inputs)  # the Trainer may take the labels out
        with ExitStack() as stack:
            if chosen.hidden:
                of_student = stack.enter_context(recorded(self._student_parts.layers))
                of_teacher = stack.enter_context(recorded(self._teacher_parts.layers))
            task_loss, outputs = super().compute_loss(model, inputs, True, num_items_in_batch)
            with torch.no_grad():
                accepted = {n: value for n, value in given.items() if n in self._accepted}
                targets = self.teacher(**accepted)["logits"]
        student: PreTrainedModel = self.accelerator.unwrap_model(model)
        parts = {
            "distill_loss": (chosen.weight, _divergence(student, outputs, targets, given, chosen))
        }
        if chosen.hidden:
            difference = hidden_difference(
                of_student,
                of_teacher,
                tokens=lambda component: self._student_parts.queries(component, given),
                batch_dim=self._student_parts.batch_dim,
            )
            parts["hidden_loss"] = (chosen.hidden, difference.to(targets.device))
        added = torch.stack([weight * part for weight, part in parts.values()]).sum()
        for name, (_, part) in parts.items():
            self._losses.setdefault(name, []).append(part.detach())
        added = self.scaled_like_task_loss(added, num_items_in_batch)
        loss = (1 - chosen.weight) * task_loss + added
        return (loss, outputs) if return_outputs else loss

    def log(self, logs: dict[str, float], *arguments: Any, **options: Any) -> None:
        """Log the means of the teacher's parts of the loss too."""
        if "loss" in logs:
            for name, values in self._losses.items():
                logs[name] = round(float(torch.stack(values).mean()), 4)
            self._losses.clear()
        super().log(logs, *arguments, **options)


def _divergence(
    student: PreTrainedModel,
    outputs: Any,
    targets: Tensor,
    inputs: dict[str, Any],
    chosen: Distillation,
) -> Tensor:
    """The mean divergence of a batch, by the kind of outputs that the student has.

    Args:
        outputs: of the student, with logits B x C or B x T x C.
        targets: the teacher's logits.
        inputs: the batch with its labels; outputs whose label is ``IGNORED`` are
            left out.
    """
    logits: Tensor = outputs["logits"]
    # transformers has filled in the type in the student's forward pass.
    kind = getattr(student.config, "problem_type", None)
    if kind == "regression":
        return mse_loss(logits.float(), targets.float())
    temperature = chosen.temperature
    if kind == "multi_label_classification":
        return bernoulli_divergence(logits, targets, temperature=temperature).mean()
    labels: Tensor = inputs["labels"]
    if is_language_model(student):
        labels = labels_of_tokens_before(labels)  # each output is about the next token
    each = divergence(logits, targets, temperature=temperature)  # B, or B x T
    return each[labels.ne(IGNORED)].mean()
