"""The values of snakemake's `--config`."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from headprune import UsageError
from studies.settings import Settings, data_folder, run_folder, settings_of

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


@pytest.mark.parametrize("name", ["runs/a b", "runs/it's", "runs/$(touch P)", "/x/ä;*?", "."])
def test_a_run_folder_keeps_its_name(name: str) -> None:
    assert run_folder(name, root=ROOT, runner="translation") == name


def test_a_run_folder_is_no_option_and_ends_without_a_slash() -> None:
    assert run_folder("runs/x/", root=ROOT, runner="glue") == "runs/x"
    assert run_folder("-x", root=ROOT, runner="glue") == os.path.abspath("-x")


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
