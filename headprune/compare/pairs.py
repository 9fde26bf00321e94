"""Tests of the methods of a comparison against each other, on the outputs of their models."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import numpy as np
import numpy.typing as npt

from headprune.compare.records import Outcomes
from headprune.results.bleu import read_lines
from headprune.results.bleu_counts import bleu_counts, many_bleu
from headprune.results.bleu_tokenizers import bleu_metric, tokenizer_of
from headprune.results.joint_randomisation import TRIALS, Counts, joint_randomisation
from headprune.results.predictions import read_correct
from headprune.results.record import Record
from headprune.results.significance import holm


@dataclass(frozen=True, kw_only=True)
class PairTest:
    """Two methods at one moment and budget.

    Attributes:
        when, percent: the moment and the budget; see ``Outcome``.
        better, worse: the methods, the one with the higher metric first.
        difference: of the means over seeds.
        models: the number of models of each method; a method that depends on no seed may have one
            for all of the other's.
        p_value: see ``joint_randomisation``.
        adjusted: the p-value after Holm's correction for all pairs of the moment and budget.
        examples: the number of examples.
    """

    when: str
    percent: float
    better: str
    worse: str
    difference: float
    models: int
    p_value: float
    adjusted: float
    examples: int


def pair_tests(
    outcomes: Outcomes, *, metric: str, folder: Path, trials: int = TRIALS
) -> tuple[PairTest, ...]:
    """Test each pair of methods that do not draw, at equal cost.

    Random choice is left out, since other draws are what matters there; see
    ``headprune.compare.against_random``. So are methods of which a model has no outputs: those of
    older versions, and of other metrics than accuracy and BLEU.

    Args:
        folder: the comparison's, to which the names of the records' files refer.

    Raises:
        DataError: files of outputs that cannot be read, or are not of one set of examples.
    """
    counted = _METRICS.get(metric.lower())
    if counted is None:
        return ()
    tests: list[PairTest] = []
    for when, percent, records in _cells(outcomes):
        counts = {
            name: [counted.counts(record, folder) for record in of_method]
            for name, of_method in records.items()
            if all({*counted.files} <= {*record.files} for record in of_method)
        }
        found = []
        for one, other in combinations(counts, 2):
            if 1 < len(counts[one]) != len(counts[other]) > 1:
                continue  # a method that lacks a seed
            test = joint_randomisation(
                counts[one], counts[other], metric=counted.of_sums, trials=trials
            )
            names = (one, other) if test.difference >= 0 else (other, one)
            found.append((names, test))
        adjusted = holm([test.p_value for _, test in found])
        tests += [
            PairTest(
                when=when,
                percent=percent,
                better=better,
                worse=worse,
                difference=abs(test.difference),
                models=max(len(counts[better]), len(counts[worse])),
                p_value=test.p_value,
                adjusted=p_value,
                examples=len(counts[better][0]),
            )
            for ((better, worse), test), p_value in zip(found, adjusted, strict=True)
        ]
    return tuple(tests)


def against_best(tests: Sequence[PairTest]) -> list[PairTest]:
    """The tests of the best method of each moment and budget against the others."""
    cells: dict[tuple[str, float], list[PairTest]] = {}
    for test in tests:
        cells.setdefault((test.when, test.percent), []).append(test)
    chosen = []
    for cell in cells.values():
        names = dict.fromkeys(name for test in cell for name in (test.better, test.worse))
        wins = {name: sum(test.better == name for test in cell) for name in names}
        best = max(wins, key=wins.__getitem__)
        with_best = [test for test in cell if best in (test.better, test.worse)]
        chosen += sorted(with_best, key=lambda test: test.difference)
    return chosen


def _cells(outcomes: Outcomes) -> Iterator[tuple[str, float, Mapping[str, list[Record]]]]:
    """The records of each method, with models in the order of seeds, by moment and budget."""
    for when, percent, cells in outcomes.cells():
        yield (
            when,
            percent,
            {
                name: sorted(
                    outcomes.records(name, percent, outcomes.moment_of(name, when) or when),
                    key=lambda record: record.seed,
                )
                for name in cells
                if name != "random"
            },
        )


def _correct(record: Record, folder: Path) -> Counts:
    """The share of the accuracy, in percent, that each example adds: N x 1."""
    correct = np.array(read_correct(folder / record.files["predictions"]), dtype=np.float64)
    return 100 * correct[:, None] / len(correct)


def _accuracy(sums: Counts) -> npt.NDArray[np.float64]:
    """The accuracy in percent, R x 1 -> R."""
    return sums[:, 0]


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
        of_sums: the metric of each row of summed counts, R x K -> R.
    """

    files: tuple[str, ...]
    counts: Callable[[Record, Path], Counts]
    of_sums: Callable[[Counts], npt.NDArray[np.float64]]


_METRICS: Mapping[str, _Metric] = {
    "accuracy": _Metric(files=("predictions",), counts=_correct, of_sums=_accuracy),
    "bleu": _Metric(files=("hypotheses", "reference"), counts=_sentence_counts, of_sums=many_bleu),
}
