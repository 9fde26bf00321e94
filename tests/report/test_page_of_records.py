"""The page that `headprune report` makes of records, tables, comparisons, changes and scores."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from matplotlib.figure import Figure as Drawing
from scipy.stats import ttest_1samp

from headprune.cli.report import report_command
from headprune.components import HEADS
from headprune.errors import DataError, UsageError
from headprune.origin import Origin
from headprune.plan import PruningPlan
from headprune.report.document import (
    Column,
    Document,
    Figure,
    HeadGrid,
    Notes,
    Section,
    Table,
    with_inner,
)
from headprune.report.make import Report, make_report, report_of
from headprune.report.page.compose import page_of
from headprune.report.page.material import Material, StudyResult
from headprune.report.render import html, markdown
from headprune.report.saved_tables import load_table
from headprune.results.record import Record
from headprune.results.record_files import files_of_records
from headprune.scores import HeadScores
from headprune.select import at_random
from tests.command import headprune

from .conftest import SHAPE, Make
from .glue import maker
from .test_page import assert_clean, needs_browser

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"


@pytest.fixture
def study(make: Make, tmp_path: Path) -> Path:
    """The folder of a translation study, with scores."""
    for seed in (1, 2):
        make("control", row="control", percent=0, seed=seed, wrong=seed)
        make(seed=seed, wrong=5 + seed)
    (tmp_path / "scores").mkdir()
    values = {
        name: [[layer + head / 7 for head in range(heads)] for layer, heads in enumerate(layers)]
        for name, layers in SHAPE.items()
    }
    p_values = {name: [[0.01] * heads for heads in layers] for name, layers in SHAPE.items()}
    HeadScores(name="ablation", values=values, p_values=p_values, data="made-up").save(
        tmp_path / "scores" / "ablation.json"
    )
    HeadScores(name="gradient", values=values).save(tmp_path / "scores" / "gradient.json")
    return tmp_path


def titles(report: Report) -> list[str]:
    return [block.title for block in with_inner(report.page.blocks) if isinstance(block, Section)]


def table(report: Report, caption: str) -> Table:
    return next(
        block
        for block in with_inner(report.page.blocks)
        if isinstance(block, Table) and block.caption == caption
    )


def test_a_folder_gives_the_page_of_its_study(study: Path) -> None:
    report = report_of([study])
    assert report.page.title == "made-up"
    assert [title for title in titles(report) if "claims" not in title.lower()] == [
        "Summary",
        "Results",
        "Change against the share pruned (figure 1)",
        "Beside the paper",
        "Which heads stay",
        "Making these numbers again",
    ]
    assert "Claims" in titles(report)
    beside = table(report, "Table 1 of the paper:")
    by_name = {
        row[0]: dict(zip([c.name for c in beside.columns], row, strict=True))
        for row in beside.texts()
    }
    assert by_name["control"]["paper EN-RU"] == "29.09"
    assert by_name["50%"]["paper EN-RU"] == "29.38"
    assert by_name["50%"]["n"] == "2"
    # Each model differs from its control in five sentences, all for the worse: p is 2 / 2 ** 5.
    assert by_name["50%"]["p < 0.05"] == "0 of 2"


def test_rows_are_beside_the_paper_in_its_order(make: Make, tmp_path: Path) -> None:
    """So that the rows of a pair or a triple stay together."""
    shape = dict.fromkeys(HEADS, (8,) * 6)
    path, control = make("control", row="control", percent=0)
    replace(control, plan=PruningPlan.full(shape)).save(path)
    kept = [(8, 13, 15), (13, 8, 15), (15, 13, 8), (5, 9, 12), (31, 14, 30)]
    for counts in kept:
        keep = dict(zip(HEADS, counts, strict=True))
        label = " ".join(f"{name}={count}" for name, count in keep.items())
        path, record = make(row=label)
        plan = at_random(shape, seed=1, keep=keep)
        replace(record, plan=plan, requested_percent=None).save(path)
    beside = table(report_of([tmp_path], test=False), "Table 3 of the paper:")
    assert [row[0] for row in beside.texts()[1:]] == [
        "ES=31 ED=14 DS=30",
        "ES=8 ED=13 DS=15",
        "ES=13 ED=8 DS=15",
        "ES=15 ED=13 DS=8",
        "ES=5 ED=9 DS=12",
    ]


def test_rows_of_one_component_are_not_beside_the_paper(make: Make, tmp_path: Path) -> None:
    """They have the paper's percentage, but of fewer heads."""
    make("control", row="control", percent=0)
    path, record = make()
    assert "Beside the paper" in titles(report_of([tmp_path], test=False))
    plan = record.plan
    kept = {**plan.kept, **{name: [range(4)] * 2 for name in ("ED", "DS")}}
    content = json.loads(path.read_text())
    content["plan"] = json.loads(PruningPlan(kept=kept, units=plan.units).to_json())
    path.write_text(json.dumps(content))
    assert "Beside the paper" not in titles(report_of([tmp_path], test=False))


@pytest.mark.parametrize("method", ["random", "gradient"])
def test_the_papers_difference_is_that_of_heads_drawn_at_random(
    method: str, make: Make, tmp_path: Path
) -> None:
    make("control", row="control", percent=0)
    path, record = make()
    content = json.loads(path.read_text())
    content["plan"]["origin"] = {"method": method, "seed": 1, "budget": "50% of heads"}
    path.write_text(json.dumps(content))
    (row,) = (
        report_of([tmp_path], paper=["table1:en-ru"], test=False).material.studies[0].table.rows
    )
    expected = {"random": pytest.approx(29.38 - 29.09), "gradient": None}[method]
    assert row.cells[record.task].paper_delta == expected


def test_rows_by_a_score_are_not_beside_the_paper(study: Path) -> None:
    """They have the paper's percentage, but not its way to draw heads."""
    for path in study.glob("pruned/50%/*/result.json"):
        record = Record.load(path)
        content = json.loads(path.read_text())
        content["signature"] = record.signature.replace("select:random", "select:gradient")
        path.write_text(json.dumps(content))
    assert "Beside the paper" not in titles(report_of([study], test=False))


def test_the_grid_has_the_models_and_the_scores_of_their_shape(study: Path) -> None:
    other = HeadScores(name="entropy", values={"ES": [[0.5, 0.25]]})
    other.save(study / "scores" / "entropy.json")
    page = report_of([study], test=False).page
    grid = next(block for block in with_inner(page.blocks) if isinstance(block, HeadGrid))
    assert dict(grid.heads) == SHAPE
    assert [(model.row, model.seed) for model in grid.models] == [
        ("control", 1),
        ("control", 2),
        ("50%", 1),
        ("50%", 2),
    ]
    plan = Record.load(study / "pruned" / "50%" / "seed2" / "result.json").plan
    assert grid.models[3].kept == {name: tuple(plan.kept[name]) for name in SHAPE}
    assert [score.name for score in grid.scores] == ["ablation", "gradient"]
    assert grid.scores[0].p_values["ES"][0][0] == 0.01
    assert grid.scores[0].adjusted["ES"][0][0] == pytest.approx(0.24)
    text = html.render(page)
    first = re.search(r'<p class="grid-model" data-model>([^:<]*)', text)
    assert first is not None and first[1] == "50%, seed 1"  # not the control
    kept = text.count('<td class="kept"')
    assert kept == Record.load(study / "pruned" / "50%" / "seed1" / "result.json").plan.total_kept


def test_a_component_that_a_plan_does_not_name_is_whole_in_the_grid(study: Path) -> None:
    path = study / "pruned" / "50%" / "seed1" / "result.json"
    content = json.loads(path.read_text())
    plan = Record.load(path).plan
    content["plan"] = json.loads(plan.part(["ES"]).to_json())
    path.write_text(json.dumps(content))
    page = report_of([study], test=False).page
    grid = next(block for block in with_inner(page.blocks) if isinstance(block, HeadGrid))
    assert grid.models[2].kept == {
        "ES": tuple(plan.kept["ES"]),
        **dict.fromkeys(("ED", "DS"), ((0, 1, 2, 3),) * 2),
    }
    text = html.render(page)
    assert text.count('<td class="kept"') == sum(map(len, plan.kept["ES"])) + 16


def test_several_studies_have_tables_of_their_own(make: Make, tmp_path: Path) -> None:
    glue = maker(tmp_path / "glue")
    translation = [make("control", row="control", percent=0)[0], make()[0]]
    classification = [glue("control")[0], glue()[0]]
    report = report_of(
        [*translation, *classification], paper=["table1:en-ru", "table4"], test=False
    )
    report.save(tmp_path / "out")
    names = {str(p.relative_to(tmp_path / "out")) for p in (tmp_path / "out").rglob("*.*")}
    folders = {name.split("/")[0] for name in names if "/" in name}
    assert len(folders) == 2
    for folder in folders:
        assert {f"{folder}/table.{suffix}" for suffix in ("md", "csv", "json")} <= names
        assert {f"{folder}/figure.png", f"{folder}/figure.svg"} <= names
    assert {"report.html", "report.md", "drops.svg"} <= names
    texts = sorted((tmp_path / "out" / folder / "table.md").read_text() for folder in folders)
    one = make_report(translation, paper=["table1:en-ru"], test=False).markdown
    two = make_report(classification, paper=["table4"], test=False).markdown
    assert texts == sorted([one, two])
    for image in re.findall(r"!\[[^]]*\]\(([^)]*)\)", (tmp_path / "out" / "report.md").read_text()):
        assert image in names


def test_a_table_stands_for_its_records(study: Path) -> None:
    """Tables are read again; where records are there too, they count once."""
    report = report_of([study], paper=["table1:en-ru"])
    report.save(study / "report")
    again = report_of([study / "report" / "table.json"])
    assert again.markdown == report.markdown
    assert "Which heads stay" not in titles(again)
    assert len(report_of([study], test=False).material.studies) == 1


@pytest.mark.parametrize("name", ["multi30k", "glue", "glue-mean"])
def test_published_tables_are_read_to_the_byte(name: str) -> None:
    report = report_of([PUBLISHED / name / "table.json"])
    assert report.markdown == (PUBLISHED / name / "table.md").read_text(encoding="utf-8")


def test_a_published_comparison_has_its_grid_and_its_speed() -> None:
    report = report_of([PUBLISHED / "scores" / "multi30k"], test=False)
    assert report.page.title == "Multi30k EN-DE: scores compared"
    assert titles(report)[-3:] == [
        "Which heads stay",
        "Methods against speed",
        "Making these numbers again",
    ]
    text = markdown.render(report.page)
    assert (
        "headprune compare MODEL --metric=loss --data=runs/multi30k/data/bin --beam=5 "
        "'--finetune=--arch" in text
    )
    assert "--percent=25 --percent=50 --percent=75 --seeds=3 --random-seeds=3 -o OUT" in text
    assert not report.material.scores  # the comparison's own
    assert not report.material.studies


def test_claims_of_a_comparison_are_tested_on_the_outputs_beside_its_records(
    tmp_path: Path,
) -> None:
    published = PUBLISHED / "methods-long"
    shutil.copy(published / "compare.json", tmp_path)
    shutil.unpack_archive(published / "runs.tar.gz", tmp_path)

    tested, untested = (
        markdown.render(report_of([tmp_path], test=test).page) for test in (True, False)
    )
    row = r"\| 75%: highest pruned, of the control \(sst2\) +\| +worst-sub-networks-trainable .*\n"
    assert re.findall(row, tested)[0].split("|")[-2].strip() == "3 of 3"
    assert not re.search(r"\d of 3 \|", untested)


def test_a_comparison_is_no_study_to_name() -> None:
    with pytest.raises(UsageError, match="--study a: .* has no records of a study; give it withou"):
        report_of([], named={"a": PUBLISHED / "scores" / "multi30k-DS"})


def test_findings_of_several_comparisons_stand_below_their_titles() -> None:
    folders = [PUBLISHED / "scores" / name for name in ("multi30k-DS", "multi30k-ED")]
    report = report_of(folders, test=False)
    summary = report.page.blocks[0]
    assert isinstance(summary, Section)
    sections = [block for block in summary.blocks if isinstance(block, Section)][-2:]
    assert [section.title for section in sections] == [
        comparison.title for comparison in report.material.comparisons
    ]
    for section, comparison in zip(sections, report.material.comparisons, strict=True):
        assert section.blocks == [Notes(comparison.report.findings)]


def figure_named(folder: Path, name: str) -> Figure:
    blocks = with_inner(report_of([folder], test=False).page.blocks)
    return next(each for each in blocks if isinstance(each, Figure) and each.name == name)


def figure_1(folder: Path) -> Figure:
    return figure_named(folder, "drops")


def test_bars_of_figure_1_are_intervals_of_paired_differences(make: Make, tmp_path: Path) -> None:
    make("control", row="control", percent=0)
    make()
    figure = figure_1(tmp_path)
    assert "hollow: one seed." in figure.caption
    axes = figure.draw().axes[0]
    assert axes.get_ylabel() == "change in BLEU" and not axes.collections
    single = axes.lines[-1]
    assert single.get_fillstyle() == "none" and len(single.get_xdata()) == 1

    differences = []
    for seed, of_control, of_pruned in ((2, 1, 7), (3, 2, 12)):
        control = make("control", row="control", percent=0, seed=seed, wrong=of_control)[1]
        differences.append(make(seed=seed, wrong=of_pruned)[1].value - control.value)
    first = [
        Record.load(tmp_path / name / "seed1" / "result.json").value
        for name in ("pruned/50%", "control/control")
    ]
    differences.append(first[0] - first[1])
    figure = figure_1(tmp_path)
    assert "hollow" not in figure.caption
    (bar,) = figure.draw().axes[0].collections[0].get_segments()
    low, high = (float(y) for _, y in bar)
    expected = ttest_1samp(differences, 0).confidence_interval()
    assert (low, high) == (pytest.approx(expected.low), pytest.approx(expected.high))


def test_figure_1_has_a_panel_for_each_metric(tmp_path: Path) -> None:
    make_glue = maker(tmp_path)
    for task in ("sst2", "cola"):
        make_glue("control", task=task)
        make_glue(task=task)
    axes = figure_1(tmp_path).draw().axes
    names = {each.get_ylabel() for each in axes}
    assert names == {"change in accuracy (points)", "change in matthews (x 100)"}
    for each in axes:  # the paper reports accuracy
        labels = each.get_legend_handles_labels()[1]
        is_beside = any(label.startswith("paper: ") for label in labels)
        assert is_beside == ("accuracy" in each.get_ylabel())


def test_curves_of_other_lengths_of_fine_tuning_name_them(make: Make, tmp_path: Path) -> None:
    make("control", row="control", percent=0)
    path, record = make()
    alike = markdown.render(report_of([tmp_path], test=False).page)
    assert "fine-tuned for 30 epochs" not in alike
    for finetune, study in (("1ep", "short"), ("127up", "updates")):
        for source, one in ((path, record), (tmp_path / "control/control/seed1/result.json", None)):
            changed = replace(
                one or Record.load(source),
                study=study,
                finetune=finetune,
                signature=Record.load(source).signature.replace("30ep", finetune),
            )
            changed.save(source.with_name(f"{study}.json"))
    text = markdown.render(report_of([tmp_path], test=False).page)
    for length in ("30 epochs", "1 epoch", "127 updates"):
        assert f"fine-tuned for {length}: 50% " in text
    # Where the lengths are alike, studies are told apart by their names.
    for name in ("long", "longer"):
        for source in (path, tmp_path / "control/control/seed1/result.json"):
            replace(Record.load(source), study=name).save(source.with_name(f"{name}.json"))
    text = markdown.render(report_of([tmp_path], test=False).page)
    assert "long, fine-tuned for 30 epochs: 50% " in text
    assert "longer, fine-tuned for 30 epochs: 50% " in text


def test_curves_of_many_rows_are_named_by_quarters(make: Make, tmp_path: Path) -> None:
    make("control", row="control", percent=0)
    for percent in (6, 12, 25, 31, 44, 50, 62, 75, 81, 87, 100):
        make(row=f"{percent}%", percent=percent)
    for path in tmp_path.glob("*/*/seed1/result.json"):
        record = Record.load(path)
        record.training["curve"] = {"train": [[5, 2.5], [10, 2.0], [15, 1.5]], "valid": None}
        record.save(path)
    (legend,) = figure_named(tmp_path, "training").draw().legends
    quarters = {f"{low} to {low + 25}% pruned" for low in (0, 25, 50, 75)}
    assert {each.get_text() for each in legend.get_texts()} == {"control", *quarters}


def test_points_of_figure_1_are_means_over_the_seeds_of_their_bars(
    make: Make, tmp_path: Path
) -> None:
    """Seeds without a control are in the table's mean alone."""
    for seed, wrong in ((1, 1), (2, 2), (3, 25)):
        make("control", row="control", percent=0, seed=seed, wrong=wrong)
    differences = []
    for seed, wrong in ((1, 7), (2, 12), (4, 20)):
        record = make(seed=seed, wrong=wrong)[1]
        if seed != 4:
            control = Record.load(tmp_path / f"control/control/seed{seed}/result.json")
            differences.append(record.value - control.value)
    figure = figure_1(tmp_path)
    assert f"50% {sum(differences) / 2:+.2f}." in figure.alt
    axes = figure.draw().axes[0]
    (bar,) = axes.collections[0].get_segments()
    assert sum(float(y) for _, y in bar) / 2 == pytest.approx(sum(differences) / 2)
    # No seed in common with the control: no bar, but not one seed.
    for seed in (1, 2, 3):
        (tmp_path / f"control/control/seed{seed}/result.json").unlink()
    make("control", row="control", percent=0, seed=9)
    figure = figure_1(tmp_path)
    assert "without a bar: no two seeds with a control." in figure.caption
    assert "hollow" not in figure.caption
    assert all(line.get_fillstyle() != "none" for line in figure.draw().axes[0].lines[-1:])


def test_without_a_control_figure_1_names_the_baseline(make: Make, tmp_path: Path) -> None:
    make("baseline", row="baseline", percent=0)
    make()
    make(seed=2, wrong=5)
    figure = figure_1(tmp_path)
    assert "Change: mean less that of the baseline, in points" in figure.caption
    assert "control" not in figure.caption and "hollow" not in figure.caption


def test_copies_of_records_keep_the_claims(study: Path) -> None:
    shutil.copytree(study / "pruned", study / "other-machine")
    report = report_of([study], test=False)
    assert len(report.material.studies[0].results) == 4
    assert "Claims are left out" not in markdown.render(report.page)


def test_the_searches_of_a_grid_are_no_rows_of_a_study(tmp_path: Path) -> None:
    make_glue = maker(tmp_path / "models")
    make_glue()
    path, _ = make_glue("control")
    search = tmp_path / "grid" / "sst2"
    for folder in (search, *(search / "grid" / name for name in ("bs16-lr5e-05", "bs32-lr5e-05"))):
        folder.mkdir(parents=True)
        replace(Record.load(path), study="").save(folder / "result.json")
    (study,) = report_of([tmp_path], test=False).material.studies
    assert len(study.results) == 2
    assert files_of_records([tmp_path]) == sorted((tmp_path / "models").rglob("result.json"))
    # The search itself is shown where its folder is named.
    (study,) = report_of([search], test=False).material.studies
    assert [path for path, _ in study.results] == [search / "result.json"]


def test_a_saved_table_of_classifiers_keeps_the_baseline(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make_glue = maker(tmp_path)
    make_glue("baseline", row="baseline", percent=0, form="none")
    make_glue()
    report = report_of([tmp_path], title="Another title", test=False)
    report.save(tmp_path / "report")
    again = report_of([tmp_path / "report" / "table.json"])
    assert again.markdown == report.markdown and "| baseline" in again.markdown
    # The table is that of these records, and so not named as left out.
    report_of([tmp_path], test=False)
    assert capsys.readouterr().err == ""
    # Tables of older versions have no baseline.
    content = json.loads((tmp_path / "report" / "table.json").read_text())
    del content["baseline"]
    (tmp_path / "report" / "table.json").write_text(json.dumps(content))
    (study,) = report_of([tmp_path / "report" / "table.json"]).material.studies
    assert study.table.baseline is None


def test_unpruned_models_keep_all_units_that_others_prune(make: Make, tmp_path: Path) -> None:
    control, _ = make("control", row="control", percent=0)
    path, record = make()
    content = json.loads(path.read_text())
    units = {**record.plan.units, "EL": (1, 1)}
    plan = PruningPlan(kept={**record.plan.kept, "EL": [(0,), ()]}, units=units)
    content["plan"] = json.loads(plan.to_json())
    path.write_text(json.dumps(content))
    report = report_of([control, path], test=False)
    kept = re.findall(r"\| +(\d+ of 26) \|", report.markdown)
    assert kept == ["26 of 26", "13 of 26"]
    report.save(tmp_path / "out")
    assert report_of([tmp_path / "out" / "table.json"]).markdown == report.markdown


def test_a_saved_table_keeps_the_name_of_its_units(make: Make, tmp_path: Path) -> None:
    path, record = make()
    content = json.loads(path.read_text())
    plan = PruningPlan(kept={"EL": [(0,), ()]}, units={"EL": (1, 1)})
    content["plan"] = json.loads(plan.to_json())
    path.write_text(json.dumps(content))
    report = report_of([path], test=False)
    assert "layers kept" in report.markdown
    report.save(tmp_path / "out")
    assert report_of([tmp_path / "out" / "table.json"]).markdown == report.markdown


def test_draws_that_keep_different_numbers_show_the_range(make: Make, tmp_path: Path) -> None:
    first = make(keep={"ES": "33", "ED": "33", "DS": "33"})
    second = make(seed=2, keep={"ES": "22", "ED": "33", "DS": "33"})
    report = report_of([first[0], second[0]], test=False)
    assert "| 16 to 18 of 24 |" in report.markdown
    report.save(tmp_path / "out")
    saved = tmp_path / "out" / "table.json"
    assert report_of([saved]).markdown == report.markdown
    # Tables of earlier versions have the numbers that are the same for all seeds.
    content = json.loads(saved.read_text())
    for row in content["rows"]:
        del row["kept_between"]
    saved.write_text(json.dumps(content))
    assert "varies" in report_of([saved]).markdown


def test_the_command_of_a_comparison_makes_the_same_numbers() -> None:
    """With what its defaults would leave out: no held-out examples, some scores fine-tuned only."""
    text = markdown.render(report_of([PUBLISHED / "scores" / "sst2"], test=False).page)
    (command,) = re.findall(r"^headprune compare .*", text, flags=re.MULTILINE)
    assert " --hold-out=0.0 --bf16 " in command
    tuned = [word for word in command.split() if word.startswith("--tune=")]
    assert tuned == [
        f"--tune={name}"
        for name in ("gradient", "gradient-raw", "taylor", "confidence", "sparsity")
    ]
    text = markdown.render(report_of([PUBLISHED / "scores" / "sst2-tuned"], test=False).page)
    (command,) = re.findall(r"^headprune compare .*", text, flags=re.MULTILINE)
    assert "--bf16" not in command and "--tune" not in command


def test_commands_have_all_digits_and_no_places_of_a_machine(tmp_path: Path) -> None:
    for name in ("compare.json", "compare.md"):
        shutil.copy(PUBLISHED / "scores" / "multi30k-DS" / name, tmp_path)
    path = tmp_path / "compare.json"
    content = json.loads(path.read_text())
    content["settings"]["data"] = str(tmp_path / "prepared")
    for row in content["rows"]:
        row["percent"] = 33.333333 if row["percent"] == 40 else row["percent"]
    path.write_text(json.dumps(content))
    text = markdown.render(report_of([path], test=False).page)
    assert "--metric=loss --data=DATA --beam=5 " in text and "--percent=33.333333 " in text
    assert "; DATA is the folder of the prepared data:" in text
    assert str(tmp_path) not in text


def test_the_command_of_the_page_names_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"title": "", "paper": [], "test": True}
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path / "runs")
    assert report_command([Path(".")], **options) == "headprune report runs -o report"
    one_name = [Path("/a/result.json"), Path("/b/result.json")]
    assert report_command(one_name, **options) == "headprune report RESULTS -o report"
    inside = [Path("runs/multi30k"), Path("scores/ablation.json"), Path("/tmp/other")]
    assert report_command(inside, **options) == (
        "headprune report runs/multi30k scores/ablation.json other -o report"
    )
    assert report_command([Path("/")], **options) == "headprune report RESULTS -o report"


def test_records_need_no_scipy_and_no_torch(study: Path) -> None:
    result = study / "pruned" / "50%" / "seed1" / "result.json"
    program = f"""
import sys
sys.modules["scipy"] = None
from pathlib import Path
from headprune.errors import UsageError
from headprune.report.make import report_of
from headprune.report.render import markdown
print(markdown.render(report_of([Path({str(result)!r})], test=False).page))
assert "torch" not in sys.modules
try:
    report_of([Path({str(PUBLISHED / "scores" / "sst2")!r})])
except UsageError as error:
    print(error)
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "Claims are left out: they need scipy" in done.stdout
    assert "Figure 1 is left out: it needs scipy" in done.stdout
    *_, last = done.stdout.splitlines()
    assert last.startswith("comparisons need scipy (") and last.endswith("; pip install scipy")


def test_changes_are_figure_2() -> None:
    report = report_of([PUBLISHED / "glue" / "changes.json"])
    assert "Change of heads in fine-tuning (figure 2)" in titles(report)
    assert table(report, "Largest difference between two layers' means:").rows


def test_what_holds_no_result_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="empty: no record, table, comparison or score"):
        report_of([tmp_path / "empty"])
    (tmp_path / "other.json").write_text('{"format": "something"}')
    with pytest.raises(DataError, match="other.json: not a result"):
        report_of([tmp_path / "other.json"])
    (tmp_path / "table.json").write_text('{"format": "headprune.table", "version": 1, "title": ""}')
    with pytest.raises(DataError, match="table.json: not the whole table of a report"):
        report_of([tmp_path / "table.json"])
    (tmp_path / "compare.json").write_text("{}")
    with pytest.raises(DataError, match="compare.json: not the outcome of a comparison"):
        report_of([tmp_path / "compare.json"])


def test_scores_alone_are_refused(study: Path) -> None:
    with pytest.raises(UsageError, match="scores alone: give the records"):
        report_of([study / "scores"])


def test_records_of_other_data_are_refused(make: Make) -> None:
    """They are no second study either: a mean or a difference over both says nothing."""
    control, _ = make("control", row="control", percent=0)
    pruned, record = make()
    content = json.loads(pruned.read_text())
    content["signature"] = record.signature.replace("data:wmt14.en-ru", "data:other")
    pruned.write_text(json.dumps(content))
    message = "seed1/result.json: the data of translation is 'other', but 'wmt14.en-ru' in "
    for report in (report_of, make_report):
        with pytest.raises(DataError, match=message):
            report([control, pruned], test=False)


def test_files_that_are_left_out_are_named(
    study: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = study / "pruned" / "50%" / "seed2" / "result.json"
    broken.write_text(broken.read_text()[:100])
    shutil.copy(PUBLISHED / "multi30k" / "table.json", study / "table.json")
    (study / "list.json").write_text("[1]")
    report = report_of([study], test=False)
    assert len(report.material.studies[0].results) == 3
    warning, note = capsys.readouterr().err.splitlines()
    assert warning.startswith(f"warning: {broken}: not JSON") and warning.endswith("; left out")
    assert note.startswith(f"note: {study / 'table.json'}: left out, as the folder has records")


def test_a_page_and_the_document_itself_place_a_figure_alike() -> None:
    figure = Figure(name="own", draw=Drawing, alt="drawn by itself")
    blocks = [Notes(["first"]), Notes(["second"])]
    rows = Table(columns=[Column("model")], rows=[["control"]])
    title, summary, _ = load_table(PUBLISHED / "multi30k" / "table.json")
    alone = (blocks, ["first", "second", "drawn by itself"])
    below_a_table = ([blocks[0], rows, blocks[1]], ["first", "drawn by itself", "second"])
    for own, words in (alone, below_a_table):
        document = Document(title="T", blocks=own, figures=[figure])
        study = StudyResult(title=title, table=summary, document=document)
        page = page_of(Material(studies=[study]), title="T")
        (results,) = (
            each for each in page.blocks if isinstance(each, Section) and each.title == "Results"
        )
        assert [*results.blocks] == [*own[:2], figure, *own[2:]]
        text = html.render(document)
        assert sorted(words, key=text.index) == words


def test_hidden_files_are_in_no_folder(study: Path) -> None:
    seen = files_of_records([study])
    hidden = study / ".ipynb_checkpoints"
    shutil.copytree(study / "pruned", hidden / "pruned")
    assert files_of_records([study]) == seen
    (found,) = report_of([study], test=False).material.studies
    assert sorted(path for path, _ in found.results) == seen
    # A folder that is named itself may lie in a hidden one.
    assert len(files_of_records([hidden])) == 2
    assert len(report_of([hidden], test=False).material.studies[0].results) == 2


def test_commands_of_a_study_name_its_records(study: Path, tmp_path: Path) -> None:
    folder = tmp_path / "finetuned"
    shutil.copytree(study / "pruned" / "50%", folder / "50pct")
    text = markdown.render(report_of([folder], test=False).page)
    command = "snakemake -s studies/Snakefile --config study=made-up --cores 2"
    assert f"\n{command}\n" in text
    assert f"\n{command} -- runs/made-up/finetuned/50pct/seed1/result.json\n" in text


def test_commands_of_records_of_no_study_choose_the_same_heads(make: Make) -> None:
    path, record = make(study="")
    text = markdown.render(report_of([path], test=False).page)
    assert "headprune plan --shape=ES=4x2 --shape=ED=4x2 --shape=DS=4x2" in text
    assert "--budget=50% --seed=1 -o plan.json" in text


def test_a_printed_choice_of_heads_makes_the_same_plan(tmp_path: Path) -> None:
    settings = {"protocol": "prune-finetune", "epochs": 2.0, "plan": {}}

    def command(plan: PruningPlan, model: str | None = "made-up-bert") -> str:
        make = maker(tmp_path / "made")
        path, record = make(study="", task="sst2", training={"settings": settings})
        replace(record, plan=plan, model=model).save(path)
        text = markdown.render(report_of([path], test=False).page)
        shutil.rmtree(tmp_path / "made")
        return text.partition("Making these numbers again")[2]

    shape = {"ES": (4,) * 4}
    protected = at_random(shape, seed=3, percent=75, at_least=1)
    assert protected != at_random(shape, seed=3, percent=75)
    words = re.search("headprune plan .*", command(protected))
    assert words is not None
    again = tmp_path / "plan.json"
    assert headprune(*shlex.split(words[0])[1:-1], again).status == 0
    assert PruningPlan.load(again) == protected
    assert PruningPlan.load(again).origin == protected.origin
    # An older plan, whose origin does not say what each layer keeps.
    assert protected.origin is not None
    older = protected.with_origin(replace(protected.origin, at_least=None))
    assert "headprune plan" not in command(older)
    origin = Origin(method="random", seed=3, budget="75% of parameters")
    of_parameters = protected.with_origin(origin)
    assert "plan --model=made-up-bert --components=ES '--budget=75% of p" in command(of_parameters)
    assert "headprune plan" not in command(of_parameters, model=None)
    assert "headprune plan" not in command(
        protected.with_origin(replace(origin, budget="2x speed"))
    )


def test_rows_whose_units_were_chosen_by_a_score_have_their_commands(tmp_path: Path) -> None:
    settings = {"protocol": "prune-finetune", "epochs": 2.0, "plan": {}}
    make = maker(tmp_path / "made")
    paths = []
    for number, method in enumerate(("random", "taylor"), start=1):
        path, record = make(study="", task="sst2", seed=number, training={"settings": settings})
        origin = Origin(method=method, seed=1, budget="50%")
        replace(record, plan=record.plan.with_origin(origin)).save(path)
        paths.append(path)
    section = markdown.render(report_of(paths, test=False).page).partition("Making these")[2]
    commands = re.findall(r"^headprune .*", section, flags=re.MULTILINE)
    assert [command.split()[1] for command in commands] == ["plan", "glue", "glue"]
    assert "--plan plan-50%-taylor.json --form=remove --seed=2 -o OUT" in commands[2]
    assert "plan-50%-taylor.json is the plan in the record of 50% (taylor)" in section


def test_commands_of_fine_tunings_on_own_data_are_those_of_finetune(tmp_path: Path) -> None:
    own = {
        "data": {"train": "train.csv@b02de7898b1e", "dev": "dev.csv@8085561a6ada"},
        **{"type": "single-label", "text": ["review", "title"], "label": "mood"},
        **{"labels": ["bad", "good"], "metrics": ["accuracy", "macro-f1"]},
    }
    settings = {
        **{"protocol": "prune-finetune", "pooling": "first", "weight_decay": 0.0},
        **{"adam_epsilon": 1e-8, "epochs": 2.0, "bf16": False, "plan": None, "data_dir": None},
    }
    gates = {"gates": "ES", "l0_target": "50%"}

    def commands(task: str = "dev.mood", **changed: object) -> list[str]:
        training = {"settings": {**settings, **changed}}
        path, _ = maker(tmp_path / "made")(study="", task=task, training=training)
        text = markdown.render(report_of([path], test=False).page)
        shutil.rmtree(tmp_path / "made")
        section = text.partition("Making these numbers again")[2]
        return [*re.findall(r"^headprune .*", section, flags=re.MULTILINE), section]

    data = "--train=TRAIN --dev=DEV --text=review --text2=title --label=mood"
    kind = "--task-type=single-label --metric=accuracy"
    start = f"headprune finetune made-up-bert {data} {kind} --epochs=2.0"
    command, section = commands(own=own, **gates)
    assert command == f"{start} --gates=ES --l0-target=50% --seed=1 -o OUT"
    assert "TRAIN is train.csv (fingerprint b02de7898b1e)" in section
    plan, command, _ = commands(own=own, plan={})
    assert plan.startswith("headprune plan --shape=ES=4x4 --budget=50% --seed=1")
    assert command == f"{start} --plan plan.json --form=remove --seed=1 -o OUT"
    command, _ = commands("sst2", layerdrop=0.2, data_dir=str(tmp_path))
    assert command.startswith("headprune finetune made-up-bert --task=sst2 --data-dir=GLUE --epoch")
    assert commands("sst2")[0].startswith("headprune glue --task=sst2 --protocol=prune-finetune")
    # No command does these.
    assert commands(own=own, protocol="finetune-prune-finetune") == [""]
    assert commands("sst2", from_scratch=True) == [""]


@needs_browser
@pytest.mark.slow
def test_a_browser_opens_the_page_of_a_study(study: Path, tmp_path: Path) -> None:
    page = html.render(report_of([study]).page)
    assert len(page.encode()) < 3_000_000
    dom = assert_clean(page, tmp_path)
    # The script has added its controls.
    assert dom.count("<select") == 3
    assert '<table class="heads" data-component="ES" role="grid">' in dom


@needs_browser
@pytest.mark.slow
def test_the_grid_tells_the_facts_of_a_head(study: Path, tmp_path: Path) -> None:
    """A script in the page does what a reader does, and writes what is seen then into its title."""
    page = html.render(report_of([study], test=False).page)
    act = """<script>
    const [row, seed, score] = document.querySelectorAll("select");
    const choose = (select, text) => {
      select.value = [...select.options].find((option) => option.text === text).value;
      select.dispatchEvent(new Event("change"));
    };
    const seen = [];
    const facts = document.querySelector(".facts");
    const cell = document.querySelector('[data-component="ES"] [data-layer="1"][data-head="2"]');
    choose(row, "control");
    cell.dispatchEvent(new Event("mouseenter"));
    seen.push(facts.textContent);
    choose(row, "50%");
    choose(seed, "all");
    choose(score, "gradient");
    cell.focus();
    seen.push(facts.textContent, cell.style.backgroundColor);
    cell.dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowDown", bubbles: true }));
    seen.push(document.activeElement.dataset.layer + " " + document.activeElement.dataset.head);
    // A browser whose window is not in front moves the focus without an event.
    document.activeElement.dispatchEvent(new Event("focus"));
    seen.push(facts.textContent);
    document.title = JSON.stringify(seen);
    </script></body>"""
    dom = assert_clean(page.replace("</body>", act), tmp_path)
    found = re.search(r"<title>(.*?)</title>", dom)
    assert found is not None
    seen = json.loads(found[1].replace("&lt;", "<").replace("&gt;", ">"))
    assert seen[0].startswith("ES, layer 1, head 2: kept; kept with 2 of 2 seeds of control;")
    assert seen[0].endswith(
        "ablation 1.29 (4 of 24 from the highest; p 0.01, after Holm\u2019s correction 0.24)."
    )
    kept = [
        2
        in Record.load(study / "pruned" / "50%" / f"seed{seed}" / "result.json").plan.kept["ES"][1]
        for seed in (1, 2)
    ]
    assert seen[1].startswith(f"ES, layer 1, head 2: kept with {sum(kept)} of 2 seeds; gradient ")
    assert seen[2].startswith("rgb(")
    assert seen[3] == "0 2"
    assert seen[4].startswith("ES, layer 0, head 2: ")
