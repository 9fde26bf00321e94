"""Text without labels: a plain file with one text a line, or the texts of a table or a task."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from pathlib import Path

from headprune.backends import Given
from headprune.errors import UsageError
from hf_plugin.glue.data import GlueData
from hf_plugin.tasks.examples import Examples
from hf_plugin.tasks.given import GLUE, columns_given, data_given
from hf_plugin.tasks.own import FINGERPRINT_LENGTH, plain_name
from hf_plugin.tasks.tables import is_plain, read_texts
from hf_plugin.tasks.task import Task


@dataclass(frozen=True, kw_only=True)
class TextData:
    """Texts in one split, ``train``; implements ``hf_plugin.tasks.task.LabelledData``.

    All labels are 0 and stand for nothing.

    Attributes:
        task: the task without labels.
        name_in_signatures: the name of the file with its fingerprint.
        examples: the texts.
    """

    task: Task
    name_in_signatures: str
    examples: Examples

    @property
    def splits(self) -> tuple[str, ...]:
        """``train``."""
        return ("train",)

    def require(self, split: str) -> None:
        """Raise a UsageError for another split."""
        if split != "train":
            raise UsageError(f"--split {split}: text without labels has the split train alone")

    def load(self, split: str) -> Examples:
        """The texts."""
        self.require(split)
        return self.examples

    def name(self, *, part: str = "") -> str:
        """Name of the text in signatures."""
        return self.name_in_signatures + part

    def name_of(self, split: str) -> str:
        """Name of the text in signatures."""
        return self.name_in_signatures


def text_given(given: Given, *, model: str) -> TextData | GlueData:
    """The text that the options name.

    Args:
        given: the options ``train``, ``text``, ``text2`` and ``delimiter``, or those of a task of
            GLUE.
        model: folder of the model, or its name on the hub, for error messages.

    Raises:
        UsageError: no text, or options for labels.
        DataError: a file that cannot be read, or that has no text.
    """
    if any(name in given for name in GLUE):
        data = data_given(given, model=model)
        assert isinstance(data, GlueData)
        return data
    for name in ("dev", "label", "labels", "task_type"):
        if name in given:
            raise UsageError(f"--{name.replace('_', '-')}: not with --without-labels")
    if "train" not in given:
        raise UsageError(
            f"{model}: give --train, a file with text (.txt with one text a line, or a table)"
        )
    source = str(given["train"])
    columns = columns_given(given)
    if is_plain(source):
        columns = replace(columns, text=("text",))
    texts = read_texts(source, columns, split="train").texts
    digest = hashlib.sha256("\n".join("\t".join(text) for text in texts).encode()).hexdigest()
    name = plain_name(Path(source).name)
    return TextData(
        task=Task(name=name, text=columns.text),
        name_in_signatures=f"{name}@{digest[:FINGERPRINT_LENGTH]}",
        examples=Examples(texts, [0] * len(texts)),
    )
