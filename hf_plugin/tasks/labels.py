"""The labels of a user's data, in the order of a model's outputs."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from transformers import AutoConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
)

from headprune.errors import DataError, UsageError
from hf_plugin.folder_check import check_config
from hf_plugin.head_names import CLASS_PREFIX, FAMILIES, has_one_stack
from hf_plugin.places import place, reporting
from hf_plugin.tasks.heads import require_readable
from hf_plugin.tasks.predictions import SEPARATOR
from hf_plugin.tasks.tables import Table, plain_label
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
        family: the model's type, that of the unpruned model where it is pruned.
        is_decoder: whether its config says that a token attends to those before it alone.
    """

    model: str
    labels: tuple[str, ...]
    type: TaskType
    family: str = ""
    is_decoder: bool = False

    @property
    def are_decoders(self) -> bool:
        """True if the model can predict a text token by token.

        It is of a family of decoders, or one of BERT's family as a decoder.
        """
        if self.family not in FAMILIES:
            return False
        return "ES" not in FAMILIES[self.family] or (self.is_decoder and has_one_stack(self.family))

    @property
    def write_texts(self) -> bool:
        """True if the model can read one text and write another: an encoder with a decoder."""
        return self.family in MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES

    @property
    def are_named(self) -> bool:
        """False if the names are those that transformers gives by default."""
        return any(label != f"LABEL_{number}" for number, label in enumerate(self.labels))


def outputs_of(model: str) -> Outputs:
    """Read a model's config.

    Raises:
        DataError: there is no model, or its config makes no sense.
        UsageError: a family that takes no labelled data.
    """
    folder = place(model)
    check_config(folder)
    with reporting(f"{model}: cannot load the model"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        labels = tuple(str(config.id2label[number]) for number in range(config.num_labels))
    family = config.model_type
    require_readable(family, name=model)
    type_ = TaskType.single_label
    # The classes of pruned models are named after the stock ones.
    architectures = [name.removeprefix(CLASS_PREFIX) for name in config.architectures or ()]
    decodes = bool(getattr(config, "is_decoder", False))
    if any(name.endswith("ForImageClassification") for name in architectures):
        type_ = TaskType.images
    elif any(name.endswith("ForTokenClassification") for name in architectures):
        type_ = TaskType.tokens
    elif any(_is_language_model(name, family) for name in architectures):
        type_ = TaskType.language_modelling
    elif MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES.get(family) in architectures:
        type_ = TaskType.translation
    elif config.problem_type == "multi_label_classification":
        type_ = TaskType.multi_label
    elif config.problem_type == "regression" or len(labels) == 1:
        type_ = TaskType.regression
    return Outputs(model, labels, type_, family, is_decoder=decodes)


def _is_language_model(name: str, family: str) -> bool:
    """Tell if a class of transformers predicts the next token of a text.

    Most such classes are named alike; BertGenerationDecoder is not. XLM has one class for this and
    for masked tokens.
    """
    if name == MODEL_FOR_MASKED_LM_MAPPING_NAMES.get(family):
        return False
    is_named_so = name.endswith(("ForCausalLM", "LMHeadModel"))
    return is_named_so or name == MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.get(family)


@dataclass(frozen=True)
class Vocabulary:
    """Labels in the order of a model's outputs.

    Attributes:
        labels: the labels.
        owner: whose labels they are, for messages.
        written: the labels as the data spell them, in the same order; empty for ``labels``.
    """

    labels: tuple[str, ...]
    owner: str
    written: tuple[str, ...] = field(default=(), kw_only=True)

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

    def indices_of_words(self, table: Table) -> list[tuple[int, ...]]:
        """For each row, the index of the label of each word.

        Raises:
            DataError: see ``indices``.
        """
        return [tuple(row) for row in self.indices_of_rows(table, labels_of_words)]

    def indices_of_rows(self, table: Table, labels_of: LabelsOf) -> list[list[int]]:
        """The indices of the labels of each row.

        A spelling that differs in upper and lower case alone is accepted.

        Raises:
            DataError: an unknown label; the message names its line or row.
        """
        rows = [labels_of(label) for label in table.labels]
        distinct = dict.fromkeys(label for row in rows for label in row)
        numbers = {label: self._index(label) for label in distinct}
        indices: list[list[int]] = []
        for number, row in enumerate(rows):
            indices.append([])
            for label in row:
                index = numbers[label]
                if index is None:
                    raise DataError(
                        f"{table.where(number)}: label {label!r} is none of {self.owner}: "
                        f"{shown(self._spelled)}"
                    )
                indices[-1].append(index)
        return indices

    def knows(self, label: str) -> bool:
        """True if a label is one of these, in any spelling."""
        return self._index(label) is not None

    @property
    def _spelled(self) -> tuple[str, ...]:
        return self.written or self.labels

    @cached_property
    def _spellings(self) -> Mapping[str, int]:
        """The index by case-folded spelling, of labels that still differ then."""
        folded = [_folded(label) for label in self._spelled]
        return {label: number for number, label in enumerate(folded) if folded.count(label) == 1}

    def _index(self, label: str) -> int | None:
        if label in self._spelled:
            return self._spelled.index(label)
        return self._spellings.get(_folded(label))


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
        labels_of: ``one_label``, ``several_labels`` or ``labels_of_words``.

    Raises:
        UsageError: the model is fine-tuned, and its labels have no names, or the data have numbers
            of which nothing says what they stand for; or names are given twice, or in another order
            than those of a classifier that is trained further.
        DataError: the training data have one label alone, or far too many.
    """
    if given:
        if len(set(given)) < len(given):
            raise UsageError(f"--labels {','.join(given)}: a label is named twice")
        folded = [_folded(label) for label in given]
        own = [_folded(label) for label in outputs.labels]
        if untrained and sorted(folded) == sorted(own) and folded != own:
            raise UsageError(
                f"--labels {','.join(given)}: {outputs.model} has these labels in another order, "
                f"{shown(outputs.labels)}; leave --labels out, so that each keeps its weights"
            )
        # Other words for a fine-tuned model's labels stand for them in their order.
        are_other_words = not _all_folded(given) & _all_folded(outputs.labels)
        same_number = len(given) == len(outputs.labels)
        names = Vocabulary(tuple(given), "--labels'")
        if not untrained and outputs.are_named and same_number and are_other_words:
            names = replace(names, labels=outputs.labels, written=names.labels)
        return _with_numbers(names, tables, labels_of)
    if untrained:
        train = tables["train"]
        labels = _labels_of(train, labels_of, writes_texts=outputs.write_texts)
        if set(labels) == set(outputs.labels) or _same_folded(labels, outputs.labels):
            labels = outputs.labels  # keep the classifier's weights with their labels
        elif outputs.are_named and labels == _numbers(len(outputs.labels)):
            return _with_numbers(
                Vocabulary(outputs.labels, f"{outputs.model}'s"), tables, labels_of
            )
        return Vocabulary(labels, f"{train.source}'s")
    names = Vocabulary(outputs.labels, f"{outputs.model}'s")
    distinct = _distinct(tables, labels_of)
    if outputs.are_named or (distinct and all(map(names.knows, distinct))):
        return _with_numbers(names, tables, labels_of)
    words = [label for label in distinct if not label.isdigit()]
    if words:
        raise UsageError(
            f"{outputs.model}: its labels have no names ({shown(outputs.labels)}), so none of "
            f"them is known to be {words[0]!r}; give --labels, in the order of its outputs"
        )
    _require_zero(distinct, names, tables)
    return Vocabulary(_numbers(len(outputs.labels)), f"{outputs.model}'s")


def _with_numbers(
    names: Vocabulary, tables: Mapping[str, Table], labels_of: LabelsOf
) -> Vocabulary:
    """Accept indices in place of names: whole numbers from 0, where the data have nothing else.

    Raises:
        UsageError: whole numbers without 0, which may as well count from 1.
    """
    distinct = _distinct(tables, labels_of)
    if not distinct or not all(label.isascii() and label.isdigit() for label in distinct):
        return names
    if any(map(names.knows, distinct)):
        return names
    _require_zero(distinct, names, tables)
    indices = _numbers(len(names.labels))
    if not set(distinct) <= set(indices):
        return names
    pairs = ", ".join(f"{n} = {name}" for n, name in enumerate(names.labels[:_SHOWN]))
    print(
        f"{_sources(tables)}: labels are numbers of {names.owner} labels: {pairs}", file=sys.stderr
    )
    return replace(names, written=indices)


def _numbers(count: int) -> tuple[str, ...]:
    """The numbers from 0, as labels."""
    return tuple(str(number) for number in range(count))


def _require_zero(distinct: Sequence[str], names: Vocabulary, tables: Mapping[str, Table]) -> None:
    if distinct and "0" not in distinct:
        raise UsageError(
            f"{_sources(tables)}: labels are numbers without 0, "
            f"{shown(sorted(distinct, key=int))}, so nothing says which of {names.owner} labels "
            f"they are ({shown(names.labels)}); give --labels with all numbers, in that order"
        )


def _sources(tables: Mapping[str, Table]) -> str:
    return ", ".join(table.source for table in tables.values())


def _distinct(tables: Mapping[str, Table], labels_of: LabelsOf) -> list[str]:
    """The labels that occur, in the order of their first occurrence."""
    labels = (label for table in tables.values() for label in table.labels)
    return list(dict.fromkeys(each for label in labels for each in labels_of(label)))


def _folded(label: str) -> str:
    return str(plain_label(label)).casefold()


def _all_folded(labels: Sequence[str]) -> set[str]:
    return {_folded(label) for label in labels}


def _same_folded(labels: Sequence[str], others: Sequence[str]) -> bool:
    """True if each label is another one in another spelling."""
    folded = _all_folded(labels)
    return len(folded) == len(labels) == len(others) and folded == _all_folded(others)


def one_label(label: Any) -> list[str]:
    """The label of an example that has one."""
    return [str(label)]


def several_labels(label: Any) -> list[str]:
    """The labels of an example that may have several: a list, or text with ``|`` between them."""
    if isinstance(label, list):
        return [str(each) for each in label]
    return [str(plain_label(each)) for each in str(label).split(SEPARATOR) if each.strip()]


def labels_of_words(labels: Any) -> list[str]:
    """The labels of an example's words."""
    return [str(each) for each in labels]


def shown(labels: Sequence[str]) -> str:
    """A list of labels for a message."""
    listed = ", ".join(labels[:_SHOWN])
    return f"{listed}, ... ({len(labels)})" if len(labels) > _SHOWN else listed


def _labels_of(train: Table, labels_of: LabelsOf, *, writes_texts: bool) -> tuple[str, ...]:
    """The labels of training data: in the order that a data set gives them, else sorted.

    Labels that differ in upper and lower case alone are different labels, with a warning.

    Args:
        train: the training data.
        labels_of: see ``vocabulary``.
        writes_texts: whether the model can write the labels as texts, for an error message.
    """
    if train.label_names:
        return train.label_names
    labels = list(dict.fromkeys(label for row in train.labels for label in labels_of(row)))
    if not labels:
        raise DataError(f"{train.source}: no example has a label")
    of_words = labels_of is labels_of_words
    what = "words" if of_words else "examples"
    if len(labels) == 1 and labels_of is not several_labels:
        raise DataError(f"{train.source}: all {what} have one label, {labels[0]!r}")
    size = sum(map(len, train.labels)) if of_words else len(train.labels)
    if len(labels) > max(_FEW, size / 2):
        raise DataError(
            f"{train.source}: {len(labels)} labels in {size} {what}; name the column of the labels"
            + ("" if of_words else ", or give --task-type regression to predict numbers")
            + (" or translation to write texts" if writes_texts and not of_words else "")
        )
    _warn_of_spellings(labels, source=train.source)
    if all(label.isascii() and label.isdigit() for label in labels):
        return tuple(sorted(labels, key=int))
    return tuple(sorted(labels))


def _warn_of_spellings(labels: Sequence[str], *, source: str) -> None:
    """Warn of labels that differ in upper and lower case alone, and may be meant to be one."""
    spellings: dict[str, str] = {}
    for label in labels:
        other = spellings.setdefault(_folded(label), label)
        if other != label:
            print(
                f"warning: {source}: {other!r} and {label!r} are two labels, which differ in upper "
                "and lower case alone; correct the file if they are one",
                file=sys.stderr,
            )
            return
