"""Predictions from the outputs of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hf_plugin.tasks.task import Task, TaskType

SEPARATOR = "|"
"""The character between the labels of one example, in csv files and in files of predictions."""


def predicted(logits: Tensor, type_: TaskType) -> list[Any]:
    """Predict each example of a batch.

    Args:
        logits: B x C, or B x 1 in regression.
        type_: the type of the task.

    Returns:
        For each example, the index of the most likely label, the number, or, with several labels,
        a tuple of 0 and 1 for each label: 1 where its probability is above one half.
    """
    if type_ is TaskType.regression:
        return list(logits.squeeze(-1).tolist())
    if type_ is TaskType.multi_label:
        return [tuple(row) for row in logits.gt(0).int().tolist()]
    return list(logits.argmax(-1).tolist())


def written(value: Any, task: Task) -> str:
    """A prediction or label in the words of the task, for files."""
    if task.type is TaskType.regression:
        return f"{value:.9g}"
    if task.type is TaskType.multi_label:
        chosen: Sequence[str] = [
            label for label, is_on in zip(task.labels, value, strict=True) if is_on
        ]
        return SEPARATOR.join(chosen)
    return task.labels[int(value)]
