"""Tests of models against the control of their seed, on the outputs that belong to records."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headprune.errors import DataError
from headprune.results.bleu import read_lines
from headprune.results.bleu_tokenizers import tokenizer_of
from headprune.results.predictions import mcnemar, numbered_predictions
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
        DataError: translations that cannot be read, are not of one test set, or have another BLEU
            than their records say.
    """
    reference = read_lines(_file(control, "reference"))
    for model in models:
        _require_reference(model, reference, of=control[0])
    outcome = paired_randomisation(
        read_lines(_file(control, "hypotheses")),
        [read_lines(_file(model, "hypotheses")) for model in models],
        reference,
        tokenizer=tokenizer_of(control[1].metric_signatures.get("bleu", "")),
    )
    for located, bleu in zip((control, *models), (outcome.base, *outcome.scores), strict=True):
        _require_figure(located, "bleu", bleu)
    return Tested(p_values=outcome.p_values, signature=outcome.signature)


def compare_predictions(control: Located, models: Sequence[Located]) -> Tested:
    """McNemar's exact test on the examples that are classified correctly.

    Raises:
        DataError: predictions that cannot be read, are not of one set, or have another accuracy
            than their records say.
        UsageError: scipy is not installed.
    """
    p_values = []
    for model in models:
        try:
            p_values.append(_mcnemar(control, model))
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


def _mcnemar(control: Located, model: Located) -> float:
    predictions = [numbered_predictions(_file(each, "predictions")) for each in (control, model)]
    labels = [[label for _, label in each.values()] for each in predictions]
    of_one_size = len(labels[0]) == len(labels[1])
    if of_one_size and labels[0] != labels[1]:
        raise DataError(
            "the labels differ, so the predictions are not of the same examples in the same order; "
            "comparisons of older versions have them in order of length, so measure these anew"
        )
    if of_one_size and [*predictions[0]] != [*predictions[1]]:
        raise DataError(
            "the predictions have other values of `index`, so they are of other examples"
        )
    correct = [[guess == label for guess, label in each.values()] for each in predictions]
    p_value = mcnemar(*correct)
    for located, values in zip((control, model), correct, strict=True):
        _require_figure(located, "accuracy", 100 * sum(values) / len(values))
    return p_value


_ROUNDING = 0.01
"""The largest difference between a record's figure and that of its outputs."""


def _require_figure(located: Located, metric: str, value: float) -> None:
    """Check that the outputs beside a record have the figure that it says.

    Raises:
        DataError: they have another.
    """
    path, record = located
    if abs(record.metrics[metric] - value) > _ROUNDING:
        raise DataError(
            f"{path}: says {record.metrics[metric]:.2f} {metric}, but its outputs have "
            f"{value:.2f}: they are of another model or another test set; measure it again, or "
            "give --no-test"
        )


def _require_reference(model: Located, reference: Sequence[str], *, of: Path) -> None:
    """Check that the reference of a model, where it is there, is that of the record ``of``.

    Raises:
        DataError: they differ.
    """
    path, record = model
    own = path.parent / record.files["reference"] if "reference" in record.files else None
    if own is not None and own.is_file() and read_lines(own) != reference:
        raise DataError(
            f"{path} against {of}: their reference translations differ, so they are not "
            "of one test set"
        )


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
