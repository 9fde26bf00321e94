"""The labels of a user's data, in the order of a model's outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from transformers import AutoConfig

from headprune.errors import DataError, UsageError
from hf_plugin.folder_check import check_config
from hf_plugin.places import place, reporting
from hf_plugin.tasks.predictions import SEPARATOR
from hf_plugin.tasks.tables import Table
from hf_plugin.tasks.task import TaskType

LabelsOf = Callable[[Any], list[str]]
"""Function from the label of a row, as it is written, to its labels."""

_FEW = 20
"""Up to this number of labels, their share of the examples is not checked."""

_SHOWN = 10
"""Number of labels that a message lists."""


@dataclass(frozen=True)
class Outputs:
    """The outputs of a classifier, as its config describes them.

    Attributes:
        model: its folder or name.
        labels: the name of each output.
        type: the type of task that they are for.
    """

    model: str
    labels: tuple[str, ...]
    type: TaskType

    @property
    def are_named(self) -> bool:
        """False if the names are those that transformers gives by default."""
        return any(label != f"LABEL_{number}" for number, label in enumerate(self.labels))


def outputs_of(model: str) -> Outputs:
    """Read a model's config.

    Raises:
        DataError: there is no model, or its config makes no sense.
    """
    folder = place(model)
    check_config(folder)
    with reporting(f"{model}: cannot load the model"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        labels = tuple(str(config.id2label[number]) for number in range(config.num_labels))
    type_ = TaskType.single_label
    if config.problem_type == "multi_label_classification":
        type_ = TaskType.multi_label
    elif config.problem_type == "regression" or len(labels) == 1:
        type_ = TaskType.regression
    return Outputs(model, labels, type_)


@dataclass(frozen=True)
class Vocabulary:
    """Labels in the order of a model's outputs.

    Attributes:
        labels: the labels.
        owner: whose labels they are, for messages.
    """

    labels: tuple[str, ...]
    owner: str

    def vectors(self, table: Table) -> list[tuple[int, ...]]:
        """For each row, 1 for each label that it has, and 0 for the others.

        Raises:
            DataError: see ``indices``.
        """
        rows = self.indices_of_rows(table, several_labels)
        return [tuple(int(n in row) for n in range(len(self.labels))) for row in rows]

    def indices(self, table: Table) -> list[int]:
        """The index of the label of each row.

        Raises:
            DataError: an unknown label; the message names its line or row.
        """
        return [index for (index,) in self.indices_of_rows(table, one_label)]

    def indices_of_rows(self, table: Table, labels_of: LabelsOf) -> list[list[int]]:
        """The indices of the labels of each row.

        A spelling that differs in upper and lower case alone is accepted. If none of the labels is
        known and all are whole numbers, they are the indices.

        Raises:
            DataError: an unknown label; the message names its line or row.
        """
        known = self._spellings()
        rows = [labels_of(label) for label in table.labels]
        distinct = dict.fromkeys(label for row in rows for label in row)
        if not any(self._index(known, label) is not None for label in distinct) and all(
            label.isascii() and label.isdigit() and int(label) < len(self.labels)
            for label in distinct
        ):
            pairs = ", ".join(f"{n} = {name}" for n, name in enumerate(self.labels[:_SHOWN]))
            print(
                f"{table.source}: labels are numbers of {self.owner} labels: {pairs}",
                file=sys.stderr,
            )
            return [[int(label) for label in row] for row in rows]
        numbers = {label: self._index(known, label) for label in distinct}
        indices: list[list[int]] = []
        for number, row in enumerate(rows):
            indices.append([])
            for label in row:
                index = numbers[label]
                if index is None:
                    raise DataError(
                        f"{table.where(number)}: label {label!r} is none of {self.owner}: "
                        f"{shown(self.labels)}"
                    )
                indices[-1].append(index)
        return indices

    def _spellings(self) -> Mapping[str, int]:
        """The index by case-folded spelling, of labels that still differ then."""
        folded = [label.casefold() for label in self.labels]
        return {label: number for number, label in enumerate(folded) if folded.count(label) == 1}

    def _index(self, known: Mapping[str, int], label: str) -> int | None:
        if label in self.labels:
            return self.labels.index(label)
        return known.get(label.casefold())


def vocabulary(
    tables: Mapping[str, Table],
    outputs: Outputs,
    *,
    given: Sequence[str],
    untrained: bool,
    labels_of: LabelsOf,
) -> Vocabulary:
    """Find the labels and their order.

    Args:
        tables: the data of each split.
        outputs: the outputs of the model.
        given: the labels in the order of the outputs, if the user named them.
        untrained: whether the model is to be fine-tuned on ``tables["train"]``.
        labels_of: ``one_label`` or ``several_labels``.

    Raises:
        UsageError: the model is fine-tuned, and its labels have no names; or names are given twice.
        DataError: the training data have one label alone, or far too many.
    """
    if given:
        if len(set(given)) < len(given):
            raise UsageError(f"--labels {','.join(given)}: a label is named twice")
        return Vocabulary(tuple(given), "--labels'")
    if untrained:
        train = tables["train"]
        labels = _labels_of(train, labels_of)
        if set(labels) == set(outputs.labels):
            labels = outputs.labels  # keep the classifier's weights with their labels
        return Vocabulary(labels, f"{train.source}'s")
    if outputs.are_named:
        return Vocabulary(outputs.labels, f"{outputs.model}'s")
    numbers = tuple(str(number) for number in range(len(outputs.labels)))
    for table in tables.values():
        rows = map(labels_of, table.labels)
        words = [label for row in rows for label in row if not label.isdigit()]
        if words:
            raise UsageError(
                f"{outputs.model}: its labels have no names ({shown(outputs.labels)}), so none of "
                f"them is known to be {words[0]!r}; give --labels, in the order of its outputs"
            )
    return Vocabulary(numbers, f"{outputs.model}'s")


def written_label(label: Any) -> str:
    """The text of a label; whole numbers have no decimal point."""
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    return str(label)


def one_label(label: Any) -> list[str]:
    """The label of an example that has one."""
    return [written_label(label)]


def several_labels(label: Any) -> list[str]:
    """The labels of an example that may have several: a list, or text with ``|`` between them."""
    if isinstance(label, list):
        return [written_label(each) for each in label]
    return [each.strip() for each in str(label).split(SEPARATOR) if each.strip()]


def shown(labels: Sequence[str]) -> str:
    """A list of labels for a message."""
    listed = ", ".join(labels[:_SHOWN])
    return f"{listed}, ... ({len(labels)})" if len(labels) > _SHOWN else listed


def _labels_of(train: Table, labels_of: LabelsOf) -> tuple[str, ...]:
    """The labels of training data: in the order that a data set gives them, else sorted."""
    if train.label_names:
        return train.label_names
    labels = list(dict.fromkeys(label for row in train.labels for label in labels_of(row)))
    if not labels:
        raise DataError(f"{train.source}: no example has a label")
    if len(labels) == 1 and labels_of is one_label:
        raise DataError(f"{train.source}: all examples have one label, {labels[0]!r}")
    if len(labels) > max(_FEW, len(train.labels) / 2):
        raise DataError(
            f"{train.source}: {len(labels)} labels in {len(train.labels)} examples; name the "
            "column of the labels, or give --task-type regression to predict numbers"
        )
    if all(label.isascii() and label.isdigit() for label in labels):
        return tuple(sorted(labels, key=int))
    return tuple(sorted(labels))
