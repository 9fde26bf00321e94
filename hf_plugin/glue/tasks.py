"""The nine tasks of GLUE (Wang et al. 2019) and our own ``entailment``: one table.

Files and columns are those of the tsv files as GLUE distributes them; labels, their order and the
hub's columns are those of the data set nyu-mll/glue. Batch size and number of epochs are the ones
that Budhraja et al. 2020 released, and so are the learning rates of SST-2, QQP, MNLI and QNLI; for
the other tasks they give no rate, and 2e-5 is ours.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headprune.errors import UsageError


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task: where its examples are, what is predicted, how it is measured and trained.

    Attributes:
        name: as on the command line, and as the hub calls it.
        folder: its folder in the GLUE distribution.
        files: for each split that is used, its file, without ``.tsv``.
        header: the columns of files that have no line for them.
        text: the column of the sentence, or those of the two sentences.
        label: the column of the label.
        labels: the labels, in the order of the model's outputs.
        marks: how the files write the labels.
        range: for a number to predict (then there are no labels), the lowest and the highest.
        short_rows: whether lines with fields missing are known to occur, and are to be left out.
        metrics: of ``hf_plugin.glue.metrics``; the first is the one that is reported.
        hub_text: as ``text``, on the hub; empty where the task is not there.
        hub_splits: for each split, its name on the hub.
        learning_rate, batch_size, epochs, max_length: of the fine-tuning, where nothing else is
            asked for; ``max_length`` in tokens, both sentences together.
    """

    name: str
    folder: str
    files: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "dev": "dev"})
    header: tuple[str, ...] = ()
    text: tuple[str, ...]
    label: str = "label"
    labels: tuple[str, ...] = ()
    marks: tuple[str, ...] = ("0", "1")
    range: tuple[float, float] | None = None
    short_rows: bool = False
    metrics: tuple[str, ...] = ("accuracy",)
    hub_text: tuple[str, ...] = ()
    hub_splits: Mapping[str, str] = field(
        default_factory=lambda: {"train": "train", "dev": "validation"}
    )
    learning_rate: float = 2e-5
    batch_size: int = 128
    epochs: float = 10.0
    max_length: int = 128

    @property
    def data_name(self) -> str:
        """What signatures call its data."""
        return f"glue.{self.name}" if self.hub_text else f"generated.{self.name}"

    @property
    def metric_of_ablation(self) -> str:
        """What ablation measures: accuracy, or the loss where a number is to be predicted."""
        return "loss" if self.range else "accuracy"

    @property
    def dev_splits(self) -> tuple[str, ...]:
        """The splits to measure on: ``dev``, for MNLI also ``dev_mismatched``."""
        return tuple(split for split in self.files if split != "train")


_WORDS = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_PAIR = ("sentence1", "sentence2")

_TABLE = (
    Task(
        name="cola",
        folder="CoLA",
        header=("source", "label", "mark", "sentence"),
        text=("sentence",),
        labels=("unacceptable", "acceptable"),
        metrics=("matthews",),
        hub_text=("sentence",),
    ),
    Task(
        name="sst2",
        folder="SST-2",
        text=("sentence",),
        labels=("negative", "positive"),
        hub_text=("sentence",),
    ),
    Task(
        name="mrpc",
        folder="MRPC",
        text=("#1 String", "#2 String"),
        label="Quality",
        labels=("not_equivalent", "equivalent"),
        metrics=("accuracy", "f1"),
        hub_text=_PAIR,
    ),
    Task(
        name="qqp",
        folder="QQP",
        text=("question1", "question2"),
        label="is_duplicate",
        labels=("not_duplicate", "duplicate"),
        short_rows=True,
        metrics=("accuracy", "f1"),
        hub_text=("question1", "question2"),
        learning_rate=5e-5,
    ),
    Task(
        name="stsb",
        folder="STS-B",
        text=_PAIR,
        label="score",
        marks=(),
        range=(0.0, 5.0),
        metrics=("pearson", "spearman"),
        hub_text=_PAIR,
    ),
    Task(
        name="mnli",
        folder="MNLI",
        files={"train": "train", "dev": "dev_matched", "dev_mismatched": "dev_mismatched"},
        text=_PAIR,
        label="gold_label",
        labels=_NLI,
        marks=_NLI,
        hub_text=("premise", "hypothesis"),
        hub_splits={
            "train": "train",
            "dev": "validation_matched",
            "dev_mismatched": "validation_mismatched",
        },
        learning_rate=3e-5,
    ),
    Task(
        name="qnli",
        folder="QNLI",
        text=("question", "sentence"),
        labels=_WORDS,
        marks=_WORDS,
        hub_text=("question", "sentence"),
        learning_rate=5e-5,
    ),
    Task(
        name="rte",
        folder="RTE",
        text=_PAIR,
        labels=_WORDS,
        marks=_WORDS,
        hub_text=_PAIR,
    ),
    Task(
        name="wnli",
        folder="WNLI",
        text=_PAIR,
        labels=("not_entailment", "entailment"),
        hub_text=_PAIR,
    ),
    Task(
        name="entailment",
        folder="entailment",
        text=_PAIR,
        labels=_NLI,
        marks=_NLI,
        learning_rate=8e-5,
        batch_size=8,
        epochs=2.0,
    ),
)

TASKS: Mapping[str, Task] = {task.name: task for task in _TABLE}


def task_named(name: str) -> Task:
    """The task of this name.

    Raises:
        UsageError: there is none.
    """
    if name not in TASKS:
        raise UsageError(f"there is no task {name!r}; there are {', '.join(TASKS)}")
    return TASKS[name]
