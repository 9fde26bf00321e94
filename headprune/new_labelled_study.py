"""The text of a study of a pretrained model on a task of GLUE or on a user's files."""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from headprune.backends import Given

_SNAKEFILE = Path("studies/Snakefile")  # in a checkout

_EXPLAINED = {
    "train": "trained on",
    "dev": "measured on",
    "text": "column of the text",
    "text2": "column of the second text",
    "label": "column of the label",
    "epochs": "of each fine-tuning",
    "learning-rate": "the highest one",
    "bf16": "computed in bfloat16, on a GPU",
}


@dataclass(frozen=True, kw_only=True)
class LabelledTask:
    """A task that a pretrained model is fine-tuned on.

    Attributes:
        name: its name in tables: a task of GLUE, or a name for the user's files.
        options: the options that name the files and their columns; none for a task of GLUE.
        data_dir: the folder of GLUE's files; None for a user's files and for the hub.
        examples: the number of training examples; None if the data were not read.
    """

    name: str
    options: Mapping[str, str]
    data_dir: Path | None = None
    examples: int | None = None


@runtime_checkable
class DescribesTasks(Protocol):
    """A backend whose pretrained models are fine-tuned on tasks with labels."""

    def describe_task(
        self, model: str, *, name: str | None, metric: str | None, default_name: str, given: Given
    ) -> LabelledTask:
        """Read the data that the options name, and describe the task.

        Args:
            model: a folder, or a name on the hub.
            name: the name of the task in tables, if the user gave one.
            metric: the metric, if the user gave one.
            default_name: the name of a task whose labels have no name of their own.
            given: the options that name the data.

        Raises:
            UsageError: options that are missing or contradict each other.
            DataError: data that cannot be read.
        """


def labelled_study_text(
    task: LabelledTask, *, model: str, path: Path, cores: int, gpu: bool
) -> str:
    """Write a study of random pruning with a comment on its lines.

    Args:
        task: the task.
        model: the pretrained model, a folder or a name on the hub.
        path: the file of the study; its name without ending names the run folder.
        cores: the number of CPU cores of the machine.
        gpu: True if the machine has a GPU.
    """
    name = path.stem  # in quotes below, since YAML reads 2024 and true as other values than text
    title = f"{Path(model).name} on {task.name}, heads pruned at random"
    size = "" if task.examples is None else f"{task.examples:,} training examples and "
    machine = "a GPU" if gpu else f"{cores} CPU core{'s' * (cores > 1)}"
    options = {
        **{option: _quoted(value) for option, value in task.options.items()},
        "epochs": "3",
        "batch-size": "32",
        "learning-rate": "5e-5",
        **({"bf16": "true"} if gpu else {}),
    }
    lines = [
        f"# Run it with: {command_to_run(path, cores=cores)}",
        f"# Written for {size}{machine}.",
        f"name: {_quoted(name)}  # the run folder is runs/{name}",
        f"description: {_quoted(title)}  # title of the table",
        "runner: glue  # fine-tunes a pretrained model on tasks of GLUE or of your own",
        f"model: {_quoted(model)}  # a folder, or a name on the hub",
        *([] if task.data_dir is None else [f"data_dir: {_quoted(str(task.data_dir))}"]),
        "tasks:  # each is a column of the table",
        f"  {_quoted(task.name)}:  # further options: headprune finetune --help"
        if task.options
        else f"  {task.name}:  # further options: headprune glue --help",
        *(
            f"    {option}: {value}" + (f"  # {_EXPLAINED[option]}" if option in _EXPLAINED else "")
            for option, value in options.items()
        ),
        "seeds: [1, 2, 3]  # each draws other heads",
        "plans:  # the rows of the table, beside the unpruned control",
        "  - {percent: 25}  # of all heads, at random",
        "  - {percent: 50}",
        "  - {percent: 75}",
        "  # All heads of some layers, as in the paper's tables 5 and 6: top 1, odd, ...",
        "  # - {prune: top 1}",
        *(["gpus: 1  # one for each fine-tuning"] if gpu else []),
    ]
    return "\n".join(lines) + "\n"


def command_to_run(path: Path, *, cores: int) -> str:
    """The command line that runs a study, from this folder.

    >>> command_to_run(Path("my study.yaml"), cores=2)
    "snakemake -s studies/Snakefile --config 'study=my study.yaml' --cores 2"
    """
    checkout = Path(__file__).parent.parent
    change = ""
    if not _SNAKEFILE.is_file() and (checkout / _SNAKEFILE).is_file():
        change, path = f"cd {shlex.quote(str(checkout))} && ", path.absolute()
    study = shlex.quote(f"study={path}")
    return f"{change}snakemake -s {_SNAKEFILE} --config {study} --cores {cores}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
