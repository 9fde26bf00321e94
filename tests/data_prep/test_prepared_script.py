"""Copies of finished preparations, for studies."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
from pathlib import Path

import pytest
from conftest import ROOT, Script

PARTS = ("raw", "bpe", "bin")


def prepared(folder: Path, text: str = "one") -> Path:
    for part in PARTS:
        (folder / part).mkdir(parents=True, exist_ok=True)
        (folder / part / "train.en").write_text(text)
    (folder / "prep.json").write_text(f'{{"corpus": "{text}"}}')
    return folder


def texts(folder: Path) -> list[str]:
    return [(folder / part / "train.en").read_text() for part in PARTS]


def test_a_copy_is_replaced_by_another_one(script: Script, python: str, tmp_path: Path) -> None:
    out, options = tmp_path / "out", ("--out", "out", "--python", python)
    for text in ("one", "two"):
        assert script("prepared.sh", *options, "--from-dir", prepared(tmp_path / text, text)).stderr
        assert texts(out) == [text] * 3
        assert (out / "prep.json").read_bytes() == (tmp_path / text / "prep.json").read_bytes()
    again = script("prepared.sh", *options, "--from-dir", "two")
    assert (again.returncode, again.stderr) == (0, f"skip: {out} (copied before)\n")
    # As snakemake does before it runs the script again, and as a kill leaves it.
    (out / "prep.json").unlink()
    assert script("prepared.sh", *options, "--from-dir", "one").returncode == 0
    assert texts(out) == ["one"] * 3
    assert {path.name for path in out.iterdir()} == {*PARTS, "prep.json", ".lock", ".copied"}


def test_a_copy_of_an_earlier_version_is_made_again(
    script: Script, python: str, tmp_path: Path
) -> None:
    """It has no .copied, and snakemake has removed its prep.json."""
    prepared(tmp_path / "from")
    prepared(tmp_path / "out")
    (tmp_path / "out" / "prep.json").unlink()
    done = script("prepared.sh", "--out", "out", "--from-dir", "from", "--python", python)
    assert done.returncode == 0 and (tmp_path / "out" / "prep.json").exists()


@pytest.mark.parametrize("part", PARTS)
def test_a_users_folders_are_left_alone(
    part: str, script: Script, python: str, tmp_path: Path
) -> None:
    prepared(tmp_path / "from")
    (tmp_path / "out" / part).mkdir(parents=True)
    (tmp_path / "out" / part / "mine").write_text("mine")
    done = script("prepared.sh", "--out", "out", "--from-dir", "from", "--python", python)
    problem = f"error: {tmp_path}/out: {part}/ is there without a prep.json; move it away\n"
    assert (done.returncode, done.stderr) == (1, problem)
    assert (tmp_path / "out" / part / "mine").read_text() == "mine"
    assert not (tmp_path / "out" / "prep.json").exists()


def test_a_copy_that_lost_a_part_is_made_again(script: Script, python: str, tmp_path: Path) -> None:
    prepared(tmp_path / "from")
    options = ("--out=out", "--from-dir=from", "--python", python)
    assert script("prepared.sh", *options).returncode == 0
    shutil.rmtree(tmp_path / "out" / "bin")
    assert script("prepared.sh", *options).stderr == f"done: {tmp_path}/out\n"
    assert texts(tmp_path / "out") == ["one"] * 3


def test_the_preparation_of_another_script_is_left_alone(
    script: Script, python: str, tmp_path: Path
) -> None:
    prepared(tmp_path / "from", "two")
    (prepared(tmp_path / "out") / ".steps").mkdir()
    done = script("prepared.sh", "--out", "out", "--from-dir", "from", "--python", python)
    problem = "another script has prepared data here; choose another folder"
    assert (done.returncode, done.stderr) == (1, f"error: {tmp_path}/out: {problem}\n")
    assert texts(tmp_path / "out") == ["one"] * 3


def test_nothing_is_replaced_by_half_of_a_preparation(
    script: Script, python: str, tmp_path: Path
) -> None:
    prepared(tmp_path / "out")
    prepared(tmp_path / "from", "two")
    (tmp_path / "from" / "bin" / "train.en").unlink()
    (tmp_path / "from" / "bin").rmdir()
    done = script("prepared.sh", "--out", "out", "--from-dir", "from", "--python", python)
    assert (done.returncode, done.stderr) == (1, "error: from: no bin/, no finished preparation\n")
    assert texts(tmp_path / "out") == ["one"] * 3


def test_waits_for_another_preparation_in_the_folder(python: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    command = ["bash", str(ROOT / "data_prep" / "prepared.sh"), "--python", python]
    command += ["--out", str(out), "--from-dir", str(prepared(tmp_path / "from"))]
    with (out / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        assert "another preparation is at work" in process.stderr.readline()
        assert not (out / "bin").exists()
    assert process.communicate()[1] == f"done: {out}\n"
    assert process.returncode == 0 and texts(out) == ["one"] * 3
