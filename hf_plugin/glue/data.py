"""Read the examples of a task from GLUE's tsv files or from the Hugging Face hub."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import datasets

from headprune.errors import DataError, UsageError
from hf_plugin.glue.tasks import GlueTask
from hf_plugin.tasks.examples import Examples
from hf_plugin.tasks.tables import lines_of

HUB = "nyu-mll/glue"
"""Name of the data set on the hub, which has a configuration for each task."""


@dataclass(frozen=True)
class GlueData:
    """A task of GLUE with its files; implements ``hf_plugin.tasks.task.LabelledData``.

    Attributes:
        task: the task.
        data_dir: see ``load_splits``.
    """

    task: GlueTask
    data_dir: Path | None = None

    @property
    def splits(self) -> tuple[str, ...]:
        """``train``, and those to measure on."""
        return tuple(self.task.files)

    @property
    def is_to_be_generated(self) -> bool:
        """Whether the task is generated, and its files have no folder yet."""
        return self.data_dir is None and not self.task.hub_text

    def require(self, split: str) -> None:
        """Raise a UsageError if the task has no such split."""
        if split not in self.splits:
            raise UsageError(
                f"{self.task.name} has no split {split!r}; it has {', '.join(self.splits)}"
            )

    def load(self, split: str) -> Examples:
        """Load the examples of a split; see ``load_splits``.

        Raises:
            UsageError: the task has no such split.
        """
        self.require(split)
        return load_splits(self.task, self.data_dir, splits=[split])[split]

    def name(self, *, part: str = "") -> str:
        """Name of the data in signatures."""
        return self.task.data_name + part

    def name_of(self, split: str) -> str:
        """Name of one split in signatures."""
        return f"{self.task.data_name}.{split}"


def load_splits(
    task: GlueTask, data_dir: Path | None, *, splits: Sequence[str]
) -> dict[str, Examples]:
    """Load the examples of some splits of a task.

    Args:
        task: the task.
        data_dir: the folder of GLUE, which contains CoLA, SST-2, ..., or the folder of the task,
            with tsv or tsv.gz files; None for the hub.
        splits: the names of the splits.

    Raises:
        DataError: see ``read_tsv`` and ``load_hub``; or a folder or file of the task is missing.
    """
    if data_dir is None:
        return {split: load_hub(task, split) for split in splits}
    return {split: read_tsv(task, _file(task, data_dir, split)) for split in splits}


def read_tsv(task: GlueTask, path: Path) -> Examples:
    """Read a tsv file of GLUE; fields are separated by tabs, quotes are ordinary characters.

    Raises:
        DataError: the file is not UTF-8, has no example, lacks a column, or has a line with a wrong
            number of fields or an unknown label. The message names the line.
    """
    columns: dict[str, int] = {}
    texts: list[tuple[str, ...]] = []
    labels: list[float] = []
    left_out = 0
    if task.header:
        columns = {name: place for place, name in enumerate(task.header)}
    for number, fields in _rows(path):
        where = f"{path}: line {number}"
        if not columns:
            columns = _columns(task, fields, where=where)
            continue
        if len(fields) != len(columns):
            if task.short_rows and len(fields) < len(columns):
                left_out += 1
                continue
            raise DataError(f"{where}: {len(fields)} fields, there are {len(columns)} columns")
        texts.append(tuple(fields[columns[name]] for name in task.text))
        labels.append(_label(task, fields[columns[task.label]], where=where))
    if not labels:
        raise DataError(f"{path}: no example in it")
    return Examples(texts, labels, left_out)


def load_hub(task: GlueTask, split: str) -> Examples:
    """Load a split of the task from the Hugging Face hub, or from its cache on this computer.

    Raises:
        DataError: the hub does not have the task, cannot be reached, or has different labels.
    """
    if not task.hub_text:
        raise DataError(f"{task.name}: is not on the hub")
    try:
        table = datasets.load_dataset(HUB, task.name, split=task.hub_splits[split])
    except Exception as problem:  # of any type: from the network, the hub or the cache
        raise DataError(
            f"{task.name}: cannot be loaded from the hub ({problem}); give the folder of GLUE's "
            "tsv files with --data-dir"
        ) from None
    names = getattr(table.features["label"], "names", [])
    if tuple(names) != task.labels:
        raise DataError(f"{HUB}: {task.name} has the labels {names} there, not {task.labels}")
    texts = list(zip(*(table[name] for name in task.hub_text), strict=True))
    return Examples(texts, [float(label) if task.range else label for label in table["label"]])


def _file(task: GlueTask, folder: Path, split: str) -> Path:
    name = f"{task.files[split]}.tsv"
    places = [place / name for place in (folder / task.folder, folder)]
    for path in (path for place in places for path in (place, place.with_name(f"{name}.gz"))):
        if path.is_file():
            return path
    if not folder.is_dir():
        raise DataError(f"{folder}: no such folder; --data-dir is that of GLUE's tsv files")
    inner = folder / task.folder
    raise DataError(f"{inner if inner.is_dir() else folder}: no {name} or {name}.gz of {task.name}")


def _rows(path: Path) -> Iterator[tuple[int, list[str]]]:
    """Split each line into fields; lines are numbered from 1."""
    for number, line in enumerate(lines_of(path), start=1):
        text = line.rstrip("\r\n")
        if text:  # files made by hand often end with an empty line
            yield number, text.split("\t")


def _columns(task: GlueTask, names: list[str], *, where: str) -> dict[str, int]:
    for name in (*task.text, task.label):
        if name not in names:
            raise DataError(f"{where}: no column {name!r}, there are {', '.join(names)}")
    return {name: place for place, name in enumerate(names)}


def _label(task: GlueTask, written: str, *, where: str) -> float:
    if task.range is None:
        if written not in task.marks:
            raise DataError(f"{where}: label {written!r} is none of {', '.join(task.marks)}")
        return task.marks.index(written)
    low, high = task.range
    try:
        value = float(written)
    except ValueError:
        value = float("nan")
    if not low <= value <= high:
        raise DataError(f"{where}: {written!r} is no number from {low:g} to {high:g}")
    return value
