"""`headprune difference`: rows of trained models, seed by seed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from scipy.stats import ttest_rel

from headprune.cli.group import command_named
from headprune.errors import DataError, UsageError
from headprune.origin import Origin
from headprune.report.differences import ModelRow, differences
from headprune.results.control_tests import Located
from studies.published import unpack

from .conftest import Make

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"


def folder_of(records: Sequence[Located]) -> Path:
    return records[0][0].parents[1]


def row(records: Sequence[Located]) -> ModelRow:
    return ModelRow.load(folder_of(records))


def run(*arguments: object) -> None:
    command_named("difference").main([*map(str, arguments)], standalone_mode=False)


def test_the_difference_of_two_rows_is_that_of_a_paired_t_test(translations: Make) -> None:
    control = row(translations(30.0, 31.0, 29.0, kind="control"))
    half = row(translations(29.5, 30.9, 27.6, percent=50))
    (found,) = differences([(half, control)])
    assert found.by_seed == pytest.approx({1: -0.5, 2: -0.1, 3: -1.4})
    expected = ttest_rel([29.5, 30.9, 27.6], [30.0, 31.0, 29.0])
    assert found.p_value == pytest.approx(expected.pvalue)
    assert found.estimate is not None
    assert found.estimate.interval() == pytest.approx(tuple(expected.confidence_interval()))
    assert found.p_values == []  # no outputs


def test_pairs_are_averaged_and_others_subtracted_seed_by_seed(translations: Make) -> None:
    control = row(translations(30.0, 31.0, kind="control"))
    half, most = row(translations(29.0, 29.0, percent=50)), row(translations(26, 29, percent=75))
    (found,) = differences([(half, control), (most, control)])
    assert found.by_seed == {1: -2.5, 2: -2.0}
    long_control = row(translations(32.0, 33.0, kind="control", study="long"))
    long_half = row(translations(32.0, 32.5, percent=50, study="long"))
    (change,) = differences([(long_half, long_control)], less=[(half, control)])
    assert change.by_seed == {1: 1.0, 2: 1.5} and change.mean == 1.25


def test_seeds_that_a_row_lacks_are_left_out(
    translations: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    control = translations(30.0, 31.0, 32.0, kind="control")
    half = translations(29.0, 29.5, percent=50)
    run(folder_of(half), folder_of(control))
    printed = capsys.readouterr().out
    cells = [cell.strip() for cell in printed.splitlines()[4].split("|")]
    assert cells[1:-1] == ["bleu", "-1.25", "-4.43 to +1.93", "2", "-1.00, -1.50", "0.1257"]
    assert "- left out, as some rows lack them: seeds 3" in printed
    assert "- difference: 50% of made-up (translation, " in printed


def test_the_unpruned_model_stands_for_all_seeds(translations: Make) -> None:
    baseline = row(translations(30.0, kind="baseline"))
    control = row(translations(30.5, 31.5, kind="control"))
    (found,) = differences([(control, baseline)])
    assert found.by_seed == {1: 0.5, 2: 1.5}


def test_a_plan_that_is_not_drawn_has_one_model_right_after_pruning(translations: Make) -> None:
    half = row(translations(30.5, 31.5, percent=50))
    by_score = {"percent": 50, "kind": "before-finetune"}
    records = translations(20.0, **by_score)
    drawn = row(records)
    (found,) = differences([(half, drawn)])
    assert found.by_seed == {1: 10.5}
    path, record = records[0]
    origin = Origin(method="gradient", budget="50%")
    replace(record, plan=record.plan.with_origin(origin), finetune="none").save(path)
    (found,) = differences([(half, row(records))])
    assert found.by_seed == {1: 10.5, 2: 11.5}


def test_a_row_is_called_by_what_was_done_after_pruning(translations: Make) -> None:
    ((path, record), *_) = translations(30.5, percent=50)
    assert ModelRow.load(path.parents[1]).name == "50% of made-up (translation, not trained)"
    replace(record, signature=f"{record.signature}|recovery:refit").save(path)
    assert ModelRow.load(path.parents[1]).name == "50% of made-up (translation, not trained, refit)"


def test_without_a_spread_there_is_no_interval(
    translations: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    control, half = translations(30.0, kind="control"), translations(29.0, percent=50)
    run(folder_of(half), folder_of(control))
    printed = capsys.readouterr().out
    assert "-1.00" in printed and " to " not in printed.split("\n\n")[1]


def test_models_are_tested_on_their_outputs(
    translations: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    reference = [f"word {n} and some more words of text {n}" for n in range(40)]
    wrong = [line.replace("words", "terms") for line in reference]
    half = translations(100.0, 100.0, percent=50, texts=lambda seed: (reference, reference))
    control = translations(
        *(45.90, 100.0),
        kind="control",
        texts=lambda seed: (wrong if seed == 1 else reference, reference),
    )
    with pytest.raises(DataError, match=r"says 45\.90 bleu, but its outputs have"):
        run(folder_of(half), folder_of(control))
    run(folder_of(half), folder_of(control), "--no-test")
    assert "models that differ" not in capsys.readouterr().out
    for path, record in control[:1]:
        from headprune.results.bleu import bleu_and_chrf

        value = bleu_and_chrf(wrong, reference, tokenizer="13a").bleu
        replace(record, metrics={"bleu": value}).save(path)
    run(folder_of(half), folder_of(control))
    assert "1 of 2 (< 0.001, 1.000)" in capsys.readouterr().out


def test_rows_that_cannot_be_compared(translations: Make, classifications: Make) -> None:
    control = translations(30.0, 31.0, kind="control")
    half = translations(29.0, 29.5, percent=50)
    others = classifications(80.0, 81.0, percent=50)
    with pytest.raises(UsageError, match="give folders in pairs, FIRST SECOND; .* has no second"):
        run(folder_of(half))
    with pytest.raises(UsageError, match="--less a: give two folders with a comma"):
        run(folder_of(half), folder_of(control), "--less", "a")
    with pytest.raises(DataError, match="has records of several rows, .*; give the folder of one"):
        ModelRow.load(folder_of(half).parents[1])
    with pytest.raises(DataError, match="of the task .*, but .* of translation"):
        differences([(row(half), row(others))])
    with pytest.raises(UsageError, match="no record in this folder"):
        run(folder_of(half), PUBLISHED.parent / "guides")
    alone = ModelRow(folder=Path("alone"), records={2: row(half).records[2]})
    first = ModelRow(folder=Path("first"), records={1: row(half).records[1]})
    with pytest.raises(DataError, match="no seed in common: first has 1; alone has 2"):
        differences([(first, alone)])


def test_published_differences_come_out_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("enru-shipped", "enru-shipped-long"):
        unpack(PUBLISHED / name / "runs.tar.gz", tmp_path / name)
    long, short = (tmp_path / name / "finetuned" for name in ("enru-shipped-long", "enru-shipped"))
    less = f"{short / '75pct'},{short / 'control'}"
    run(long / "75pct", long / "control", "--less", less)
    assert "+1.62 to +2.87 |   3 | +1.99, +2.49, +2.26 | 0.0042 |" in capsys.readouterr().out
    readme = (PUBLISHED / "enru-shipped-long" / "README.md").read_text(encoding="utf-8")
    assert (
        "2.25 BLEU of the loss** (1.62 to 2.87; 1.99, 2.49 and 2.26 by seed; p = 0.004)" in readme
    )
