"""Predictions from the outputs of a classifier."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from hf_plugin.tasks.task import Task, TaskType

IGNORED = -100
"""The label of tokens that do not count, as in transformers."""

SEPARATOR = "|"
"""The character between the labels of one example, in csv files and in files of predictions."""


def predicted(logits: Tensor, type_: TaskType, *, labels: Tensor | None = None) -> list[Any]:
    """Predict each example of a batch.

    Args:
        logits: B x C, or B x 1 in regression; for words B x T x C.
        type_: the type of the task.
        labels: for words, the labels of the tokens: B x T. Tokens without a label (-100) are no
            first tokens of words.

    Returns:
        For each example, the index of the most likely label, the number, or, with several labels,
        a tuple of 0 and 1 for each label: 1 where its probability is above one half. For words, a
        tuple of the index of each word's most likely label.
    """
    if type_ is TaskType.tokens:
        assert labels is not None
        return labels_of_words(logits.argmax(-1), labels)
    if type_ is TaskType.regression:
        return list(logits.squeeze(-1).tolist())
    if type_ is TaskType.multi_label:
        return [tuple(row) for row in logits.gt(0).int().tolist()]
    return list(logits.argmax(-1).tolist())


def labels_of_words(values: Tensor, labels: Tensor) -> list[Any]:
    """For each example, the values of the first tokens of its words.

    Args:
        values: B x T.
        labels: see ``predicted``.
    """
    return [
        tuple(row[has_label].tolist())
        for row, has_label in zip(values, labels.ne(IGNORED), strict=True)
    ]


def single(values: Sequence[Any], task: Task) -> Sequence[Any]:
    """Predictions or labels one by one: those of the words, where words have labels."""
    return [each for row in values for each in row] if task.is_of_words else values


def table(predictions: Sequence[Any], labels: Sequence[Any], task: Task) -> str:
    """The content of a file of predictions: tab-separated, one line an example.

    Columns are ``index``, ``prediction`` and ``label``; of language models ``loss`` (the sum of
    -log p over the tokens) and ``tokens`` (their number) in place of the last two.
    """
    columns = "loss\ttokens" if task.is_of_text else "prediction\tlabel"
    rows = zip(predictions, labels, strict=True)
    lines = [
        "\t".join([str(index), *(on_one_line(_written(value, task)) for value in row)]) + "\n"
        for index, row in enumerate(rows)
    ]
    return f"index\t{columns}\n" + "".join(lines)


def lines(texts: Sequence[str]) -> str:
    """The content of a file of translations, one a line."""
    return "".join(f"{on_one_line(text)}\n" for text in texts)


def _written(value: Any, task: Task) -> str:
    """A prediction or label in the words of the task."""
    if task.is_regression or task.is_of_text:
        return f"{value:.9g}"
    if task.is_translation:
        return str(value)
    if task.type is TaskType.multi_label:
        return SEPARATOR.join(
            label for label, is_on in zip(task.labels, value, strict=True) if is_on
        )
    if task.is_of_words:
        return " ".join(task.labels[each] for each in value)
    return task.labels[int(value)]


def on_one_line(text: str) -> str:
    """The text with spaces in place of the characters that end cells and lines."""
    return text.translate(dict.fromkeys(map(ord, "\t\r\n"), " "))
