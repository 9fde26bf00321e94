"""Steps are run once, and repeated when their inputs, options or outputs have changed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from data_prep.lib import steps
from headprune.errors import DataError

ROOT = Path(__file__).resolve().parents[2]

STEP_MODULE = """
import pathlib, signal
def main(arguments):
    source, target, text = arguments[:3]
    with open("calls", "a") as calls:
        calls.write(text)
    if text == "fail":
        raise RuntimeError
    pathlib.Path(target).write_text("half")
    if text == "hang":
        print("half", flush=True)
    while text == "hang":
        signal.pause()
    pathlib.Path(target).write_text(pathlib.Path(source).read_text() + text)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "a_step.py").write_text(STEP_MODULE)
    (tmp_path / "source").write_text("source ")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "a_step", raising=False)
    return tmp_path


def run(text: str, *more: str, source: str = "source") -> None:
    steps.run_step(
        "name",
        command=["a_step", source, "target", text, *more],
        inputs=[Path(source)],
        outputs=[Path("target")],
    )


def calls() -> str:
    return Path("calls").read_text() if Path("calls").exists() else ""


def test_the_second_run_is_skipped(capsys: pytest.CaptureFixture[str]) -> None:
    run("x")
    assert capsys.readouterr().err == "run:  name\n"
    run("x")
    assert capsys.readouterr().err == "skip: name (done before)\n"
    assert calls() == "x"
    assert Path("target").read_text() == "source x"


def test_other_options_run_it_again_and_back() -> None:
    run("x")
    run("y")
    run("x")
    assert calls() == "xyx"
    assert Path("target").read_text() == "source x"


def test_the_number_of_workers_does_not() -> None:
    run("x", "--workers", "1")
    run("x", "--workers", "8")
    assert calls() == "x"


def test_a_changed_input_does() -> None:
    run("x")
    Path("source").write_text("another source ")
    run("x")
    assert Path("target").read_text() == "another source x"


@pytest.mark.parametrize("change", ["removed", "changed"])
def test_an_output_that_is_not_as_it_was_left_does(change: str) -> None:
    run("x")
    if change == "removed":
        Path("target").unlink()
    else:
        Path("target").write_text("spoilt by hand")
    run("x")
    assert calls() == "xx"
    assert Path("target").read_text() == "source x"


def test_another_version_of_a_tool_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(steps.TOOLS, "a_step", ("some-tool",))
    monkeypatch.setattr(steps, "version", lambda name: "1.0")
    run("x")
    monkeypatch.setattr(steps, "version", lambda name: "2.0")
    run("x")
    assert calls() == "xx"


def test_a_failed_step_is_not_done() -> None:
    run("x")
    with pytest.raises(RuntimeError):
        run("fail")
    run("x")
    assert calls() == "xfailx"


def test_a_killed_step_is_not_done() -> None:
    run("x")
    command = [sys.executable, "-m", "data_prep.lib.steps", "name"]
    command += ["--in", "source", "--out", "target", "--do", "a_step", "source", "target", "hang"]
    process = subprocess.Popen(
        command,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{Path.cwd()}"},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "half\n"
    process.stdout.close()
    process.kill()
    process.wait()
    assert Path("target").read_text() == "half"
    run("x")
    assert Path("target").read_text() == "source x"


def test_leftovers_of_a_killed_step_are_removed() -> None:
    Path(".target.123.tmp").write_text("half")
    Path(".target.tmp").mkdir()
    run("x")
    assert not list(Path().glob(".target*"))


def test_the_manifest_goes_when_a_step_runs() -> None:
    run("x")
    Path("prep.json").write_text("{}")
    run("x")
    assert Path("prep.json").exists()
    run("y")
    assert not Path("prep.json").exists()


def test_a_changed_output_is_accepted_where_the_step_has_a_stamp() -> None:
    steps.refresh("name")  # a folder of prepared.sh has no stamps
    assert not steps.STAMPS.exists()
    run("x")
    Path("target").write_text("changed by other means")
    steps.refresh("name")
    run("x")
    assert calls() == "x"


def test_a_missing_input_is_an_error() -> None:
    with pytest.raises(DataError, match="nothing: no such file"):
        run("x", source="nothing")
