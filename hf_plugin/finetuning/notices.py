"""Messages of a run about its examples and their labels."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from datasets import Dataset

from hf_plugin.finetuning.training import count_cut
from hf_plugin.tasks.examples import Examples
from hf_plugin.tasks.predictions import single
from hf_plugin.tasks.task import Task, TaskType
from hf_plugin.tokenizers import Reader

MOST_LABELS_NAMED = 10
"""The largest number of labels whose counts are printed."""


def described_examples(examples: Examples, labels: Sequence[Any], task: Task) -> str:
    """The number of examples, and of each label where an example or a word has one."""
    number = f"{len(examples):,} example{'s' * (len(examples) != 1)}"
    if task.type not in (TaskType.single_label, TaskType.images, TaskType.tokens):
        return number
    counts = Counter(single(labels, task))
    if len(counts) > MOST_LABELS_NAMED:
        return f"{number} with {len(counts)} different labels"
    return f"{number}: " + ", ".join(f"{task.labels[n]} {counts[n]:,}" for n in sorted(counts))


def warn_of_cut_texts(
    split: str,
    examples: Examples,
    encoded: Dataset,
    reader: Reader,
    *,
    max_length: int,
    counted: set[str] | None = None,
) -> None:
    """Warn of texts of a split that are longer than ``max_length`` tokens.

    Args:
        split: the name of the examples.
        examples, encoded, reader: as they are, as inputs of the model, and what encoded them.
        max_length: the largest number of tokens of an example.
        counted: the splits of earlier calls, which are not counted again; this one is added.
    """
    if counted is not None:
        if split in counted:
            return
        counted.add(split)
    cut = count_cut(examples, encoded, reader, max_length=max_length)
    if cut:
        print(
            f"warning: {split}: {cut:,} of {len(examples):,} texts are cut to {max_length} tokens; "
            "--max-length changes this",
            file=sys.stderr,
        )


def warn_of_one_label(
    labels: Mapping[str, Sequence[Any]], splits: Iterable[str], task: Task
) -> None:
    """Warn of splits on which every metric is of one label."""
    for split in splits:
        values = single(labels[split], task)
        if len(values) > 1 and all(value == values[0] for value in values):
            print(
                f"warning: {split}: all {len(values)} labels are the same, so that the metrics say "
                "little",
                file=sys.stderr,
            )
