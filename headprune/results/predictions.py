"""Predictions of classifiers on a development set, and a test to compare two classifiers."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from io import StringIO
from pathlib import Path

from headprune.errors import DataError, needing
from headprune.files import text_of

_COLUMNS = ("index", "prediction", "label")


def read_correct(path: Path) -> list[bool]:
    """Read which predictions of a file are correct: one value per example, ordered by `index`.

    Raises:
        DataError: the file cannot be read or is no such table.
    """
    return [prediction == label for prediction, label in read_predictions(path)]


def read_predictions(path: Path) -> list[tuple[str, str]]:
    """Read the prediction and the label of each example, ordered by `index`.

    Raises:
        DataError: see ``numbered_predictions``.
    """
    return [*numbered_predictions(path).values()]


def numbered_predictions(path: Path) -> dict[int, tuple[str, str]]:
    """Read the prediction and the label of each example by its `index`, in ascending order.

    The file has tab-separated columns `index`, `prediction` and `label`.

    Raises:
        DataError: the file cannot be read or is no such table.
    """
    lines = StringIO(text_of(path, newline=""), newline="")
    try:
        rows = list(csv.DictReader(lines, delimiter="\t", quoting=csv.QUOTE_NONE))
    except csv.Error as problem:  # a cell that is longer than any prediction
        raise DataError(f"{path}: not a file of predictions ({problem})") from None
    if not rows or any(row.get(column) is None for row in rows for column in _COLUMNS):
        raise DataError(f"{path}: not a file of predictions (columns {', '.join(_COLUMNS)})")
    try:
        examples = {int(row["index"]): (row["prediction"], row["label"]) for row in rows}
    except ValueError:
        raise DataError(f"{path}: not every index is a whole number") from None
    if len(examples) != len(rows):
        raise DataError(f"{path}: an index is there twice")
    return {index: examples[index] for index in sorted(examples)}


def mcnemar(one: Sequence[bool], other: Sequence[bool]) -> float:
    """McNemar's exact test (1947): the p-value for two classifiers of one set being as accurate.

    Only examples that one gets right and the other wrong count: if the classifiers are equally
    accurate, each of the two is as often the better one, and the split is binomial.

    Raises:
        DataError: sets of different length.
        UsageError: scipy is not installed.

    >>> mcnemar([True] * 10, [True] * 4 + [False] * 6)
    0.03125
    """
    with needing("McNemar's test needs scipy", install="pip install scipy"):
        from scipy.stats import binomtest

    if len(one) != len(other):
        raise DataError(f"predictions for {len(one)} examples and for {len(other)}")
    better = sum(a and not b for a, b in zip(one, other, strict=True))
    worse = sum(b and not a for a, b in zip(one, other, strict=True))
    return float(binomtest(better, better + worse).pvalue) if better + worse else 1.0
