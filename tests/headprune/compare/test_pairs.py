"""Comparisons keep the outputs of models, and test the methods against each other on them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest

from headprune.compare.comparison import Comparison
from headprune.compare.notes import notes_of
from headprune.compare.pairs import PairTest, against_best
from headprune.compare.records import Outcomes
from headprune.compare.report import Report
from headprune.compare.run import compare
from headprune.compare.saved import load_report
from headprune.recovery.kinds import Recovery
from headprune.report.make import report_of
from headprune.results.bleu import bleu_and_chrf, read_lines
from headprune.results.predictions import read_correct
from headprune.results.record import Record
from headprune.results.significance import holm
from headprune.results.stats import paired_randomisation
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


class InOtherOrders(Classifier):
    """Its predictions are in another order for each model, as if of two versions."""

    numbers = count()

    def _measured(self) -> Measurement:
        measured = super()._measured()
        header, *lines = measured.outputs["predictions"].splitlines(keepends=True)
        lines[next(self.numbers) % EXAMPLES] = "0\tno\tno\n"
        lines = [f"{n}\t{line.split(chr(9), 1)[1]}" for n, line in enumerate(lines)]
        return replace(measured, outputs={"predictions": header + "".join(lines)})


class WithoutOutputs(Classifier):
    def _measured(self) -> Measurement:
        return replace(super()._measured(), outputs={})


def classifier(kind: type[Made] = Classifier) -> Made:
    return kind(**{**vars(subject()), "metric": "accuracy"})


def compared(folder: Path, model: Made, **options: Any) -> Comparison:
    return compare(
        model,
        percents=[50],
        seeds=[1, 2],
        folder=folder,
        rounds=0,
        **{"scores": ["gradient", "entropy"], **options},
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
    tests = {test.moment: test for test in comparison.pairs}
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


def test_outputs_in_another_order_are_not_paired(tmp_path: Path) -> None:
    options = {"scores": ["gradient", "bottom"], "percents": [50], "seeds": [1], "rounds": 0}
    for kind, found in ((Classifier, 2), (InOtherOrders, 0)):
        comparison = compare(classifier(kind), folder=tmp_path / kind.__name__, **options)
        assert len(comparison.pairs) == found


def test_p_values_are_corrected_for_all_pairs_of_a_cell(tmp_path: Path) -> None:
    comparison = compare(
        classifier(),
        scores=["gradient", "entropy", "bottom"],
        percents=[25, 50],
        seeds=[1],
        folder=tmp_path,
        rounds=0,
    )
    cells: dict[tuple[str, float], list[PairTest]] = {}
    for test in comparison.pairs:
        cells.setdefault((test.moment, test.percent), []).append(test)
    assert len(cells) == 4 and all(len(cell) == 3 for cell in cells.values())
    for cell in cells.values():
        assert [test.adjusted for test in cell] == holm([test.p_value for test in cell])
    assert any(test.adjusted > test.p_value for test in comparison.pairs)


def test_a_method_that_trains_is_tested_after_its_own_training(tmp_path: Path) -> None:
    comparison = compare(
        classifier(),
        scores=["gradient", "l0-gates"],
        percents=[50],
        seeds=[1, 2],
        folder=tmp_path,
        rounds=0,
    )
    (test,) = comparison.pairs
    assert test.moment == "finetune" and test.models == 2
    means = {
        name: fmean(values)
        for name, values in {
            "gradient": [row.after for row in comparison.rows if row.score == "gradient"],
            "l0-gates": [row.before for row in comparison.rows if row.score == "l0-gates"],
        }.items()
    }
    assert test.difference == pytest.approx(means[test.better] - means[test.worse])
    note = next(
        line for line in notes_of(comparison, Outcomes.of(comparison)) if "each other" in line
    )
    assert "l0-gates: the outputs after the method's own training" in note


def translations(model: Made) -> Mapping[str, str]:
    """One word is wrong in every sentence of the heads that are not kept."""
    kept = {(layer, head) for layer, heads in enumerate(model.plan.kept["ES"]) for head in heads}
    lines = [f"the dog number {n} sees a cat and {n % 3} birds" for n in range(EXAMPLES)]
    wrong = [
        line if (n % 8 // 4, n % 4) in kept else line.replace("cat", "cow")
        for n, line in enumerate(lines)
    ]
    texts = {"hypotheses": wrong, "reference": lines}
    return {name: "".join(f"{line}\n" for line in text) for name, text in texts.items()}


class Translator(Made):
    """A model with translations and their BLEU."""

    def _measured(self) -> Measurement:
        outputs = translations(self)
        bleu = bleu_and_chrf(outputs["hypotheses"].splitlines(), outputs["reference"].splitlines())
        return replace(super()._measured(), value=bleu.bleu, outputs=outputs)


def test_translations_are_tested_by_bleu(tmp_path: Path) -> None:
    comparison = compare(
        Translator(**{**vars(subject(can_finetune=False)), "metric": "BLEU"}),
        scores=["gradient", "entropy"],
        percents=[50],
        seeds=[1],
        folder=tmp_path,
        rounds=0,
        recoveries=[Recovery.NONE],
    )
    (test,) = comparison.pairs
    texts = {}
    for path in (tmp_path / "records" / "before-finetune").rglob("*.json"):
        record = Record.load(path)
        reference = read_lines(path.parent / record.files["reference"])
        texts[record.row] = read_lines(path.parent / record.files["hypotheses"])
        assert bleu_and_chrf(texts[record.row], reference).bleu == pytest.approx(record.value)
    expected = paired_randomisation(
        texts[f"{test.better} 50%"], [texts[f"{test.worse} 50%"]], reference
    )
    assert test.p_value == pytest.approx(expected.p_values[0], abs=0.02)
    assert test.difference == pytest.approx(expected.base - expected.scores[0])


def test_records_can_be_moved_with_their_outputs(tmp_path: Path) -> None:
    compared(tmp_path / "whole", classifier())
    moved = shutil.move(tmp_path / "whole" / "records", tmp_path / "moved")
    assert "McNemar" in report_of([Path(moved)]).markdown


def test_missing_outputs_and_constant_models_leave_a_method_out(tmp_path: Path) -> None:
    compared(tmp_path, classifier())
    for path in (tmp_path / "records" / "outputs" / "after").glob("*-seed1.*"):
        path.unlink()
    assert {test.moment for test in compared(tmp_path, classifier()).pairs} == {"before"}
    for path in (tmp_path / "before").glob("*.json"):
        values = json.loads(path.read_text()) | {"constant": True}
        path.write_text(json.dumps(values))
    assert compared(tmp_path, classifier()).pairs == ()


def test_a_run_without_trainings_keeps_the_name_of_the_data(tmp_path: Path) -> None:
    first = compared(tmp_path, classifier())
    Report.of(first).save(tmp_path, title="A title")
    other = replace(classifier(), data_name="made.up[-30%]", finetune_name="none")
    other.can_finetune = False
    assert compared(tmp_path, other).data_name == first.data_name


def test_the_tests_are_saved_and_in_the_tables(tmp_path: Path) -> None:
    comparison = compared(tmp_path, classifier(), scores=["gradient", "adversarial"])
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
    assert {test.moment for test in compared(tmp_path, classifier()).pairs} == {"before"}


def pair(better: str, worse: str, difference: float) -> PairTest:
    return PairTest(
        moment="before",
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
