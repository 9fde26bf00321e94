"""The data that the options of a command name: a task of GLUE, or a user's files."""

from __future__ import annotations

from pathlib import Path

from headprune.backends import Given
from headprune.errors import UsageError
from hf_plugin.finetuning.held_out import default_max_length
from hf_plugin.glue.data import GlueData
from hf_plugin.glue.tasks import task_named
from hf_plugin.tasks.own import Description, OwnData, own_data
from hf_plugin.tasks.tables import Columns
from hf_plugin.tasks.task import TaskType

OWN = ("train", "dev", "text", "text2", "label", "labels", "task_type", "delimiter")
"""Options that describe a user's files."""

GLUE = ("task", "data_dir")
"""Options that name a task of GLUE."""

DATA = (*OWN, *GLUE)

_NAMED = {"tab": "\t", r"\t": "\t"}


def data_given(
    given: Given, *, model: str, untrained: bool = False, metric: str | None = None
) -> GlueData | OwnData:
    """Find the data that the options name, and read a user's.

    Args:
        given: the options; others than those of ``OWN`` and ``GLUE`` are not looked at.
        model: folder of the model, or its name on the hub.
        untrained: whether the model is to be fine-tuned on these data first.
        metric: the metric that the user chose.

    Raises:
        UsageError: options that are missing or contradict each other.
        DataError: see ``own_data``.
    """
    own, glue = ([name for name in names if name in given] for names in (OWN, GLUE))
    if own and glue:
        raise UsageError(f"give {_option(glue[0])} or {_option(own[0])}, not both")
    if own:
        data = own_data(_description(given, metric), model=model, untrained=untrained)
        if data.task.is_of_text and "label" in given:
            raise UsageError(
                f"--label {given['label']}: {model} predicts texts, which have no labels; leave "
                "--label out, or give the --task-type of a classifier"
            )
        if data.task.is_translation and not data.task.text and {"text", "label"} & {*given}:
            raise UsageError(
                "--text and --label name columns, which sentence pairs in two files do not have; "
                "leave them out"
            )
        return data
    if "task" not in given:
        raise UsageError(
            f"{model}: give --task, a task of GLUE, or --train (and --dev, where the model is "
            "measured), files with texts and labels"
        )
    task = task_named(str(given["task"]))
    if metric is not None and metric not in task.metrics:
        raise UsageError(f"--metric {metric}: {task.name} is measured by {', '.join(task.metrics)}")
    if metric is not None and metric != task.metrics[0]:
        raise UsageError(
            f"--metric {metric}: tables of {task.name} have {task.metrics[0]}; its records have "
            f"{' and '.join(task.metrics)}"
        )
    data_dir = given.get("data_dir")
    return GlueData(task, None if data_dir is None else Path(data_dir))


def _description(given: Given, metric: str | None) -> Description:
    type_ = given.get("task_type")
    known = [each.value for each in TaskType]
    if type_ is not None and type_ not in known:
        raise UsageError(f"--task-type {type_}: it is one of {', '.join(known)}")
    labels = given.get("labels", "")
    return Description(
        train=given.get("train"),
        dev=given.get("dev"),
        columns=columns_given(given),
        type=None if type_ is None else TaskType(type_),
        metric=metric,
        labels=tuple(label.strip() for label in labels.split(",")) if labels else (),
    )


def max_length_given(given: Given, *, model: str | Path) -> int:
    """The maximum number of tokens of an example: the option, or that of the model's training."""
    length: int | None = given.get("max_length")
    return length or default_max_length(Path(model))


def columns_given(given: Given) -> Columns:
    """The columns that the options name.

    Raises:
        UsageError: a delimiter of several characters.
    """
    text = (str(given.get("text", "text")), *([given["text2"]] if "text2" in given else []))
    return Columns(text=text, label=given.get("label", "label"), delimiter=_delimiter(given))


def _delimiter(given: Given) -> str | None:
    if "delimiter" not in given:
        return None
    delimiter = _NAMED.get(given["delimiter"], str(given["delimiter"]))
    if len(delimiter) != 1:
        raise UsageError(f"--delimiter {delimiter!r}: give one character, or tab")
    return delimiter


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"
