"""Tables and figures of a study."""

from __future__ import annotations

import csv
import io
import json
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headprune import DataError, UsageError
from headprune.report.document import Document
from headprune.report.drawing import save_drawing
from headprune.report.figure import draw
from headprune.report.make import make_report
from headprune.report.render import json_values, markdown, spreadsheet
from headprune.report.saved_tables import load_table
from headprune.report.table import summarise
from headprune.report.translation import TranslationStudy, document, study_of
from headprune.results.paper import paper_table
from headprune.results.record import Record

from .conftest import Make


def whole_study(make: Make) -> list[tuple[Path, Record]]:
    """Baseline, control and two percentages over three seeds; one is much worse."""
    results = [make("baseline", row="baseline", percent=0, wrong=6)]
    for seed in (1, 2, 3):
        results += [
            make("control", row="control", percent=0, seed=seed, wrong=2 + seed),
            make("pruned", row="75%", percent=75, seed=seed, wrong=20 + seed),
            make("pruned", row="25%", percent=25, seed=seed, wrong=2 + seed),
            make("before-finetune", row="25%", percent=25, seed=seed, wrong=25),
        ]
    return results


def summary(results: list[tuple[Path, Record]], **options: Any) -> TranslationStudy:
    return study_of(summarise(results, **options), title="Made up")


def report(study: TranslationStudy, **options: Any) -> Document:
    return document(study.table, title="Made up", **options)


def to_markdown(study: TranslationStudy, **options: Any) -> str:
    return markdown.render(report(study, **options))


@pytest.mark.parametrize(
    ("select", "drawn"), [("random", "the heads and "), ("fisher", ""), ("given", "")]
)
def test_the_notes_say_what_a_seed_draws(make: Make, select: str, drawn: str) -> None:
    results = [make("control", row="control", percent=0, seed=1)]
    path, record = make("pruned", row="50%", percent=50, seed=1)
    signature = record.signature.replace("select:random", f"select:{select}")
    results.append((path, replace(record, signature=signature)))
    text = to_markdown(summary(results, test=False))
    assert f"A seed draws {drawn}the order of the fine-tuning data" in text


def to_csv(study: TranslationStudy) -> str:
    return spreadsheet.render(report(study))


def test_rows_are_means_over_seeds_beside_the_control(make: Make) -> None:
    results = whole_study(make)
    table = summary(results, test=False)
    assert [line.row.label for line in table.lines] == ["25%", "75%"]
    worse = table.lines[1]
    values = [r.value for _, r in results if r.row == "75%" and r.kind == "pruned"]
    assert worse.bleu.mean == pytest.approx(statistics.mean(values))
    assert worse.bleu.sd == pytest.approx(statistics.stdev(values))
    assert worse.cell.seeds == (1, 2, 3)
    assert worse.row.heads_kept == 6
    assert worse.cell.parameters == 6000
    assert table.control is not None
    assert worse.cell.delta == pytest.approx(worse.bleu.mean - table.control.bleu.mean)
    assert table.lines[0].cell.delta == pytest.approx(0)
    assert table.lines[0].before is not None
    assert worse.before is None


def test_a_model_that_translates_all_sentences_alike_is_marked(make: Make) -> None:
    results = whole_study(make)
    assert "†" not in to_markdown(summary(results, test=False))
    results = [
        (path, replace(result, training={**result.training, "constant_prediction": True}))
        if (result.kind, result.row, result.seed) == ("pruned", "75%", 2)
        else (path, result)
        for path, result in results
    ]
    table = summary(results, test=False)
    assert [line.cell.constant for line in table.lines] == [0, 1]
    text = to_markdown(table)
    assert [line.split("|")[1].strip() for line in text.splitlines() if " † |" in line] == ["75%"]
    assert "- †: the model of one seed or more gives the same output for every example" in text
    assert [row["constant_translations"] for row in csv.DictReader(io.StringIO(to_csv(table)))] == [
        *("0", "0", "0", "1")
    ]


def test_a_difference_is_over_the_seeds_that_have_a_control(make: Make, tmp_path: Path) -> None:
    controls = [
        make("control", row="control", percent=0, seed=s, wrong=w) for s, w in [(1, 2), (9, 25)]
    ]
    others = [make(seed=seed, wrong=wrong) for seed, wrong in [(1, 4), (2, 20), (3, 28)]]
    others += [make(row="25%", percent=25, seed=2, wrong=9)]
    study = summary([*controls, *others], test=False)
    without, paired = (line.cell for line in study.lines)
    assert (paired.delta, paired.pairs) == (others[0][1].value - controls[0][1].value, 1)
    mean = statistics.mean(record.value for _, record in controls)
    assert without.delta == pytest.approx(others[3][1].value - mean) and without.pairs is None
    assert f"{paired.delta:+.2f} (1 pair)" in to_markdown(study)
    # Earlier versions wrote the difference to the mean of all controls.
    out = tmp_path / "out"
    make_report([path for path, _ in [*controls, *others]], test=False).save(out)
    content = json.loads((out / "table.json").read_text())
    (row,) = (row for row in content["rows"] if row.pop("pairs", None))
    row["delta"] = paired.value.mean - mean
    (out / "table.json").write_text(json.dumps(content))
    _, table, _ = load_table(out / "table.json")
    assert paired in [each.cells["translation"] for each in table.rows]


def test_with_baselines_alone_a_difference_is_to_their_mean(make: Make) -> None:
    results = [make("baseline", row="baseline", percent=0), make(wrong=9), make(seed=2, wrong=20)]
    (cell,) = (line.cell for line in summary(results, test=False).lines)
    assert cell.delta == pytest.approx(cell.value.mean - results[0][1].value)
    assert cell.pairs is None


def test_without_a_control_rows_are_set_beside_the_baseline(make: Make) -> None:
    results = [
        make("baseline", row="baseline", percent=0, wrong=0),
        make("pruned", row="50%", wrong=10),
    ]
    table = summary(results)
    assert table.compared_with is table.baseline
    cell = table.lines[0].cell
    assert cell.delta is not None and cell.delta < 0
    assert cell.p_values == ()
    assert "Δ baseline" in to_markdown(table)


def test_each_model_is_tested_against_the_control_of_its_seed(make: Make) -> None:
    table = summary(whole_study(make))
    same, worse = (line.cell for line in table.lines)
    assert len(same.p_values) == len(worse.p_values) == 3
    assert min(same.p_values) > 0.9
    assert max(worse.p_values) < 0.05
    text = to_markdown(table)
    assert "3 of 3" in text
    signature = table.table.tasks["translation"].test_signature
    assert signature is not None and signature in text


def test_markdown_is_a_table_with_signatures_and_the_number_of_seeds(make: Make) -> None:
    text = to_markdown(summary(whole_study(make), test=False))
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 4
    assert len({line.count("|") for line in rows}) == 1
    assert len({len(line) for line in rows}) == 1
    assert all("-" in cell for cell in rows[1].strip("|").split("|"))
    assert "|data:wmt14.en-ru|headprune:" in text
    assert "nrefs:1|case:mixed" in text
    assert "over n seeds" in text


def test_csv_and_json_hold_the_same_numbers(make: Make) -> None:
    table = summary(whole_study(make), test=False)
    lines = list(csv.DictReader(io.StringIO(to_csv(table))))
    content = json.loads(json_values.render(report(table)))
    assert [line["row"] for line in lines] == ["baseline", "control", "25%", "75%"]
    for line, row in zip(lines[2:], content["rows"], strict=True):
        assert float(line["bleu_mean"]) == pytest.approx(row["bleu"]["mean"], abs=1e-4)
        assert float(line["bleu_sd"]) == pytest.approx(row["bleu"]["sd"], abs=1e-4)
        assert line["seeds"] == " ".join(map(str, row["seeds"]))
        assert len(row["values"]) == 3
    assert lines[0]["bleu_sd"] == ""


def test_copies_of_a_record_count_once_and_contradictions_are_refused(make: Make) -> None:
    path, record = make(seed=1)
    elsewhere = (path.parent / "elsewhere" / path.name, replace(record, seconds=3.0, device="x"))
    (line,) = summary([(path, record), elsewhere], test=False).lines
    assert len(line.cell.values) == 1
    other = (path, replace(record, metrics={**record.metrics, "bleu": 1.0}))
    with pytest.raises(
        DataError, match="seed 1 of '50%' has two records, .* different metrics; leave"
    ):
        summary([(path, record), other], test=False)


def of_length(finetune: str, located: tuple[Path, Record]) -> tuple[Path, Record]:
    path, record = located
    signature = record.signature.replace("finetune:30ep", f"finetune:{finetune}")
    return path, replace(record, finetune=finetune, signature=signature)


def test_fine_tunings_of_several_lengths_are_no_table(make: Make) -> None:
    control = make("control", row="control", percent=0)
    first, second = make(), make(seed=2)
    with pytest.raises(DataError, match=r"seed1/result.json: translation: '50%' was fine-tuned .*"):
        summarise([control, of_length("1ep", first), of_length("1ep", second)], test=False)
    with pytest.raises(DataError, match="seed 2 of '50%' was fine-tuned for 1ep, but seed 1 for 3"):
        summarise([first, of_length("1ep", second)], test=False)
    # Models without a fine-tuning, from scratch and of variants of the same length are compared.
    others = [
        make("before-finetune"),
        of_length("scratch-30ep", make("scratch", row="again")),
        of_length("30ep,layerdrop=0.2", make(row="dropped")),
    ]
    table = summarise([control, first, second, *others], test=False)
    assert all(row.cells["translation"].delta is not None for row in table.rows)


def test_models_that_were_fine_tuned_more_often_than_the_control_have_no_difference(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    results = [
        make("control", row="control", percent=0),
        make(),
        of_length("30ep+30ep", make(row="gates 50%")),
    ]
    rows = {row.label: row.cells["translation"] for row in summarise(results).rows}
    assert rows["50%"].delta is not None and rows["50%"].p_values
    assert rows["gates 50%"].delta is None and not rows["gates 50%"].p_values
    assert capsys.readouterr().err == (
        "warning: translation: 'gates 50%' was fine-tuned for 30ep+30ep, the control for 30ep: no "
        "difference is shown\n"
    )


def test_models_from_scratch_are_rows_of_their_own(make: Make) -> None:
    results = whole_study(make)
    results += [make("scratch", row="75% from scratch", percent=75, seed=s) for s in (1, 2, 3)]
    study = summary(results)
    labels = [line.row.label for line in study.lines]
    assert sorted(labels) == ["25%", "75%", "75% from scratch"]
    (scratch,) = (line for line in study.lines if line.row.kind == "scratch")
    assert len(scratch.cell.p_values) == 3 and scratch.before is None
    assert "- 75% from scratch: not pruned from the baseline, but trained" in to_markdown(study)


def test_heads_that_a_fine_tuning_chose_are_named(make: Make) -> None:
    results = whole_study(make)
    path, record = make(row="75% l0-gates", percent=75)
    with_gates = record.signature.replace("select:random", "select:l0-gates")
    note = "- 75% l0-gates: the heads are chosen by gates with an L0 penalty during the fine-tuning"
    once = replace(record, signature=with_gates)
    assert note in to_markdown(summary([*results, (path, once)], test=False))
    assert "gates with an L0 penalty" not in to_markdown(summary(results, test=False))
    again = with_gates.replace("finetune:30ep", "finetune:30ep+30ep")
    twice = replace(once, finetune="30ep+30ep", signature=again)
    assert note not in to_markdown(summary([*results, (path, twice)], test=False))


def test_bleu_before_fine_tuning_is_that_of_the_same_kind_and_form(make: Make) -> None:
    results = [
        make("before-finetune", wrong=20),
        make("before-finetune", form="mask", wrong=10),
        make(),
        make(form="mask"),
        make("scratch"),
        make("refitted"),
    ]
    study = summary(results, test=False)
    before = {
        (line.row.kind, line.row.form): line.before and line.before.value.mean
        for line in study.lines
    }
    assert before == {
        ("pruned", "remove"): results[0][1].value,
        ("pruned", "mask"): results[1][1].value,
        ("scratch", "remove"): None,
        ("refitted", "remove"): None,
    }
    text = to_markdown(study)
    rows = [
        line.replace(" ", "").split("|")[1:3]
        for line in text.splitlines()
        if line.startswith("| 50%")
    ]
    assert sorted(rows) == [
        *(["50%", "mask"], ["50%", "remove"], ["50%", "remove"], ["50%,re-fitted", "remove"])
    ]


def test_models_without_a_fine_tuning_are_rows_of_their_own(make: Make, tmp_path: Path) -> None:
    results = [make("control", row="control", percent=0), make(row="25%", percent=25)]
    results.append(make("before-finetune", row="75%", percent=75, wrong=25))
    study = summary(results, test=False)
    assert [line.name for line in study.lines] == ["25%", "75%, not fine-tuned"]
    assert study.lines[1].bleu.mean == results[2][1].value and study.lines[1].before is None
    assert "| 75%, not fine-tuned |" in to_markdown(study)
    out = tmp_path / "out"
    make_report([path for path, _ in results], test=False).save(out)
    _, table, again = load_table(out / "table.json")
    assert [row.kind for row in table.rows] == ["pruned", "before-finetune"]
    assert markdown.render(again).splitlines()[2:] == to_markdown(study).splitlines()[2:]


def test_translations_that_contradict_their_record_are_not_tested(make: Make) -> None:
    results = [make("control", row="control", percent=0), make(wrong=20)]
    path, record = results[1]
    hypotheses = path.parent / record.files["hypotheses"]
    hypotheses.write_text((results[0][0].parent / "result.hyp.txt").read_text())
    with pytest.raises(DataError, match=f"says {record.value:.2f} bleu, but its outputs have "):
        summary(results)


def test_translations_of_two_test_sets_are_not_tested(make: Make, tmp_path: Path) -> None:
    results = [make("control", row="control", percent=0), make()]
    path, record = results[1]
    (tmp_path / "other.de").write_text("Another sentence.\n" * 30)
    files = {**record.files, "reference": str(tmp_path / "other.de")}
    results[1] = path, replace(record, files=files)
    with pytest.raises(DataError, match="their reference translations differ"):
        summary(results)


def test_results_of_two_studies_are_no_table(make: Make) -> None:
    with pytest.raises(DataError, match="study is 'other', but 'made-up'"):
        summary([make(seed=1), make(seed=2, study="other")])
    with pytest.raises(DataError, match="no result"):
        summary([])


def test_the_papers_numbers_are_differences_to_its_own_unpruned_model() -> None:
    de, ru = paper_table("table1:en-de"), paper_table("table1:en-ru")
    assert de.delta_in(de.row(percent=25, counts={})) == pytest.approx(28.19 - 27.95)
    assert ru.delta_in(ru.row(percent=87, counts={})) == pytest.approx(27.47 - 29.09)
    assert ru.delta_in(ru.row(percent=86, counts={})) is None
    by_layer, by_component = paper_table("table2"), paper_table("table3")
    counts = {"ES": (8, 8, 8, 4, 4, 4), "ED": (4, 4, 4, 8, 8, 8), "DS": (8, 8, 8, 4, 4, 4)}
    assert by_layer.delta_in(by_layer.row(percent=None, counts=counts)) == pytest.approx(
        29.62 - 29.09
    )
    sums = {"ES": (14,), "ED": (31,), "DS": (30,)}
    assert by_component.delta_in(by_component.row(percent=None, counts=sums)) == pytest.approx(
        28.96 - 29.09
    )
    assert by_component.delta_in(by_component.row(percent=48, counts={"ES": (14,)})) is None


@pytest.mark.parametrize("name", ["table9", "table1", "table1:en-fr", "table4:SST-2", ""])
def test_a_table_that_the_paper_has_not_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="paper: "):
        paper_table(name)


def test_the_papers_numbers_stand_beside_the_row_that_asks_for_them(make: Make) -> None:
    table = summary(whole_study(make), test=False, paper=[paper_table("table1:en-ru")])
    assert table.lines[0].cell.paper_delta == pytest.approx(29.59 - 29.09)
    text = to_markdown(table, paper=[paper_table("table1:en-ru")])
    assert "+0.50" in text
    assert "Budhraja" in text


@pytest.mark.parametrize("kinds", [("baseline",), ("control",), ("baseline", "control")])
def test_the_unpruned_models_alone_are_a_report(
    make: Make, tmp_path: Path, kinds: tuple[str, ...]
) -> None:
    files = [make(kind, row=kind, percent=0)[0] for kind in kinds]
    make_report(files, test=False).save(tmp_path / "out")
    assert kinds[-1] in (tmp_path / "out" / "table.md").read_text()
    assert (tmp_path / "out" / "figure.png").stat().st_size > 1000


def read(path: Path) -> bytes:
    return path.read_bytes()


@pytest.mark.parametrize("same_percent", [False, True])
def test_figures_are_written_whole_and_the_same_twice(
    make: Make, tmp_path: Path, same_percent: bool
) -> None:
    results = whole_study(make)
    if same_percent:
        results.append(make(row="other 25%", keep={"ES": "33", "ED": "33", "DS": "33"}))
    table = summary(results, test=False, paper=[paper_table("table1:en-ru")])
    for name in ("a", "b"):
        save_drawing(
            lambda: draw(table), png=tmp_path / f"{name}.png", svg=tmp_path / f"{name}.svg"
        )
    assert read(tmp_path / "a.png").startswith(b"\x89PNG")
    assert read(tmp_path / "a.svg") == read(tmp_path / "b.svg")
    assert b"</svg>" in read(tmp_path / "a.svg")
    assert not list(tmp_path.glob("*.tmp"))
