"""Tests of the methods of a comparison against each other, on the outputs of their models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from headprune.compare.records import Outcomes
from headprune.json_files import known_values
from headprune.results.bleu import read_lines
from headprune.results.bleu_counts import bleu_counts, many_bleu
from headprune.results.bleu_tokenizers import bleu_metric, tokenizer_of
from headprune.results.joint_randomisation import JointTest, joint_randomisation
from headprune.results.marks import CONSTANT
from headprune.results.predictions import read_correct, read_predictions
from headprune.results.record import Record
from headprune.results.significance import holm
from headprune.results.swaps import TRIALS, Counts

_KEYS = {"moment": "when"}
"""Keys in JSON that differ from the names of attributes."""


@dataclass(frozen=True, kw_only=True)
class PairTest:
    """Two methods at one moment and budget.

    Attributes:
        moment, percent: see ``Outcome``.
        better, worse: the methods, the one with the higher metric first.
        difference: of the means over seeds.
        models: the number of models of each method; a method that depends on no seed may have one
            for all of the other's.
        p_value: see ``joint_randomisation``.
        adjusted: the p-value after Holm's correction for all pairs of the moment and budget.
        examples: the number of examples.
    """

    moment: str
    percent: float
    better: str
    worse: str
    difference: float
    models: int
    p_value: float
    adjusted: float
    examples: int

    def as_json(self) -> dict[str, Any]:
        """The test as a JSON object."""
        return {_KEYS.get(name, name): value for name, value in asdict(self).items()}

    @classmethod
    def from_json(cls, values: Mapping[str, Any], *, source: str) -> PairTest:
        """The test of a JSON object.

        Raises:
            DataError: see ``known_values``.
        """
        return cls(**known_values(cls, values, source=source, keys=_KEYS))


def pair_tests(
    outcomes: Outcomes, *, metric: str, folder: Path, trials: int = TRIALS
) -> tuple[PairTest, ...]:
    """Test each pair of methods that do not draw, at equal cost.

    Random choice is left out, since other draws are what matters there; see
    ``headprune.compare.against_random``. So are methods of which a model gives the same output for
    every example, methods of which outputs are missing: of numbers of older versions, and of
    other metrics than accuracy and BLEU; and pairs whose outputs are in another order: older
    versions wrote predictions in order of length.

    Args:
        folder: the comparison's, to which the names of the records' files refer.

    Raises:
        DataError: files of outputs that cannot be read, or are not of one set of examples.
    """
    known = _METRICS.get(metric.lower())
    if known is None:
        return ()
    tests: list[PairTest] = []
    for moment, percent, records in _cells(outcomes):
        counts = {
            name: {
                seed: known.counts(record, folder) for seed, record in _by_seed(of_method).items()
            }
            for name, of_method in records.items()
            if all(_has_outputs(record, known.files, folder) for record in of_method)
        }
        examples = {
            name: {known.examples(record, folder) for record in records[name]} for name in counts
        }
        in_cell: list[tuple[tuple[str, str], int, JointTest]] = []
        for one, other in combinations(counts, 2):
            paired = _paired(counts[one], counts[other])
            if paired is None or len(examples[one] | examples[other]) > 1:
                continue
            test = joint_randomisation(*paired, metric=known.of_sums, trials=trials)
            names = (one, other) if test.difference >= 0 else (other, one)
            in_cell.append((names, max(map(len, paired)), test))
        adjusted = holm([test.p_value for _, _, test in in_cell])
        tests += [
            PairTest(
                moment=moment,
                percent=percent,
                better=better,
                worse=worse,
                difference=abs(test.difference),
                models=models,
                p_value=test.p_value,
                adjusted=p_value,
                examples=test.examples,
            )
            for ((better, worse), models, test), p_value in zip(in_cell, adjusted, strict=True)
        ]
    return tuple(tests)


def against_best(tests: Sequence[PairTest]) -> list[PairTest]:
    """The tests of the best method of each moment and budget against the others.

    There is no best one where all models have the same metric.
    """
    cells: dict[tuple[str, float], list[PairTest]] = {}
    for test in tests:
        cells.setdefault((test.moment, test.percent), []).append(test)
    chosen = []
    for cell in cells.values():
        if not any(test.difference for test in cell):
            continue
        names = dict.fromkeys(name for test in cell for name in (test.better, test.worse))
        wins = {name: sum(test.better == name for test in cell) for name in names}
        best = max(wins, key=wins.__getitem__)
        with_best = [test for test in cell if best in (test.better, test.worse)]
        chosen += sorted(with_best, key=lambda test: test.difference)
    return chosen


def _has_outputs(record: Record, names: Sequence[str], folder: Path) -> bool:
    """Tell if a model's outputs are known, and say something on how its units were chosen."""
    files = [folder / record.files[name] for name in names if name in record.files]
    is_known = len(files) == len(names) and all(path.is_file() for path in files)
    return is_known and not record.training.get(CONSTANT)


def _by_seed(records: Sequence[Record]) -> dict[int, Record]:
    """The records of a method by seed; 0 for its only one, if that depends on no seed."""
    if len(records) == 1 and records[0].finetune == "none":
        return {0: records[0]}
    return {record.seed: record for record in records}


def _paired(
    one: Mapping[int, Counts], other: Mapping[int, Counts]
) -> tuple[list[Counts], list[Counts]] | None:
    """The models of the seeds that both methods have; None if there are none.

    A model that depends on no seed is paired with each of the other method.
    """
    if 0 in one or 0 in other:
        return [*one.values()], [*other.values()]
    seeds = sorted({*one} & {*other})
    return ([one[seed] for seed in seeds], [other[seed] for seed in seeds]) if seeds else None


def _cells(outcomes: Outcomes) -> Iterator[tuple[str, float, Mapping[str, list[Record]]]]:
    """The records of each method, by moment and budget."""
    for moment, percent, cells in outcomes.cells():
        yield (
            moment,
            percent,
            {
                name: outcomes.records(name, percent, outcomes.moment_of(name, moment) or moment)
                for name in cells
                if name != "random"
            },
        )


def _correct(record: Record, folder: Path) -> Counts:
    """The share of the accuracy, in percent, that each example adds: N x 1."""
    correct = np.array(read_correct(folder / record.files["predictions"]), dtype=np.float64)
    return 100 * correct[:, None] / len(correct)


def _labels(record: Record, folder: Path) -> tuple[str, ...]:
    return tuple(label for _, label in read_predictions(folder / record.files["predictions"]))


def _accuracy(sums: Counts) -> npt.NDArray[np.float64]:
    """The accuracy in percent, R x 1 -> R."""
    return sums[:, 0]


def _references(record: Record, folder: Path) -> tuple[str, ...]:
    return tuple(read_lines(folder / record.files["reference"]))


def _sentence_counts(record: Record, folder: Path) -> Counts:
    """The counts of BLEU of each sentence, N x 10; see ``bleu_counts``."""
    names = ("hypotheses", "reference")
    texts, references = (read_lines(folder / record.files[name]) for name in names)
    metric = bleu_metric(tokenizer_of(record.metric_signatures.get("bleu", "")))
    return bleu_counts(texts, references, metric).astype(np.float64)


@dataclass(frozen=True, kw_only=True)
class _Metric:
    """A metric that is computed from counts by example.

    Attributes:
        files: the files of outputs that a record needs.
        counts: reads the counts of a record's model, N x K; its files are relative to a folder.
        examples: reads what tells the examples apart, in their order.
        of_sums: the metric of each row of summed counts, R x K -> R.
    """

    files: tuple[str, ...]
    counts: Callable[[Record, Path], Counts]
    examples: Callable[[Record, Path], tuple[str, ...]]
    of_sums: Callable[[Counts], npt.NDArray[np.float64]]


_METRICS: Mapping[str, _Metric] = {
    "accuracy": _Metric(
        files=("predictions",), counts=_correct, examples=_labels, of_sums=_accuracy
    ),
    "bleu": _Metric(
        files=("hypotheses", "reference"),
        counts=_sentence_counts,
        examples=_references,
        of_sums=many_bleu,
    ),
}
