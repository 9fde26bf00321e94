"""The description of a task: its columns, its labels and its metrics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from headprune.errors import UsageError
from headprune.results.bleu_tokenizers import DEFAULT
from hf_plugin.tasks.examples import Examples


class TaskType(StrEnum):
    """The kind of output that a model has for an example."""

    single_label = "single-label"
    multi_label = "multi-label"
    regression = "regression"
    tokens = "tokens"
    images = "images"
    language_modelling = "language-modelling"
    translation = "translation"


@dataclass(frozen=True, kw_only=True)
class Task:
    """A task: what its classifiers read and predict, and how they are measured.

    GLUE's tasks are presets of it; a user's files fill the same fields.

    Attributes:
        name: the name of the task in records.
        type: the kind of output.
        text: the column of the sentence, or the columns of the two sentences, or the column of the
            words; empty for sentence pairs in two files.
        label: the column of the label, of the words' labels, or of the translation.
        labels: the labels, in the order of the model's outputs; empty in regression.
        metrics: names from ``hf_plugin.finetuning.metrics``; the first metric is reported.
        bleu_tokenizer: sacreBLEU's name of the tokeniser for the BLEU of translations.
    """

    name: str
    type: TaskType = TaskType.single_label
    text: tuple[str, ...]
    label: str = "label"
    labels: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ("accuracy",)
    bleu_tokenizer: str = DEFAULT

    @property
    def is_regression(self) -> bool:
        """True if a number is predicted."""
        return self.type is TaskType.regression

    @property
    def is_of_words(self) -> bool:
        """True if every word of a text has a label."""
        return self.type is TaskType.tokens

    @property
    def is_of_text(self) -> bool:
        """True if the tokens of a text are predicted, each from those before it."""
        return self.type is TaskType.language_modelling

    @property
    def is_translation(self) -> bool:
        """True if the model reads one text and writes another: a translation, or a summary."""
        return self.type is TaskType.translation

    @property
    def has_classifier(self) -> bool:
        """True if the model chooses among labels, or predicts a number."""
        return not self.is_of_text and not self.is_translation

    @property
    def is_of_images(self) -> bool:
        """True if the examples are images, each of which has a label."""
        return self.type is TaskType.images

    @property
    def metric_of_ablation(self) -> str:
        """Metric of ablation: accuracy, or the loss if a number or a text is predicted.

        Where every word has a label, it is the mean over texts of the share of right words.
        """
        return "loss" if self.is_regression or not self.has_classifier else "accuracy"


class LabelledData(Protocol):
    """A task with its examples."""

    @property
    def task(self) -> Task:
        """The task."""

    @property
    def splits(self) -> Sequence[str]:
        """Names of the splits: ``train``, ``dev``, ..."""

    def require(self, split: str) -> None:
        """Raise a UsageError if there is no such split."""

    def load(self, split: str) -> Examples:
        """Load the examples of a split.

        Raises:
            UsageError: there is no such split.
            DataError: the examples cannot be read.
        """

    def name(self, *, part: str = "") -> str:
        """Name of the data in signatures; ``part`` is the part of the training set, in brackets."""

    def name_of(self, split: str) -> str:
        """Name of one split in signatures."""


def dev_splits(data: LabelledData) -> tuple[str, ...]:
    """Splits to measure on: ``dev``, for MNLI also ``dev_mismatched``."""
    return tuple(split for split in data.splits if split != "train")


def require_dev(data: LabelledData) -> None:
    """Raise a UsageError if there is no split to measure on."""
    if not dev_splits(data):
        raise UsageError("give --dev too, a file with texts and labels to measure on")


MAX_LENGTH = 128
"""The number of tokens that examples are cut to by default."""


def cut_name(data: str, max_length: int) -> str:
    """The name of data in signatures, with the number of tokens that examples are cut to.

    The default has no place in it, as in signatures of older versions.

    >>> cut_name("glue.sst2", 64), cut_name("glue.sst2", 128)
    ('glue.sst2,64tok', 'glue.sst2')
    """
    return data if max_length == MAX_LENGTH else f"{data},{max_length}tok"
