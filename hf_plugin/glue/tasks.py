"""Table of the nine tasks of GLUE (Wang et al. 2019) and the generated task ``entailment``.

Files and columns are those of GLUE's tsv files. Labels, their order and the columns on the hub are
those of the data set nyu-mll/glue. Batch sizes, numbers of epochs and the learning rates of SST-2,
QQP, MNLI and QNLI are those of the released code of Budhraja et al. 2020. It has no learning rates
for the other tasks; their 2e-5 is our choice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from headprune.errors import UsageError
from hf_plugin.tasks.task import Task, TaskType


@dataclass(frozen=True, kw_only=True)
class GlueTask(Task):
    """A preset: a task, the format of its files, and the defaults of its fine-tuning.

    Its name is that on the command line and on the hub.

    Attributes:
        folder: folder in the GLUE distribution.
        files: names of the files of the splits, without ``.tsv``.
        header: the columns of files without a header line.
        marks: the spellings of the labels in the files.
        range: the lowest and highest number to predict, for a task without labels.
        short_rows: whether some lines are known to lack fields; these are left out.
        hub_text: the columns of the sentences on the hub; empty if the hub does not have the task.
        hub_splits: names of the splits on the hub.
        learning_rate, batch_size, epochs: defaults of the fine-tuning.
        max_length: default of the maximum length in tokens, of both sentences together.
    """

    folder: str
    files: Mapping[str, str] = field(default_factory=lambda: {"train": "train", "dev": "dev"})
    header: tuple[str, ...] = ()
    marks: tuple[str, ...] = ("0", "1")
    range: tuple[float, float] | None = None
    short_rows: bool = False
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
        """Name of the data in signatures."""
        return f"glue.{self.name}" if self.hub_text else f"generated.{self.name}"


_WORDS = ("entailment", "not_entailment")
_NLI = ("entailment", "neutral", "contradiction")
_PAIR = ("sentence1", "sentence2")

_TABLE = (
    GlueTask(
        name="cola",
        folder="CoLA",
        header=("source", "label", "mark", "sentence"),
        text=("sentence",),
        labels=("unacceptable", "acceptable"),
        metrics=("matthews",),
        hub_text=("sentence",),
    ),
    GlueTask(
        name="sst2",
        folder="SST-2",
        text=("sentence",),
        labels=("negative", "positive"),
        hub_text=("sentence",),
    ),
    GlueTask(
        name="mrpc",
        folder="MRPC",
        text=("#1 String", "#2 String"),
        label="Quality",
        labels=("not_equivalent", "equivalent"),
        metrics=("accuracy", "f1"),
        hub_text=_PAIR,
    ),
    GlueTask(
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
    GlueTask(
        name="stsb",
        folder="STS-B",
        text=_PAIR,
        label="score",
        type=TaskType.regression,
        marks=(),
        range=(0.0, 5.0),
        metrics=("pearson", "spearman"),
        hub_text=_PAIR,
    ),
    GlueTask(
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
    GlueTask(
        name="qnli",
        folder="QNLI",
        text=("question", "sentence"),
        labels=_WORDS,
        marks=_WORDS,
        hub_text=("question", "sentence"),
        learning_rate=5e-5,
    ),
    GlueTask(
        name="rte",
        folder="RTE",
        text=_PAIR,
        labels=_WORDS,
        marks=_WORDS,
        hub_text=_PAIR,
    ),
    GlueTask(
        name="wnli",
        folder="WNLI",
        text=_PAIR,
        labels=("not_entailment", "entailment"),
        hub_text=_PAIR,
    ),
    GlueTask(
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

TASKS: Mapping[str, GlueTask] = {task.name: task for task in _TABLE}


def task_named(name: str) -> GlueTask:
    """Look up a task by its name.

    Raises:
        UsageError: there is no such task.
    """
    found = TASKS.get(name.lower().replace("-", ""))  # the folders have names such as SST-2
    if found is None:
        raise UsageError(f"there is no task {name!r}; there are {', '.join(TASKS)}")
    return found
