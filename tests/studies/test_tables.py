"""The tables of studies: their rows, and those that several tables share."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest
import yaml

from headprune import DataError, HeadPlan, UsageError
from headprune.origin import Origin
from headprune.select import at_random, by_location
from studies.find import load_any
from studies.glue_study import GlueStudy, load_glue_study
from studies.plans import Row
from studies.study import Study, load_study
from studies.tables import Table, chosen_tables
from tests.studies.test_study_file import MINIMAL

STUDIES = Path(__file__).parents[2] / "studies"
PAPER = json.loads(files("headprune.results").joinpath("paper_results.json").read_text())
BASE = dict.fromkeys(("ES", "ED", "DS"), (8,) * 6)
BERT = {"ES": (12,) * 12}


def paper_rows(name: str) -> list[dict[str, Any]]:
    """The rows of one of the paper's tables, without that of the unpruned model."""
    columns, rows = PAPER[name]["columns"], PAPER[name]["rows"]
    dicts = [dict(zip(columns, row, strict=True)) for row in rows]
    return [row for row in dicts if row.get("percent") != 0 and row.get("layers") != "none"]


def load(tmp_path: Path, **changes: Any) -> Study:
    path = tmp_path / "study.yaml"
    content = {**MINIMAL, **changes}
    path.write_text(yaml.safe_dump({k: v for k, v in content.items() if v is not ...}))
    return load_study(path)


@cache
def shipped(study: str) -> Study | GlueStudy:
    return load_any(STUDIES / f"{study}.yaml")


def table(study: str, name: str) -> Table:
    return shipped(study).tables[name]


def test_tables_have_the_rows_of_the_paper() -> None:
    percents = [row["percent"] for row in paper_rows("table1")]
    assert [row.requested_percent for row in table("wmt14.en-ru", "table1").rows] == percents
    assert [row.requested_percent for row in table("wmt14.en-de", "table1").rows] == percents
    for name in ("table2", "table3"):
        expected = [{part: row[part] for part in BASE} for row in paper_rows(name)]
        assert [row.keep for row in table("wmt14.en-ru", name).rows] == expected
        assert table("multi30k", name).rows == table("wmt14.en-ru", name).rows
    percents = [row["percent"] for row in paper_rows("table4")]
    assert [row.percent for row in table("glue.bert-base", "table4").rows] == percents
    for name in ("table5", "table6"):
        layers = [row["layers"] for row in paper_rows(name)]
        assert [row.prune for row in table("glue.bert-base", name).rows] == layers


def test_every_setting_of_the_paper_has_its_tables() -> None:
    translation = {"table1", "table2", "table3", "figure1"}
    bert = {"table4", "table5", "table6", "figure1", "figure2"}
    expected = {
        "wmt14.en-ru": translation,
        "wmt14.en-de": {"table1", "figure1"},
        "multi30k": translation,
        "enru": {"table1", "table2", "table3", "figure1"},
        "demo": translation,
        "glue.demo": bert,
        "glue.bert-base": bert,
        "glue.minilm": bert,
    }
    for name, tables in expected.items():
        study = shipped(name)
        assert set(chosen_tables("paper", study.tables, study=name)) == tables


def test_the_readme_names_the_tables_of_each_setting() -> None:
    readme = (STUDIES / "README.md").read_text()
    rows = re.findall(r"^\| (`.*?`) \| .*? \| (.*?) \| .*\|$", readme, re.MULTILINE)
    described = {
        name: re.findall("`(.*?)`", tables)
        for names, tables in rows
        for name in re.findall("`(.*?)`", names)
        if (STUDIES / f"{name}.yaml").is_file()
    }
    older = {"wmt14-en-ru", "wmt14-en-de", "glue-paper"}
    assert set(described) == {path.stem for path in STUDIES.glob("*.yaml")} - older
    assert described == {name: list(shipped(name).tables) for name in described}


def test_numbers_of_the_paper_are_those_of_the_pair() -> None:
    assert table("wmt14.en-ru", "table1").paper == ("table1:en-ru",)
    assert table("multi30k", "table1").paper == ("table1:en-de",)
    assert table("multi30k", "table2").paper == ("table2",)


def test_each_layer_is_the_same_row_as_one_head_a_layer() -> None:
    (row,) = (row for row in table("multi30k", "table1").rows if row.label == "87%")
    ones = dict.fromkeys(("ES", "ED", "DS"), "111111")
    assert row.plan(BASE, seed=2) == at_random(BASE, seed=2, keep=ones)
    assert (row.key, row.requested_percent, row.select) == ("87pct", 87, "random")


def kept(row: Row, shape: Mapping[str, tuple[int, ...]], seed: int) -> list[int]:
    return [sum(counts) for counts in row.plan(shape, seed=seed).counts.values()]


def test_heads_are_drawn_in_each_component_or_over_all() -> None:
    rows = {row.label: row for row in table("multi30k", "table1-by-component").rows}
    row = rows["81% by component"]
    assert kept(row, BASE, 1) == kept(row, BASE, 2) == [9, 9, 9]
    assert row.plan(BASE, seed=1) != row.plan(BASE, seed=2)
    assert (row.select, row.requested_percent) == ("random-by-component", 81)
    (over_all,) = (row for row in table("multi30k", "table1").rows if row.label == "81%")
    assert sum(kept(over_all, BASE, 1)) == 27 and kept(over_all, BASE, 1) != [9, 9, 9]


def test_a_row_of_two_tables_is_trained_once(tmp_path: Path) -> None:
    study = load(
        tmp_path,
        tables=[
            {"name": "one", "plans": [{"percent": 50}, {"percent": 25}]},
            {"name": "two", "tables": ["one"], "plans": [{"percent": 75}]},
        ],
    )
    assert [row.label for row in study.rows] == ["control", "50%", "25%", "75%"]
    assert [row.label for row in study.whole] == ["50%"]
    assert [row.label for row in study.tables["two"].rows] == ["75%", "50%", "25%"]
    folders = [model.folder for model in study.models(study.tables["one"].rows)]
    assert folders[:2] == ["baseline", "finetuned/control/seed1"]
    assert len(folders) == 1 + 3 * 3


def test_without_plans_the_whole_is_all_tables(tmp_path: Path) -> None:
    study = load(tmp_path, plans=..., tables=[{"name": "one", "plans": [{"percent": 25}]}])
    assert [row.label for row in study.whole] == ["25%"]
    with pytest.raises(DataError, match="missing key: plans, or tables"):
        load(tmp_path, plans=...)


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ("table1", "tables: a list is needed"),
        (["table9"], "tables[1]: no table is called 'table9'; give it `plans`, or one of adversar"),
        (["paper"], "the name 'paper' is reserved"),
        ([{"name": "own", "plans": [{"percent": 50}]}], "the name 'own' is reserved"),
        (["table1", "table1"], "tables[2]: 'table1' is there twice"),
        ([{"plans": []}], "tables[1].name: text is needed"),
        ([{"name": "a/b"}], "tables[1].name: 'a/b' names a folder"),
        ([{"name": "a", "rows": []}], "unknown key: tables[1].rows"),
        ([{"name": "a", "plans": [{"percent": 200}]}], "tables[1].plans[1].percent: a percentage"),
        ([{"name": "a", "tables": ["b"]}], "there is no table 'b' before this one"),
        ([{"name": "table1", "paper": ["table9"]}], "'table9' is not one of"),
        (["table2"], "tables[1].plans[1]: ES: "),
        (
            [{"name": "a", "plans": [{"percent": 25, "label": "50%"}]}],
            "tables: a: '50%' is another row than the '50%' of another table",
        ),
    ],
)
def test_a_mistake_in_tables_is_named(tmp_path: Path, tables: Any, message: str) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path, tables=tables)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ({"percent": 50, "order": "important-first"}, "order: only a `method` that is a score"),
        ({"percent": 50, "method": "gradient", "order": "first"}, "order: 'first' is not one of"),
        ({"percent": 50, "method": "gradient", "components": ["ED"]}, "components: a score ranks"),
        ({"percent": 50, "method": "rare"}, "rare has no numbers for DS, so it cannot rank all"),
        ({"percent": 50, "method": "layer-contribution"}, "no numbers for ES, ED, DS"),
        ({"percent": 50, "method": "movement"}, "50% movement: movement depends on a fine-tuning"),
        ({"percent": 50, "method": "top", "draw": "component"}, "draw: only heads that are drawn"),
        ({"each_layer": 9}, "plans[1]: ES: layer 0 asks for 9 heads"),
        ({"each_layer": 1, "components": ["ED"]}, "components: `each_layer` is for all"),
        ({"each_layer": 1, "draw": "component"}, "draw: only `percent` takes it"),
        ({"percent": 50, "recovery": "none"}, "recovery: 'none' is not one of finetune, scratch"),
    ],
)
def test_a_mistake_in_a_row_is_named(tmp_path: Path, entry: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError) as caught:
        load(tmp_path, plans=[entry])
    assert message in str(caught.value)


def of_layers(origin: Origin | None = None, **units: int) -> HeadPlan:
    """A plan that keeps the first half of some components' units; six layers."""
    return HeadPlan(
        kept={name: [range(number // 2)] * 6 for name, number in units.items()},
        units={name: [number] * 6 for name, number in units.items()},
        origin=origin,
    )


def small(tmp_path: Path, **changes: Any) -> Study:
    return load(tmp_path, arch="transformer_headpruned_small", **changes)


def minilm(tmp_path: Path, **changes: Any) -> GlueStudy:
    path = tmp_path / "study.yaml"
    values = {"name": "x", "runner": "glue", "model": "minilm", "tasks": {"sst2": {}}, **changes}
    path.write_text(yaml.safe_dump(values))
    return load_glue_study(path)


@pytest.mark.parametrize(("read", "heads", "neurons"), [(small, 8, 256), (minilm, 12, 1536)])
def test_a_plan_made_before_is_a_row(tmp_path: Path, read: Any, heads: int, neurons: int) -> None:
    """The units of the file are pruned, neurons and layers too; heads it does not name are kept."""
    file = tmp_path / "half of it.json"
    plan = of_layers(Origin(method="fisher", budget="2x speed"), EF=neurons)
    plan.save(file)
    study = read(tmp_path, plans=[{"plan": str(file)}, {"plan": str(file), "label": "b"}])
    row, other = study.whole
    assert (row.label, other.label, row.key) == ("half of it", "b", "half-of-it")
    assert (row.select, row.score, row.requested_percent) == ("fisher", None, None)
    made = study.plan(row.key, seed=1)
    assert made == study.plan(row.key, seed=2)
    assert made.origin == plan.origin
    assert made.counts["EF"] == (neurons // 2,) * 6 and made.counts["ES"] == (heads,) * 6
    # Another plan in the same file is another training.
    before = row.description(study.shape, seed=1)
    of_layers(ES=heads).save(file)
    assert row.description(study.shape, seed=1) != before
    # A plan that was drawn is one draw for all seeds, no sample of draws.
    for origin in (None, Origin(method="random", seed=1, budget="50%")):
        of_layers(origin, ES=heads).save(file)
        (row,) = read(tmp_path, plans=[{"plan": str(file)}]).whole
        assert row.select == "given"


def test_each_seed_may_have_a_plan_made_before(tmp_path: Path) -> None:
    for seed in (1, 2):
        folder = tmp_path / f"of seed {seed}"
        folder.mkdir()
        origin = Origin(method="random", seed=seed)
        at_random({"ES": (8,) * 6}, seed=seed, percent=25 * seed).with_origin(origin).save(
            folder / f"drawn.{seed}.json"
        )
    entry = {"plan": str(tmp_path / "of seed {seed}" / "drawn.{seed}.json")}
    study = small(tmp_path, plans=[entry], seeds=[1, 2])
    (row,) = study.whole
    assert (row.label, row.select) == ("drawn", "random")
    plans = [study.plan(row.key, seed=seed) for seed in (1, 2)]
    assert [sum(plan.counts["ES"]) for plan in plans] == [36, 24]
    with pytest.raises(DataError, match="drawn.3.json: .*no such file|drawn.3.json: cannot read"):
        small(tmp_path, plans=[entry], seeds=[1, 2, 3])


@pytest.mark.parametrize(
    ("units", "more", "message"),
    [
        ({"EF": 100}, {}, "EF: layer 0: the plan is for 100 neurons, the study's model has 256"),
        ({"ES": 12}, {}, "ES: layer 0: the plan is for 12 heads, the study's model has 8"),
        ({"ES": 8}, {"components": ["ES"]}, "components: `plan` names them itself"),
        ({"ES": 8}, {"method": "random"}, "method: only `percent` takes it"),
        (None, {}, "plans[1].plan: there is no file"),
    ],
)
def test_a_plan_file_that_does_not_fit_is_named(
    tmp_path: Path, units: dict[str, int] | None, more: dict[str, Any], message: str
) -> None:
    file = tmp_path / "plan.json"
    if units is not None:
        of_layers(**units).save(file)
    with pytest.raises(DataError) as caught:
        small(tmp_path, plans=[{"plan": str(file), **more}])
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_plan_file_of_neurons_is_in_no_form_uniform(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    of_layers(EF=1536).save(file)
    forms = ["remove", "uniform"]
    with pytest.raises(DataError, match="plan: form uniform is for heads alone; give the row"):
        minilm(tmp_path, plans=[{"plan": str(file)}], forms=forms)
    minilm(tmp_path, plans=[{"plan": str(file), "forms": ["remove"]}], forms=forms)


def test_a_method_of_a_plan_file_that_no_signature_can_name(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    of_layers(Origin(method="a|b c"), ES=8).save(file)
    with pytest.raises(DataError, match=r"plan.json: origin.method 'a\|b c': give one word"):
        small(tmp_path, plans=[{"plan": str(file)}])


def test_tables_are_chosen_by_name() -> None:
    study = shipped("demo")

    def chosen(names: str) -> list[str]:
        return chosen_tables(names, study.tables, study="demo")

    assert chosen("") == chosen("own") == []
    assert chosen("table2, table1,table2") == ["table2", "table1"]
    assert chosen("paper,scratch") == ["table1", "table2", "table3", "figure1", "scratch"]
    with pytest.raises(UsageError) as refusal:
        chosen("table4")
    names = ("glue.demo", "glue.minilm-bf16", "glue.minilm-mean", "glue.minilm")
    others = f"glue-paper, glue.bert-base, {', '.join(names)} have it"
    assert str(refusal.value).startswith("table: the study demo has no 'table4'; it has: table1,")
    assert str(refusal.value).endswith(f"own; {others}")
    with pytest.raises(UsageError, match="'own' is the study's own table; make it without others"):
        chosen("own,table1")
    with pytest.raises(UsageError, match="has no 'paper'; it has: own"):
        chosen_tables("paper", {}, study="x")


def test_rows_from_scratch_are_trained_like_the_baseline(tmp_path: Path) -> None:
    plans = [{"percent": 50}, {"percent": 50, "recovery": "scratch"}]
    study = load(tmp_path, plans=plans, seeds=[4], before_finetune=True)
    models = {model.folder: model for model in study.models(study.whole)}
    assert list(models) == [
        "baseline",
        "finetuned/control/seed4",
        "finetuned/50pct/seed4",
        "scratch/50pct-from-scratch/seed4",
        "before-finetune/50pct/seed4",
    ]
    scratch = models["scratch/50pct-from-scratch/seed4"]
    assert (scratch.kind, scratch.finetune, scratch.label) == (
        "scratch",
        "scratch-2ep",
        "50% from scratch",
    )
    assert scratch.row.plan(study.shape, seed=4) == study.row("50pct").plan(study.shape, seed=4)


def test_all_trainings_of_a_study_take_several_gpus(tmp_path: Path) -> None:
    shared = {name: MINIMAL[name] | {"update-freq": 4} for name in ("train", "finetune")}
    study = load(tmp_path, gpus=4, resources={"finetune": {"threads": 8}}, **shared)
    asked = {rule: resources.gpu for rule, resources in study.resources.items()}
    assert asked["baseline"] == asked["finetune"] == 4
    assert asked["generate"] == asked["scores"] == 1 and asked["report"] == 0
    assert study.resources["finetune"].threads == 8
    with pytest.raises(DataError, match="gpus: a whole number from 1 on"):
        load(tmp_path, gpus=0)


def test_a_study_of_glue_has_no_baseline_to_score(tmp_path: Path) -> None:
    path = tmp_path / "glue.yaml"
    values = {"name": "g", "runner": "glue", "model": "m", "shape": {"ES": "4x4"}}
    row = {"percent": 50, "method": "gradient"}
    path.write_text(yaml.safe_dump({**values, "tasks": {"sst2": {}}, "plans": [row]}))
    with pytest.raises(DataError, match="50% gradient: a study of GLUE has no baseline"):
        load_glue_study(path)


def test_figure_2_is_drawn_of_tables_5_and_6_and_its_models_are_kept() -> None:
    study = shipped("glue.bert-base")
    assert isinstance(study, GlueStudy)
    keys = set(study.changed_keys("figure2"))
    of_layers = {row.key for name in ("table5", "table6") for row in study.tables[name].rows}
    assert keys == of_layers | {"10pct", "50pct", "90pct"}
    assert study.kept_runs == {f"mnli/{key}/remove/seed1" for key in keys}
    plan = study.plan("even-6", seed=1)
    assert plan == by_location(BERT, prune="even 6")
