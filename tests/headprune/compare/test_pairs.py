"""Comparisons keep the outputs of models, and test the methods against each other on them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headprune.compare.comparison import Comparison
from headprune.compare.pairs import PairTest, against_best
from headprune.compare.report import Report
from headprune.compare.run import compare
from headprune.compare.saved import load_report
from headprune.recovery.kinds import Recovery
from headprune.results.predictions import read_correct
from headprune.results.record import Record
from headprune.task_model import Measurement
from tests.headprune.compare.test_compare import Made, subject

EXAMPLES = 40


class Classifier(Made):
    """A model that gets as many of 40 examples right as its units are worth."""

    def _measured(self) -> Measurement:
        measured = super()._measured()
        right = min(EXAMPLES, round(measured.value))
        lines = [f"{n}\t{'yes' if n < right else 'no'}\tyes\n" for n in range(EXAMPLES)]
        predictions = "index\tprediction\tlabel\n" + "".join(lines)
        return replace(measured, value=100 * right / EXAMPLES, outputs={"predictions": predictions})


class WithoutOutputs(Classifier):
    def _measured(self) -> Measurement:
        return replace(super()._measured(), outputs={})


def classifier(kind: type[Made] = Classifier) -> Made:
    return kind(**{**vars(subject()), "metric": "accuracy"})


def compared(folder: Path, model: Made, **options: Any) -> Comparison:
    return compare(
        model,
        scores=["gradient", "entropy"],
        percents=[50],
        seeds=[1, 2],
        folder=folder,
        rounds=0,
        **options,
    )


def test_records_have_the_outputs_that_were_measured(tmp_path: Path) -> None:
    compared(tmp_path, classifier())
    paths = [*(tmp_path / "records").rglob("*.json")]
    assert len(paths) > 5
    for path in paths:
        record = Record.load(path)
        correct = read_correct(path.parent / record.files["predictions"])
        assert 100 * sum(correct) / EXAMPLES == record.value


def test_methods_are_tested_against_each_other(tmp_path: Path) -> None:
    comparison = compared(tmp_path, classifier(), recoveries=[Recovery.FINETUNE, Recovery.REFIT])
    tests = {test.when: test for test in comparison.pairs}
    assert set(tests) == {"before", "finetune", "refit"}
    before, after = tests["before"], tests["finetune"]
    assert {before.better, before.worse} == {"gradient", "entropy"}
    values = {
        row.score: row.before for row in comparison.rows if row.score in ("gradient", "entropy")
    }
    assert before.difference == pytest.approx(values[before.better] - values[before.worse])
    assert before.difference >= 0
    assert (before.models, after.models) == (1, 2)
    assert before.examples == EXAMPLES
    # One pair at each moment: nothing to correct for.
    assert all(test.adjusted == test.p_value <= 1 for test in comparison.pairs)


def test_the_tests_are_saved_and_in_the_tables(tmp_path: Path) -> None:
    comparison = compared(tmp_path, classifier())
    Report.of(comparison).save(tmp_path, title="A title")
    text = (tmp_path / "compare.md").read_text()
    assert "The best method against the others" in text
    assert "Methods against each other: paired approximate randomisation" in text
    _, report = load_report(tmp_path)
    assert report.comparison.pairs == comparison.pairs
    assert report.markdown(title="A title") == text


@pytest.mark.parametrize("model", [classifier(WithoutOutputs), subject()])
def test_without_outputs_there_are_no_tests(tmp_path: Path, model: Made) -> None:
    comparison = compared(tmp_path, model)
    assert comparison.pairs == ()
    Report.of(comparison).save(tmp_path, title="A title")
    assert "pairs" not in json.loads((tmp_path / "compare.json").read_text())
    assert "against each other" not in (tmp_path / "compare.md").read_text()


def test_a_number_without_outputs_leaves_its_method_out(tmp_path: Path) -> None:
    compared(tmp_path, classifier())
    assert compared(tmp_path, classifier()).pairs  # nothing is measured again
    for path in (tmp_path / "after").glob("*.json"):
        values = json.loads(path.read_text())
        del values["files"]  # as older versions wrote it
        path.write_text(json.dumps(values))
    assert {test.when for test in compared(tmp_path, classifier()).pairs} == {"before"}


def pair(better: str, worse: str, difference: float) -> PairTest:
    return PairTest(
        when="before",
        percent=50.0,
        better=better,
        worse=worse,
        difference=difference,
        models=1,
        p_value=0.5,
        adjusted=1.0,
        examples=9,
    )


def test_tables_have_the_best_method_against_each_other_one() -> None:
    tests = [pair("a", "b", 3.0), pair("c", "a", 1.0), pair("c", "b", 4.0)]
    assert against_best(tests) == [tests[1], tests[2]]
