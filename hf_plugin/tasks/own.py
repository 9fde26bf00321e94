"""A task of the user's own: files with texts and labels, described by columns and a metric."""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from headprune.errors import DataError, UsageError
from headprune.results.bleu_tokenizers import (
    DEFAULT,
    require_package,
    tokenizer_for,
    tokenizer_of_reference,
)
from hf_plugin.families import require_family
from hf_plugin.tasks.entities import name_entities
from hf_plugin.tasks.examples import Examples
from hf_plugin.tasks.images import is_image_folder, read_images
from hf_plugin.tasks.labels import (
    Outputs,
    labels_of_words,
    one_label,
    outputs_of,
    several_labels,
    shown,
    vocabulary,
)
from hf_plugin.tasks.tables import (
    Columns,
    Table,
    is_plain,
    read_pairs,
    read_table,
    read_texts,
    two_files,
)
from hf_plugin.tasks.task import Task, TaskType

METRICS: Mapping[TaskType, tuple[str, ...]] = {
    TaskType.single_label: ("accuracy", "macro-f1", "f1", "matthews"),
    TaskType.images: ("accuracy", "macro-f1", "f1", "matthews"),
    TaskType.multi_label: ("f1", "macro-f1", "accuracy"),
    TaskType.regression: ("pearson", "spearman", "mse"),
    TaskType.tokens: ("entity-f1", "token-accuracy", "macro-f1"),
    TaskType.language_modelling: ("perplexity", "loss"),
    TaskType.translation: ("bleu", "chrf"),
}
"""The metrics of each type of task; the first two are always measured, the first by default.

Those of words whose labels name no entities are ``token-accuracy`` and ``macro-f1``.
"""

_OF_TOKENS = ("entity-f1", "token-accuracy")
"""The metrics of words alone."""

_WITHOUT_LABEL = (
    "; name it with --label, or give --task-type language-modelling to predict the texts themselves"
)
"""Advice for data of a model that may be a classifier or a language model."""

_LABELS_OF = {
    TaskType.single_label: one_label,
    TaskType.images: one_label,
    TaskType.multi_label: several_labels,
    TaskType.tokens: labels_of_words,
}

FINGERPRINT_LENGTH = 12
"""Number of characters of a fingerprint in signatures."""


@dataclass(frozen=True, kw_only=True)
class Description:
    """A user's description of data and task.

    Attributes:
        train, dev: the files or data sets; see ``read_table``. At least one is given.
        columns: their columns.
        type: the type of the task; None to infer it from the metric, the model and the labels.
        metric: the metric to report; None for the first of the type's.
        labels: the labels in the order of the model's outputs; empty to take them from the model
            or from the training data.
    """

    train: str | None = None
    dev: str | None = None
    columns: Columns
    type: TaskType | None = None
    metric: str | None = None
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class OwnData:
    """A user's data with their task; implements ``hf_plugin.tasks.task.LabelledData``.

    Attributes:
        task: the task, with the labels in the order of the model's outputs.
        names: the name of each split in signatures: its file and fingerprint.
        examples: the examples of each split.
    """

    task: Task
    names: Mapping[str, str]
    examples: Mapping[str, Examples] = field(compare=False, repr=False)

    @property
    def splits(self) -> tuple[str, ...]:
        """``train``, ``dev`` or both."""
        return tuple(self.names)

    def require(self, split: str) -> None:
        """Raise a UsageError if no data were given for a split."""
        if split not in self.examples:
            known = split in ("train", "dev")
            raise UsageError(
                f"give --{split} too, a file with texts and labels"
                if known
                else f"--split {split}: give train or dev"
            )

    def load(self, split: str) -> Examples:
        """The examples of a split.

        Raises:
            UsageError: no data were given for it.
        """
        self.require(split)
        return self.examples[split]

    def name(self, *, part: str = "") -> str:
        """Name of the data in signatures: the files and their fingerprints."""
        parts = {"train": part}
        return "+".join(name + parts.get(split, "") for split, name in self.names.items())

    def name_of(self, split: str) -> str:
        """Name of one split in signatures: its file and fingerprint."""
        return self.names[split]

    def as_json(self) -> dict[str, Any]:
        """All that the outcome of a run depends on, as JSON values."""
        tokenizer = self.task.bleu_tokenizer
        return {
            "data": dict(self.names),
            "type": self.task.type.value,
            "text": list(self.task.text),
            "label": self.task.label,
            "labels": list(self.task.labels),
            "metrics": list(self.task.metrics),
            # Older runs have the default, and do not name it.
            **({} if tokenizer == DEFAULT else {"bleu_tokenizer": tokenizer}),
        }


def own_data(described: Description, *, model: str, untrained: bool) -> OwnData:
    """Read a user's data, and complete the description of their task.

    The labels are those of a fine-tuned model. For a model that is still to be fine-tuned, they are
    those of the training data, in the model's order if the model has the same ones, else sorted.

    Args:
        described: the files, the columns and the metric.
        model: folder of the model, or its name on the hub.
        untrained: whether the model is to be fine-tuned on these data first.

    Raises:
        UsageError: no data, the same data twice, a metric of another type of task, or a model whose
            labels have no names.
        DataError: data that cannot be read, or a label that the model does not have.
    """
    sources = {
        split: source
        for split, source in (("train", described.train), ("dev", described.dev))
        if source is not None
    }
    if not sources and not untrained:
        raise UsageError(
            "give --dev, a file with texts and labels to measure on; for scores and fine-tuning "
            "--train"
        )
    if untrained and described.train is None:
        raise UsageError("give --train, a file with texts and labels to fine-tune on")
    outputs = outputs_of(model)
    expected = _expected_type(described, sources, None if untrained else outputs)
    if expected is TaskType.language_modelling:
        return _texts(described, sources, outputs)
    if expected is TaskType.translation:
        return _pairs(described, sources, outputs)
    return _labelled(described, sources, outputs, expected=expected, untrained=untrained)


def _expected_type(
    described: Description, sources: Mapping[str, str], outputs: Outputs | None
) -> TaskType | None:
    """The type of a task as far as it is known before the data are read; None if it is not.

    Args:
        described: the user's description; a type in it is taken.
        sources: the file or data set of each split.
        outputs: those of a fine-tuned model.
    """
    if described.type is not None:
        return described.type
    expected = None if outputs is None else outputs.type
    if expected is None and described.metric in _OF_TOKENS:
        expected = TaskType.tokens
    for type_, is_of_type in (
        (TaskType.language_modelling, is_plain),
        (TaskType.translation, two_files),
        (TaskType.images, is_image_folder),
    ):
        if expected is type_ or any(map(is_of_type, sources.values())):
            return type_
    return expected


def _labelled(
    described: Description,
    sources: Mapping[str, str],
    outputs: Outputs,
    *,
    expected: TaskType | None,
    untrained: bool,
) -> OwnData:
    """Texts, words or images with labels."""
    columns = _columns(described, outputs, expected=expected)
    is_of_images = expected is TaskType.images
    tables = _tables(
        sources,
        lambda source, split: (
            read_images(source) if is_of_images else read_table(source, columns, split=split)
        ),
    )
    type_: TaskType
    if expected is TaskType.tokens or expected is TaskType.images:
        type_ = expected
    else:
        type_ = described.type or _type(
            described.metric, tables, outputs=None if untrained else outputs
        )
    metrics = _metrics(type_, described.metric)
    labels, values = _label_values(described, tables, outputs, type_=type_, untrained=untrained)
    if type_ is TaskType.tokens and not name_entities(labels):
        metrics = _without_entities(metrics, described.metric, labels)
    if metrics[0] == "f1" and type_ is not TaskType.multi_label and len(labels) != 2:
        raise UsageError(
            f"--metric f1 is of the second of two labels, there are {len(labels)}; give macro-f1"
        )
    measured = _measured(tables)
    return OwnData(
        task=Task(
            name=plain_name(f"{Path(measured.source).name.partition('.')[0]}.{columns.label}"),
            type=type_,
            text=columns.text,
            label=columns.label,
            labels=labels,
            metrics=metrics,
        ),
        names={split: _name_of(table) for split, table in tables.items()},
        examples={
            split: Examples(
                table.texts,
                values[split],
                of_words=type_ is TaskType.tokens,
                images=Path(table.source) if is_of_images else None,
            )
            for split, table in tables.items()
        },
    )


def _label_values(
    described: Description,
    tables: Mapping[str, Table],
    outputs: Outputs,
    *,
    type_: TaskType,
    untrained: bool,
) -> tuple[tuple[str, ...], dict[str, Sequence[Any]]]:
    """The names of the labels, none of numbers, and the labels of each split's examples."""
    if type_ is TaskType.regression:
        return (), {split: _numbers(table) for split, table in tables.items()}
    known = vocabulary(
        tables, outputs, given=described.labels, untrained=untrained, labels_of=_LABELS_OF[type_]
    )
    read: Mapping[TaskType, Callable[[Table], Sequence[Any]]] = {
        TaskType.single_label: known.indices,
        TaskType.images: known.indices,
        TaskType.multi_label: known.vectors,
        TaskType.tokens: known.indices_of_words,
    }
    return known.labels, {split: read[type_](table) for split, table in tables.items()}


def _columns(described: Description, outputs: Outputs, *, expected: TaskType | None) -> Columns:
    """The columns to read for a type of task.

    Raises:
        UsageError: columns that data of this type do not have.
    """
    columns = described.columns
    if expected is TaskType.images:
        if len(columns.text) > 1 or columns.label != "label":
            raise UsageError(
                "images: the sub-folders are the labels; leave --label and --text2 out"
            )
        if columns.text != ("text",):
            raise UsageError(
                f"--text {columns.text[0]}: images have no column of text; leave it out"
            )
    if expected is TaskType.tokens and len(columns.text) > 1:
        raise UsageError("--text2: words with labels are in one column, --text")
    return replace(
        columns,
        may_lack_label=expected is TaskType.multi_label,
        of_words=expected is TaskType.tokens,
        without_label=(
            _WITHOUT_LABEL
            if described.type is None and outputs.are_decoders
            else columns.without_label
        ),
    )


def _texts(described: Description, sources: Mapping[str, str], outputs: Outputs) -> OwnData:
    """Texts to predict token by token."""
    if not outputs.are_decoders:
        require_family(outputs.family)
        raise UsageError(
            f"{outputs.model}: a {outputs.family} model does not predict each token of a text from "
            "those before it; language modelling is for decoders such as GPT-2 and Llama, and for "
            "BERT and its relatives with is_decoder in their config (scores and prune read texts "
            "for other models with --without-labels)"
        )
    columns = described.columns
    if len(columns.text) > 1 or described.labels:
        raise UsageError("language modelling: give one column of text, and no labels")
    if columns.text != ("text",) and all(map(is_plain, sources.values())):
        raise UsageError(f"--text {columns.text[0]}: plain text has no columns; leave it out")
    tables = _tables(sources, lambda source, split: read_texts(source, columns, split=split))
    measured = _measured(tables)
    return OwnData(
        task=Task(
            name=plain_name(Path(measured.source).name.partition(".")[0]),
            type=TaskType.language_modelling,
            text=("text",) if is_plain(measured.source) else columns.text,
            label="",
            metrics=_metrics(TaskType.language_modelling, described.metric),
        ),
        names={split: _name_of(table) for split, table in tables.items()},
        examples={
            split: Examples(table.texts, table.labels, of_text=True)
            for split, table in tables.items()
        },
    )


def _pairs(described: Description, sources: Mapping[str, str], outputs: Outputs) -> OwnData:
    """Sentence pairs, the second of which is written by the model."""
    if not outputs.write_texts:
        raise UsageError(
            f"{outputs.model}: a {outputs.family} model does not write a text that it was not "
            "given; translation is for encoders with a decoder, such as Marian, NLLB, BART and T5"
        )
    columns = described.columns
    if len(columns.text) > 1 or described.labels:
        raise UsageError(
            "translation: --text names the column of the source text and --label that of its "
            "translation; leave --text2 and --labels out"
        )
    tables = _tables(sources, lambda source, split: read_pairs(source, columns, split=split))
    measured = _measured(tables)
    in_files = two_files(measured.source)
    name = f"{Path(measured.source).name.partition('.')[0]}.{columns.label}"
    has_columns = not all(map(two_files, sources.values()))
    tokenizer = (
        tokenizer_for(columns.label) if in_files is None else tokenizer_of_reference(in_files[1])
    )
    require_package(tokenizer)  # before a fine-tuning, not after it
    return OwnData(
        task=Task(
            name=plain_name(name if in_files is None else in_files[1].name),
            type=TaskType.translation,
            text=columns.text if has_columns else (),
            label=columns.label if has_columns else "",
            metrics=_metrics(TaskType.translation, described.metric),
            bleu_tokenizer=tokenizer,
        ),
        names={split: _name_of(table) for split, table in tables.items()},
        examples={
            split: Examples(table.texts, table.labels, of_translation=True)
            for split, table in tables.items()
        },
    )


def _tables(sources: Mapping[str, str], read: Callable[[str, str], Table]) -> dict[str, Table]:
    """Read each split by ``read(source, split)``, and compare two of them."""
    tables = {split: read(source, split) for split, source in sources.items()}
    if len(tables) == 2:
        _compare(tables["train"], tables["dev"])
    return tables


def _measured(tables: Mapping[str, Table]) -> Table:
    """The split to measure on."""
    return tables["dev" if "dev" in tables else "train"]


def _name_of(table: Table) -> str:
    """The name of a split in signatures."""
    files = two_files(table.source) or (Path(table.source),)
    name = "_".join(plain_name(file.name) for file in files)
    return f"{name}@{table.fingerprint[:FINGERPRINT_LENGTH]}"


def _compare(train: Table, dev: Table) -> None:
    """Refuse equal data, and warn of texts that are in both."""
    if train.fingerprint == dev.fingerprint:
        raise UsageError(
            f"--train {train.source} and --dev {dev.source} have the same examples; give others to "
            "measure on"
        )
    seen = set(train.contents)
    count = sum(content in seen for content in dev.contents)
    if count:
        print(
            f"warning: {count} of {len(dev.texts)} dev examples are in --train too",
            file=sys.stderr,
        )


def _type(metric: str | None, tables: Mapping[str, Table], *, outputs: Outputs | None) -> TaskType:
    """The type of a task by its metric, the outputs of a fine-tuned model, or the labels."""
    if metric in METRICS[TaskType.regression]:
        return TaskType.regression
    if outputs is not None:
        return outputs.type
    if any(isinstance(label, list) for table in tables.values() for label in table.labels):
        return TaskType.multi_label
    labels = {str(label) for table in tables.values() for label in table.labels}
    fractions = [label for label in labels if not label.lstrip("-").isdigit()]
    if metric is None and fractions and all(_number(label) is not None for label in labels):
        return TaskType.regression
    return TaskType.single_label


def _metrics(type_: TaskType, metric: str | None) -> tuple[str, ...]:
    """The metrics to measure, the chosen one first."""
    known = METRICS[type_]
    if metric is not None and metric not in known:
        everything = list(dict.fromkeys(name for names in METRICS.values() for name in names))
        if metric not in everything:
            raise UsageError(f"--metric {metric}: it is one of {', '.join(everything)}")
        raise UsageError(
            f"--metric {metric}: a {type_.value} task is measured by {', '.join(known)}"
        )
    return tuple(dict.fromkeys([metric or known[0], *known[:2]]))


def _without_entities(
    metrics: tuple[str, ...], metric: str | None, labels: Sequence[str]
) -> tuple[str, ...]:
    """The metrics of words whose labels name no entities."""
    if metric == "entity-f1":
        raise UsageError(
            "--metric entity-f1: is of labels such as O, B-PER and I-PER (IOB2), not of "
            f"{shown(labels)}; give token-accuracy or macro-f1"
        )
    others = METRICS[TaskType.tokens][1:]
    return tuple(dict.fromkeys([*(name for name in metrics if name in others), *others]))


def _numbers(table: Table) -> list[float]:
    numbers = []
    for row, label in enumerate(table.labels):
        number = _number(label)
        if number is None:
            raise DataError(f"{table.where(row)}: label {label!r} is no number")
        numbers.append(number)
    return numbers


def _number(label: Any) -> float | None:
    try:
        number = float(label)
    except (TypeError, ValueError):
        return None
    return number if math.isfinite(number) else None


def plain_name(name: str) -> str:
    """A name without the characters that separate the fields of a signature."""
    return re.sub(r"[^\w.-]", "_", name)
