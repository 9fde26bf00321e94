"""The values of snakemake's `--config`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headprune import UsageError
from studies.settings import (
    Settings,
    data_folder,
    require_one_sharer,
    run_folder,
    settings_of,
    sibling_folder,
)

ROOT = Path("/checkout")


def test_text_is_taken_as_it_is() -> None:
    given = {"study": "demo", "out": "it's $(a) folder", "data_dir": "a b"}
    assert settings_of(given) == Settings(study="demo", out="it's $(a) folder", data_dir="a b")
    assert settings_of({"study": "demo"}) == Settings(study="demo", out=None, data_dir=None)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({}, "which study?"),
        ({"study": "demo", "data-dir": "x"}, "--config data-dir: there are study, table, out"),
        ({"study": "demo", "data_dir": 5}, "--config data_dir: snakemake reads the value as a num"),
        ({"study": "demo", "out": True}, "--config out: snakemake reads the value as true or fal"),
        ({"study": ["demo"]}, "--config study: snakemake reads the value as a list"),
        ({"study": "demo", "out": None}, "--config out: the value is empty"),
    ],
)
def test_what_snakemake_does_not_read_as_text_is_refused(
    config: dict[str, object], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        settings_of(config)
    assert message in str(caught.value)


@pytest.mark.parametrize("name", ["runs/a b", "runs/it's", "runs/$(touch P)", "/x/ä;*?"])
def test_a_run_folder_keeps_its_name(name: str) -> None:
    assert run_folder(name, root=ROOT, runner="translation") == name


def test_a_run_folder_is_no_option_and_ends_without_a_slash() -> None:
    assert run_folder("runs/x/", root=ROOT, runner="glue") == "runs/x"
    assert run_folder("-x", root=ROOT, runner="glue") == os.path.abspath("-x")


def test_a_run_folder_has_a_name_that_its_neighbours_follow_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "runs" / "long").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "runs" / "long")
    out = run_folder(".", root=ROOT, runner="glue")
    assert out == str(tmp_path / "runs" / "long")
    assert sibling_folder(out, name="base") == str(tmp_path / "runs" / "base")
    assert run_folder("..", root=ROOT, runner="glue") == str(tmp_path / "runs")


def test_the_checkout_is_no_run_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in (".", str(tmp_path), f"{tmp_path}/"):
        with pytest.raises(
            UsageError, match="^out: .* is the checkout itself; choose a folder such"
        ):
            run_folder(name, root=tmp_path, runner="glue")


def test_a_folder_of_source_files_is_no_run_folder() -> None:
    root = Path(__file__).resolve().parents[2]
    with pytest.raises(UsageError, match="^out: .*studies holds source files; choose a folder"):
        run_folder(str(root / "studies"), root=root, runner="glue")


def test_base_is_the_folder_of_one_other_study() -> None:
    require_one_sharer(None, study="a", homes=["b", "c"])
    require_one_sharer("x", study="a", homes=["b", "b"])
    require_one_sharer("x", study="a", homes=["b", "a"])
    with pytest.raises(UsageError, match="base: a shares data or baseline with no study; leave"):
        require_one_sharer("x", study="a", homes=["a", "a"])
    with pytest.raises(UsageError, match="data of c and the baseline of b, which are two run fo"):
        require_one_sharer("x", study="a", homes=["c", "b"])


def test_a_mistake_in_another_setting_has_its_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="^base: .*file exists and is not a folder"):
        run_folder(str(tmp_path / "file"), root=ROOT, runner="glue", key="base")


@pytest.mark.parametrize("name", ["runs/{row}", "a\nb", "a\\b", "runs/a:b", "x" * 300])
def test_a_run_folder_that_is_no_path_to_snakemake_or_fairseq_is_refused(name: str) -> None:
    with pytest.raises(UsageError, match="^out: "):
        run_folder(name, root=ROOT, runner="translation")


def test_a_run_folder_is_no_file(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="exists and is not a folder"):
        run_folder(str(tmp_path / "file"), root=ROOT, runner="glue")


def test_the_data_folder_is_there(tmp_path: Path) -> None:
    assert data_folder(None) is None
    assert data_folder(str(tmp_path)) == tmp_path.resolve()
    for missing in (str(tmp_path / "none"), "a\0b", "x" * 5000):
        with pytest.raises(UsageError, match="data_dir: there is no folder"):
            data_folder(missing)
