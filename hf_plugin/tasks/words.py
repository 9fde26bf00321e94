"""Rows whose text is a list of words, each of which has a label."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from headprune.errors import DataError

_NEW_DOCUMENT = "-DOCSTART-"
"""The word that begins a document in CoNLL's files, and stands for no text."""

Row = Mapping[str, Any]


def words_and_labels(
    row: Row, *, text: str, label: str, where: str
) -> tuple[tuple[str, ...], list[Any]]:
    """Check the words of a row and their labels.

    Args:
        row: the row.
        text: the column of the words.
        label: the column of their labels.
        where: the file and line, for error messages.

    Raises:
        DataError: no lists, no word, a word or label that is empty, or another number of labels
            than of words.
    """
    words, labels = row[text], row[label]
    for name, value in ((text, words), (label, labels)):
        if not isinstance(value, list):
            raise DataError(f"{where}: column {name!r} is {value!r}, no list, which tokens need")
    if not words:
        raise DataError(f"{where}: column {text!r} is empty; fill it, or delete the row")
    if len(words) != len(labels):
        raise DataError(f"{where}: {len(words)} words, {len(labels)} labels")
    for word in words:
        if not isinstance(word, str) or not word or word.isspace():
            raise DataError(f"{where}: column {text!r} has {word!r}, no word")
    for each in labels:
        if not isinstance(each, (str, int)) or each == "" or isinstance(each, bool):
            raise DataError(f"{where}: column {label!r} has {each!r}, no label")
    return tuple(words), labels


def split_at_spaces(row: Row, *, text: str, label: str) -> Row:
    """The row of a csv or tsv file, whose words and labels have spaces between them."""
    return {**row, text: row[text].split(), label: row[label].split()}


def conll_rows(
    lines: Iterable[str], *, text: str, label: str, source: Path
) -> Iterator[tuple[str, Row]]:
    """The sentences of a file in CoNLL's format.

    A line has a word in its first column and its label in its last one, with tabs between columns,
    or else spaces. Empty lines end sentences.

    Args:
        lines: the lines.
        text, label: the columns of the result.
        source: the file, for error messages.

    Returns:
        For each sentence, its first line, and its words and labels.

    Raises:
        DataError: a line with one column, or with another number of columns than the first.
    """
    first, number_of_columns = 0, 0
    words: list[str] = []
    labels: list[str] = []
    for number, line in enumerate(lines, start=1):
        if line.isspace():
            if words:
                yield f"line {first}", {text: words, label: labels}
            words, labels = [], []
            continue
        columns = [
            part.strip() for part in (line.split("\t") if "\t" in line.strip() else line.split())
        ]
        if columns[0] == _NEW_DOCUMENT:
            continue
        number_of_columns = number_of_columns or len(columns)
        if len(columns) < 2 or len(columns) != number_of_columns:
            expected = f"{number_of_columns} columns" if len(columns) > 1 else "word and its label"
            raise DataError(f"{source}: line {number}: no {expected} in {line.strip()!r}")
        if not words:
            first = number
        words.append(columns[0])
        labels.append(columns[-1])
    if words:
        yield f"line {first}", {text: words, label: labels}
