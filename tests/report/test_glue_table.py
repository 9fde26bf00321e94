"""Tables and figures of GLUE results, and the test between two classifiers."""

from __future__ import annotations

import csv
import io
import json
import statistics
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import pyplot
from scipy.stats import binom

from headprune import DataError, HeadPlan, PruningPlan, UsageError
from headprune.report import glue_figure
from headprune.report.glue import GlueStudy, document, name_of, study_of
from headprune.report.make import make_report
from headprune.report.render import json_values, markdown, spreadsheet
from headprune.report.table import summarise
from headprune.results.paper import paper_glue_table
from headprune.results.predictions import mcnemar, read_correct
from headprune.results.record import Record
from headprune.select import by_location

from .conftest import Make
from .glue import EXAMPLES, MakeGlue, maker, write_predictions


@pytest.fixture
def glue(tmp_path: Path) -> MakeGlue:
    return maker(tmp_path)


def whole_study(glue: MakeGlue) -> list[tuple[Path, Record]]:
    """Two tasks, two percentages (one in two forms) and a set of layers, over three seeds."""
    results = []
    for task in ("sst2", "cola"):
        for seed in (3, 1, 2):
            some = {"task": task, "seed": seed}
            results += [
                glue("control", wrong=20 + seed, **some),
                glue(row="90%", percent=90, wrong=80 + 2 * seed, **some),
                glue(row="50%", percent=50, wrong=20 + seed, **some),
                glue(row="50%", percent=50, form="uniform", wrong=25 + seed, **some),
                glue(row="top 2", prune="top 2", wrong=30 + seed, **some),
            ]
    return results


def summary(results: list[tuple[Path, Record]], **options: Any) -> GlueStudy:
    table = summarise(results, **options)
    return study_of(table, results, title="Made up", paper=options.get("paper", ()))


def to_markdown(study: GlueStudy) -> str:
    return markdown.render(document(study))


def to_csv(study: GlueStudy) -> str:
    return spreadsheet.render(document(study))


def to_json(study: GlueStudy) -> str:
    return json_values.render(document(study))


def test_rows_are_ways_and_forms_and_their_cells_are_means_over_seeds(glue: MakeGlue) -> None:
    results = whole_study(glue)
    table = summary(results)
    assert [(row.label, row.form) for row in table.rows] == [
        ("50%", "remove"),
        ("50%", "uniform"),
        ("90%", "remove"),
        ("top 2", "remove"),
    ]
    assert list(table.table.tasks) == ["sst2", "cola"]
    cell = table.rows[2].cells["cola"]
    values = [r.value for _, r in results if r.row == "90%" and r.task == "cola"]
    assert cell.value.mean == pytest.approx(statistics.mean(values))
    assert cell.value.sd == pytest.approx(statistics.stdev(values))
    assert cell.seeds == (1, 2, 3)
    assert table.control is not None
    assert cell.delta == pytest.approx(cell.value.mean - table.control.cells["cola"].value.mean)
    assert table.rows[0].heads_kept == 8
    assert table.rows[3].counts == "ES=4400"


def test_accuracy_is_tested_against_the_control_of_the_same_seed(glue: MakeGlue) -> None:
    table = summary(whole_study(glue))
    same, _, worse, _ = table.rows
    assert same.cells["sst2"].p_values == (1.0, 1.0, 1.0)
    assert len(worse.cells["sst2"].p_values) == 3
    assert max(worse.cells["sst2"].p_values) < 1e-6
    assert worse.cells["cola"].p_values == ()
    assert "3 of 3" in to_markdown(table)
    assert summary([*whole_study_without_predictions(glue)], test=False).rows


def whole_study_without_predictions(glue: MakeGlue) -> list[tuple[Path, Record]]:
    results = [glue("control", task="rte"), glue(task="rte")]
    for path, _ in results:
        path.with_name("predictions.tsv").unlink()
    return results


def test_missing_predictions_are_named(glue: MakeGlue) -> None:
    with pytest.raises(DataError, match="predictions file is not there .*; put it there, or give"):
        summary(whole_study_without_predictions(glue))


@given(st.lists(st.tuples(st.booleans(), st.booleans()), max_size=40))
def test_mcnemars_p_value_is_twice_the_smaller_tail(pairs: list[tuple[bool, bool]]) -> None:
    one, other = [a for a, _ in pairs], [b for _, b in pairs]
    better = sum(a and not b for a, b in pairs)
    worse = sum(b and not a for a, b in pairs)
    tail = 2 * float(binom.cdf(min(better, worse), better + worse, 0.5))
    assert mcnemar(one, other) == pytest.approx(min(1.0, tail))


def test_predictions_of_another_set_cannot_be_paired(glue: MakeGlue) -> None:
    results = [glue("control"), glue()]
    write_predictions(results[1][0].with_name("predictions.tsv"), wrong=3, examples=150)
    with pytest.raises(DataError, match="predictions for 200 examples and for 150"):
        summary(results)


def test_predictions_of_other_numbers_cannot_be_paired(glue: MakeGlue) -> None:
    results = [glue("control"), glue()]
    path = results[1][0].with_name("predictions.tsv")
    header, *rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, *(f"1{row}" for row in rows)]))
    with pytest.raises(DataError, match="have other values of `index`"):
        summary(results)


def test_predictions_that_contradict_their_record_are_not_tested(glue: MakeGlue) -> None:
    results = [glue("control"), glue(wrong=40)]
    write_predictions(results[1][0].with_name("predictions.tsv"), wrong=0)
    message = "seed1/result.json: says 80.00 accuracy, but its outputs have 100.00"
    with pytest.raises(DataError, match=message):
        summary(results)
    assert summary(results, test=False).table.rows[0].cells["sst2"].value.mean == 80


def test_predictions_in_another_order_cannot_be_paired(glue: MakeGlue) -> None:
    results = [glue("control"), glue()]
    path = results[1][0].with_name("predictions.tsv")
    header, first, *rest = path.read_text().splitlines(keepends=True)
    path.write_text("".join([header, "0\tother\tother\n", *rest]))
    assert first.startswith("0\t")
    with pytest.raises(DataError, match="not of the same examples in the same order"):
        summary(results)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "not a file of predictions"),
        ("index\tprediction\n0\t1\n", "not a file of predictions"),
        ("index\tprediction\tlabel\n0\t1\n", "not a file of predictions"),
        ("index\tprediction\tlabel\nx\t1\t1\n", "whole number"),
        ("index\tprediction\tlabel\n0\t1\t1\n0\t1\t1\n", "twice"),
    ],
)
def test_a_broken_file_of_predictions_is_refused(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "predictions.tsv"
    path.write_text(text)
    with pytest.raises(DataError, match=message):
        read_correct(path)


def test_predictions_are_paired_by_index(tmp_path: Path) -> None:
    path = tmp_path / "predictions.tsv"
    path.write_text('index\tprediction\tlabel\n2\t1\t1\n0\t0\t1\n1\t"\t"\n')
    assert read_correct(path) == [False, True, True]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"study": "other"}, "study is 'other'"),
        ({"model": "other"}, "model is 'other'"),
        ({"metrics": {"f1": 1.0}}, "the metric of sst2 is 'f1'"),
        ({"examples": {"train": 9, "dev": 200}}, "examples of sst2"),
    ],
)
def test_results_that_differ_in_what_they_measure_are_no_table(
    glue: MakeGlue, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError, match=message):
        summary([glue(seed=1), glue(seed=2, **change)])


def test_two_values_of_a_seed_or_two_controls_are_refused(glue: MakeGlue) -> None:
    one = glue()
    other = (one[0], replace(one[1], metrics={"accuracy": 1.0}))
    with pytest.raises(DataError, match="sst2: seed 1 of '50%' has two records"):
        summary([one, other])
    with pytest.raises(DataError, match="no result"):
        summary([])
    with pytest.raises(DataError, match="more than one control row to compare .*seed1"):
        summary([glue("control"), glue("control", seed=2, **{"form": "none"}), _other_control(one)])


def _other_control(one: tuple[Path, Record]) -> tuple[Path, Record]:
    path, result = one
    return path, replace(result, kind="control")


def test_a_model_that_predicts_one_label_is_marked(glue: MakeGlue) -> None:
    results = whole_study(glue)
    assert "†" not in to_markdown(summary(results, test=False))
    results = [
        (path, replace(result, training={**result.training, "constant_prediction": True}))
        if (result.task, result.row, result.seed) == ("cola", "top 2", 1)
        else (path, result)
        for path, result in results
    ]
    table = summary(results, test=False)
    assert table.rows[3].cells["cola"].constant == 1
    marked = [line for line in to_markdown(table).splitlines() if "†" in line]
    assert len(marked) == 2 and marked[0].startswith("| top 2") and marked[1].startswith("- †:")
    found = csv.DictReader(io.StringIO(to_csv(table)))
    assert sum(int(row["constant_predictions"]) for row in found) == 1


def test_older_records_are_marked_by_their_predictions(glue: MakeGlue) -> None:
    path, record = glue()
    assert "constant_prediction" not in record.training
    assert summary([(path, record)]).rows[0].cells["sst2"].constant == 0
    lines = [f"{number}\t0\t{number % 2}\n" for number in range(EXAMPLES)]
    path.with_name("predictions.tsv").write_text("index\tprediction\tlabel\n" + "".join(lines))
    assert summary([(path, record)]).rows[0].cells["sst2"].constant == 1


def test_differences_are_to_the_control_of_the_same_seed(glue: MakeGlue) -> None:
    controls = [glue("control", seed=seed, wrong=wrong) for seed, wrong in ((1, 10), (2, 20))]
    one = summary([*controls, glue(seed=2, wrong=30)], test=False)
    lost = 100 * 10 / EXAMPLES
    assert one.rows[0].cells["sst2"].delta == pytest.approx(-lost)
    other = summary([controls[0], controls[1], glue(seed=3, wrong=30)], test=False)
    assert other.rows[0].cells["sst2"].delta == pytest.approx(-1.5 * lost)


def test_the_mean_difference_is_over_the_tasks_that_report_accuracy(glue: MakeGlue) -> None:
    results = [
        result
        for task, wrong in (("sst2", 14), ("mrpc", 20), ("cola", 40))
        for result in (glue("control", task=task, wrong=10), glue(task=task, wrong=wrong))
    ]
    table = summary(results, test=False)
    deltas = [table.rows[0].cells[task].delta for task in ("sst2", "mrpc")]
    text = to_markdown(table)
    header, _, row = text.split("Differences to the control:")[1].strip().splitlines()[:3]
    assert header.endswith("| mean Δ |")
    assert row.split("|")[-2].strip() == f"{sum(deltas) / 2:+.2f}"
    assert "- mean Δ: over the tasks that report accuracy, sst2, mrpc." in text
    assert "mean Δ" not in to_markdown(summary(results[:2], test=False))


def test_markdown_has_one_table_of_values_and_one_of_differences(glue: MakeGlue) -> None:
    text = to_markdown(summary(whole_study(glue), paper=[paper_glue_table("table4")]))
    values, differences = text.split("Differences to the control:")
    rows = [line for line in values.splitlines() if line.startswith("|")]
    assert len(rows) == 2 + 5
    assert len({len(line) for line in rows}) == 1
    assert "cola (matthews)" in rows[0]
    assert "sst2 paper's Δ" in differences
    assert "cola paper's Δ" not in differences
    assert "October 2020" in text and "November 2021" in text
    assert "form `uniform`" in differences
    assert "this model has 4, and its sets are scaled" in differences
    assert "top 2|plan:ES=4400|" in differences
    assert "sst2|plan:*|" in differences


def test_neurons_have_rows_beside_heads(glue: MakeGlue) -> None:
    plan = PruningPlan(kept={"EF": [range(6)] * 4}, units={"EF": (8,) * 4})
    neurons = glue(row="neurons", percent=25, plan=plan)
    alone = summary([neurons])
    assert "| model   |   form | neurons kept |" in to_markdown(alone)
    assert alone.table.share_label == "neurons pruned (%)"
    table = summary([glue("control"), glue(), neurons])
    text = to_markdown(table)
    assert "| units kept |" in text and table.table.share_label == "units pruned (%)"
    figure = glue_figure.draw(summary([glue(seed=2)]))
    assert figure.axes[0].get_xlabel() == "attention heads pruned (%)"
    pyplot.close(figure)
    assert (
        "| neurons | remove |   24 of 32 |" in text and "| 50%     | remove |    8 of 16 |" in text
    )
    assert table.rows[0].counts == "EF=6666"
    other = PruningPlan(kept={"EF": [range(6)] * 4}, units={"EF": (9,) * 4})
    with pytest.raises(DataError, match="of a model of another shape"):
        summary([neurons, glue(row="other", plan=other)])


def test_a_task_that_a_row_lacks_stays_empty(glue: MakeGlue) -> None:
    table = summary([glue("control"), glue("control", task="cola"), glue(seed=1), glue(seed=2)])
    assert list(table.rows[0].cells) == ["sst2"]
    assert "sst2 Δ" in to_markdown(table)


def test_models_that_were_not_fine_tuned_have_rows_of_their_own(glue: MakeGlue) -> None:
    table = summary([glue("control"), glue(), glue("before-finetune", wrong=90)])
    assert [name_of(row) for row in table.rows] == ["50%", "50%, not fine-tuned"]
    table = summary([glue("before-finetune", seed=2), glue(seed=2)])
    assert table.settings["sst2"].startswith("train 8,000, dev 200, epochs 3,")


def test_models_that_were_not_fine_tuned_hide_no_difference(glue: MakeGlue) -> None:
    results = [glue("before-finetune"), glue(), glue(seed=2, examples={"train": 9, "dev": 200})]
    with pytest.raises(DataError, match="number of train examples of sst2 is 9, but 8000 in"):
        summary(results)


@pytest.mark.parametrize("prune", [None, "top 2"])
def test_the_figure_has_every_way_to_prune(glue: MakeGlue, prune: str | None) -> None:
    results = [
        glue(kind, form=form, prune=prune)
        for kind in ("pruned", "before-finetune")
        for form in ("remove", "mask", "uniform")
    ]
    (axes,) = glue_figure.draw(summary(results)).axes
    drawn = axes.get_legend_handles_labels()[1]
    assert sorted(label.removesuffix(" (one seed)") for label in drawn) == [
        *("mask", "mask, not fine-tuned", "remove", "remove, not fine-tuned"),
        *("uniform", "uniform, not fine-tuned"),
    ]
    pyplot.close("all")


def test_the_table_is_written_where_nothing_can_be_drawn(
    glue: MakeGlue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [glue("control")[0], glue()[0]]
    monkeypatch.setitem(sys.modules, "scipy.stats", None)
    with pytest.raises(UsageError, match="McNemar's test needs scipy .*; pip install scipy$"):
        make_report(files)
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(UsageError, match="figures needs matplotlib .*; pip install matplotlib$"):
        make_report(files, test=False).save(tmp_path / "out")
    assert (tmp_path / "out" / "table.md").exists()


def test_csv_and_json_hold_the_same_numbers(glue: MakeGlue) -> None:
    table = summary(whole_study(glue))
    lines = list(csv.DictReader(io.StringIO(to_csv(table))))
    content = json.loads(to_json(table))
    assert len(lines) == 5 * 2
    cells = [
        (row["label"], row["form"], task, cell)
        for row in (content["control"], *content["rows"])
        for task, cell in row["cells"].items()
    ]
    for line, (label, form, task, cell) in zip(lines, cells, strict=True):
        assert (line["row"], line["form"], line["task"]) == (label, form, task)
        assert float(line["mean"]) == pytest.approx(cell["value"]["mean"], abs=1e-4)
        assert float(line["sd"]) == pytest.approx(cell["value"]["sd"], abs=1e-4)
        assert f"data:glue.{task}" in line["signature"]


def deep(prune: str, *, layers: int = 12) -> HeadPlan:
    return by_location({"ES": (12,) * layers}, prune=prune)


def test_the_papers_numbers_are_differences_to_its_own_unpruned_bert() -> None:
    by_percent, by_layers, halves = (paper_glue_table(f"table{n}") for n in (4, 5, 6))
    full = deep("none")
    assert by_percent.delta_in("mnli", by_percent.row(percent=90, plan=full)) == pytest.approx(
        75.08 - 83.69
    )
    assert by_percent.delta_in("mnli", by_percent.row(percent=None, plan=full)) is None
    assert by_percent.delta_in("cola", by_percent.row(percent=90, plan=full)) is None
    both = deep("top 3 + bottom 3")
    for table in (by_layers, halves):
        assert table.delta_in("qnli", table.row(percent=None, plan=both)) == pytest.approx(
            88.30 - 91.66
        )
        assert table.unpruned("sst2") == 92.88
        assert table.unpruned("cola") is None
    assert by_layers.delta_in(
        "sst2", by_layers.row(percent=None, plan=deep("layers 11"))
    ) == pytest.approx(91.85 - 92.88)
    assert halves.delta_in("sst2", halves.row(percent=None, plan=deep("odd"))) == pytest.approx(
        92.20 - 92.88
    )
    assert (
        by_layers.delta_in("sst2", by_layers.row(percent=None, plan=deep("top 1", layers=6)))
        is None
    )


@pytest.mark.parametrize("name", ["table1", "table7", "table4:SST-2", ""])
def test_a_table_on_glue_that_the_paper_has_not_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="paper: "):
        paper_glue_table(name)


@pytest.mark.parametrize("ways", ["all", "percent", "layers", "control"])
def test_the_report_is_written_whole_and_the_same_twice(
    tmp_path: Path, glue: MakeGlue, ways: str
) -> None:
    wanted = {
        "all": lambda result: True,
        "percent": lambda result: result.requested_percent is not None,
        "layers": lambda result: result.requested_percent != 50 and result.row != "90%",
        "control": lambda result: result.kind == "control",
    }[ways]
    files = [path for path, result in whole_study(glue) if wanted(result)]
    for name in ("a", "b"):
        make_report(files, paper=["table4", "table5"]).save(tmp_path / name)
    names = {path.name for path in (tmp_path / "a").iterdir()}
    assert names == {path.name for path in (tmp_path / "b").iterdir()}
    for name in names:
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()
    tables = {"table.md", "table.csv", "table.json", "figure.png", "figure.svg"}
    # Figure 1 is of rows by percentage.
    assert names - {"drops.svg"} == {*tables, "report.html", "report.md"}
    assert ("drops.svg" in names) == (ways in ("all", "percent"))
    assert (tmp_path / "a" / "table.md").read_text().startswith("# made-up\n")


def test_the_format_says_which_report_to_make(make: Make, glue: MakeGlue, tmp_path: Path) -> None:
    assert "BLEU" in make_report([make()[0]]).markdown
    assert "sst2 (accuracy)" in make_report([glue()[0]]).markdown
    with pytest.raises(
        DataError, match="a result of sst2, but .* is one of translation: not for one table"
    ):
        make_report([make(seed=2)[0], glue(seed=2)[0]])
    with pytest.raises(UsageError, match="no result file"):
        make_report([])
    with pytest.raises(UsageError, match="'table1:en-de' is not one of the tables on BERT"):
        make_report([glue(seed=3)[0]], paper=["table1:en-de"])
