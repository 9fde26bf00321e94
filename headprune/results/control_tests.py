"""Tests of models against the control of their seed, on the outputs that belong to records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headprune.errors import DataError
from headprune.results.bleu import read_lines
from headprune.results.bleu_tokenizers import tokenizer_of
from headprune.results.predictions import mcnemar, read_predictions
from headprune.results.record import Record
from headprune.results.stats import paired_randomisation

Located = tuple[Path, Record]
"""A record and its file; the files that belong to it lie relative to that."""


@dataclass(frozen=True, kw_only=True)
class Tested:
    """The outcome of the tests of some models against one control.

    Attributes:
        p_values: the p-value of each model.
        signature: the signature of the test, if it has one.
    """

    p_values: tuple[float, ...]
    signature: str | None = None


@dataclass(frozen=True, kw_only=True)
class ControlTest:
    """A test of a metric.

    Attributes:
        run: takes a control and the models to test against it.
        kinds: the kinds of records that are tested.
        file: the name of the file that a record needs for it.
    """

    run: Callable[[Located, Sequence[Located]], Tested]
    kinds: tuple[str, ...]
    file: str

    def applies_to(self, record: Record) -> bool:
        """Check if the record has the outputs that the test needs; comparisons keep none."""
        return self.file in record.files


def compare_translations(control: Located, models: Sequence[Located]) -> Tested:
    """Paired approximate randomisation on BLEU.

    Raises:
        DataError: translations that cannot be read, or are not of one test set.
    """
    outcome = paired_randomisation(
        read_lines(_file(control, "hypotheses")),
        [read_lines(_file(model, "hypotheses")) for model in models],
        read_lines(_file(control, "reference")),
        tokenizer=tokenizer_of(control[1].metric_signatures.get("bleu", "")),
    )
    return Tested(p_values=outcome.p_values, signature=outcome.signature)


def compare_predictions(control: Located, models: Sequence[Located]) -> Tested:
    """McNemar's exact test on the examples that are classified correctly.

    Raises:
        DataError: predictions that cannot be read, or are not of one set.
        UsageError: scipy is not installed.
    """
    p_values = []
    for model in models:
        try:
            p_values.append(_mcnemar(_file(control, "predictions"), _file(model, "predictions")))
        except DataError as problem:
            raise DataError(f"{model[0]} against {control[0]}: {problem}") from None
    return Tested(p_values=tuple(p_values))


TESTS: Mapping[str, ControlTest] = {
    "bleu": ControlTest(run=compare_translations, kinds=("pruned", "scratch"), file="hypotheses"),
    "accuracy": ControlTest(
        run=compare_predictions, kinds=("pruned", "before-finetune"), file="predictions"
    ),
}
"""The test of a metric; the others are not tested."""


def _mcnemar(one: Path, other: Path) -> float:
    predictions = read_predictions(one), read_predictions(other)
    labels = [[label for _, label in each] for each in predictions]
    if len(labels[0]) == len(labels[1]) and labels[0] != labels[1]:
        raise DataError(
            "the labels differ, so the predictions are not of the same examples in the same order; "
            "comparisons of older versions have them in order of length, so measure these anew"
        )
    correct = [[prediction == label for prediction, label in each] for each in predictions]
    return mcnemar(*correct)


def _file(located: Located, name: str) -> Path:
    """The outputs, or the reference, that a record names.

    Raises:
        DataError: there is no such file.
    """
    path, record = located
    file = path.parent / record.files[name]
    if not file.is_file():
        raise DataError(
            f"{path}: its {name} file is not there ({os.path.normpath(file)}); put it there, or "
            "give --no-test"
        )
    return file
