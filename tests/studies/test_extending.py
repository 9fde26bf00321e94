"""Studies that extend others, and that share their data and baseline."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from headprune import DataError
from studies.extending import read_study
from studies.study import Study, load_study
from tests.studies.test_study_file import MINIMAL

STUDIES = Path(__file__).parents[2] / "studies"


def write(folder: Path, name: str, **values: object) -> Path:
    path = folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump({"name": name, **values}, sort_keys=False))
    return path


def base_and(folder: Path, **values: object) -> Path:
    base = {key: value for key, value in MINIMAL.items() if key != "name"}
    write(folder, "base", description="the base", **base)
    return write(folder, "other", extends="base", **values)


def test_a_study_says_only_what_differs(tmp_path: Path) -> None:
    path = base_and(tmp_path, finetune={"max-epoch": 7, "lr": 1}, seeds=[5])
    study = load_study(path)
    assert (study.name, study.description, study.seeds) == ("other", "", (5,))
    assert study.finetune.length == "7ep" and "--lr" in study.finetune.flags
    assert study.train == load_study(tmp_path / "base.yaml").train
    assert [row.label for row in study.rows] == ["control", "50%"]


def test_mappings_are_merged_lists_replaced_and_empty_keys_removed(tmp_path: Path) -> None:
    write(tmp_path, "base", a={"x": 1, "y": {"z": 2}}, b=[1, 2], c=3)
    path = write(tmp_path, "other", extends="base", a={"y": {"w": 4}, "x": None}, b=[3], c=None)
    assert read_study(path) == {"name": "other", "a": {"y": {"z": 2, "w": 4}}, "b": [3]}


def test_a_chain_of_studies_and_studies_that_are_shipped(tmp_path: Path) -> None:
    base_and(tmp_path, seeds=[5])
    assert load_study(write(tmp_path, "third", extends="other")).seeds == (5,)
    shipped = load_study(write(tmp_path, "mine", extends="tiny"))
    assert shipped.train == load_study(STUDIES / "tiny.yaml").train


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"extends": "nowhere"}, "loop.yaml: extends: no study is called 'nowhere'"),
        ({"extends": "loop"}, "loop.yaml: extends: the study extends itself"),
        ({"extends": 3}, "loop.yaml: extends: text is needed"),
    ],
)
def test_a_mistake_in_extends_is_named(
    tmp_path: Path, values: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        load_study(write(tmp_path, "loop", **values))
    assert message in str(caught.value)


def test_a_name_is_not_taken_over(tmp_path: Path) -> None:
    path = base_and(tmp_path)
    path.write_text("extends: base\n")
    with pytest.raises(DataError, match="missing key: name"):
        load_study(path)


def homes(study: Study) -> tuple[str, str]:
    return study.data_home, study.baseline_home


def test_data_and_baseline_are_those_of_another_study(tmp_path: Path) -> None:
    assert homes(load_study(base_and(tmp_path))) == ("other", "other")
    longer = base_and(tmp_path, baseline_of="base", finetune={"max-epoch": 7})
    assert homes(load_study(longer)) == ("base", "base")
    second = write(
        tmp_path, "second", extends="other", baseline_of=None, data_of="other", baseline_seed=2
    )
    assert homes(load_study(second)) == ("base", "second")


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"train": {"lr": 1}}, "baseline_of: base has another `train`, so it cannot be shared"),
        ({"baseline_seed": 2}, "base has another `baseline_seed`"),
        ({"precision": "fp16"}, "base has another `precision`"),
        ({"generate": {"beam": 7}}, "baseline_of: base has another `generate`"),
        ({"baseline_of": "other"}, "the study shares with itself"),
        ({"baseline_of": "nowhere"}, "baseline_of: no study is called 'nowhere'"),
        (
            {"baseline_of": None, "data_of": "base", "data": {"args": {"train": 11}}},
            "data_of: base has another `data`",
        ),
    ],
)
def test_only_what_is_the_same_can_be_shared(
    tmp_path: Path, values: dict[str, object], message: str
) -> None:
    with pytest.raises(DataError) as caught:
        load_study(base_and(tmp_path, **{"baseline_of": "base", **values}))
    assert message in str(caught.value)


def test_the_long_fine_tuning_is_the_schedule_of_the_baseline() -> None:
    study = load_study(STUDIES / "multi30k-long.yaml")
    assert sorted(study.finetune.flags) == sorted(study.train.flags)
    assert homes(study) == ("multi30k", "multi30k")
