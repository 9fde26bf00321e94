"""Run folders: shared, locked, rebuilt. The programs are stand-ins that only write files."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from headprune.locks import locked_folder
from tests.studies.test_study_run import ROOT, copied_checkout

pytest.importorskip("fairseq", reason="the flags of studies are checked by fairseq")

SHORT = {"extends": "tiny", "seeds": [1], "before_finetune": False}


class Bench:
    """A checkout whose programs only write files, and a folder to run studies in."""

    def __init__(self, folder: Path) -> None:
        self.studies = copied_checkout(folder / "checkout")
        self.work = folder / "work"
        self.record = folder / "record"
        self.work.mkdir()
        stub = (ROOT / "tests" / "studies" / "stub.py").read_text()
        checkout = self.studies.parent
        programs = ("studies/fairseq_job.py", "studies/calibrate.py", "headprune/cli/__init__.py")
        for program in programs:
            (checkout / program).write_text(stub)
        script = checkout / "data_prep" / "numbers.sh"
        script.write_text(f"#!{sys.executable}\n{stub}")

    def study(self, name: str, **values: object) -> Path:
        """Write a study's file."""
        path = self.work / f"{name}.yaml"
        path.write_text(yaml.safe_dump({"name": name, **SHORT, **values}))
        return path

    def run(self, name: str, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a study; `words` are further settings and, after "--", targets and options."""
        at = words.index("--") if "--" in words else len(words)
        return subprocess.run(
            [
                *(sys.executable, "-m", "snakemake", "-s", str(self.studies / "Snakefile")),
                *("--cores", "2", *words[at + 1 :]),
                *("--config", f"study={self.work / name}.yaml", f"out=runs/{name}", *words[:at]),
            ],
            cwd=self.work,
            env={**os.environ, "RECORD": str(self.record), **environment},
            capture_output=True,
            text=True,
            check=False,
        )

    def calls(self) -> list[list[str]]:
        """The arguments of the programs since the last look."""
        lines = self.record.read_text().splitlines() if self.record.exists() else []
        self.record.unlink(missing_ok=True)
        return [json.loads(line) for line in lines]

    def labels(self) -> list[str]:
        """The labels of the trainings since the last look."""
        return sorted(
            call[call.index("--label") + 1] for call in self.calls() if call[0] == "train"
        )


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    bench = Bench(tmp_path_factory.mktemp("bench"))
    bench.study("base", plans=[{"percent": 50}], tables=[{"name": "a", "plans": [{"percent": 25}]}])
    bench.study(
        "longer",
        extends="base",
        baseline_of="base",
        finetune={"max-epoch": 2},
        tables=[{"name": "b", "plans": [{"percent": 50}, {"percent": 25, "recovery": "scratch"}]}],
    )
    return bench


def ok(done: subprocess.CompletedProcess[str]) -> None:
    assert done.returncode == 0, done.stdout + done.stderr


def jobs(done: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """The number of jobs of each rule in a dry run."""
    found = re.findall(r"^(\w+) +(\d+) *$", done.stdout + done.stderr, re.MULTILINE)
    return {rule: int(number) for rule, number in found if rule not in ("all", "total")}


@pytest.mark.slow
def test_one_baseline_serves_two_studies_and_all_tables(bench: Bench) -> None:
    runs = bench.work / "runs"
    ok(bench.run("longer", "table=b"))
    assert bench.labels() == [
        "25pct-from-scratch seed 1",
        "50pct seed 1",
        "baseline",
        "control seed 1",
    ]
    assert (runs / "base" / "baseline" / "model.pt").is_file()
    assert (runs / "base" / "data" / "prep.json").is_file()
    assert not (runs / "longer" / "baseline" / "model.pt").exists()
    assert (runs / "longer" / "baseline" / "result.json").is_file()
    assert (runs / "longer" / "tables" / "b" / "table.md").is_file()
    assert not (runs / "longer" / "table.md").exists()

    ok(bench.run("base"))
    assert bench.labels() == ["50pct seed 1", "control seed 1"]
    assert (runs / "base" / "table.md").is_file()
    ok(bench.run("base", "table=a"))
    assert bench.labels() == ["25pct seed 1"]
    assert bench.run("base", "table=b").returncode != 0

    # What one output needs is made again, and no training besides.
    for output, expected in {
        "table.md": {"report": 1},
        "figure.svg": {"report": 1},
        "report.html": {"report": 1},
        "report.md": {"report": 1},
        "finetuned/50pct/seed1/result.json": {"score": 1, "report": 1},
        "finetuned/50pct/seed1/result.hyp.txt": {"score": 1, "report": 1},
        "baseline/result.json": {"score": 1, "report": 1},
    }.items():
        path = runs / "base" / output
        path.rename(path.with_name("aside"))
        assert jobs(bench.run("base", "--", "-n")) == expected, output
        path.with_name("aside").rename(path)
    after = {"generate": 1, "score": 1, "report": 1}
    folder = runs / "base" / "finetuned" / "50pct" / "seed1"
    (folder / "generation.txt").unlink()
    assert jobs(bench.run("base", "--", "-n")) == after
    ok(bench.run("base"))
    assert bench.labels() == []
    (folder / "model.pt").unlink()
    assert jobs(bench.run("base", "--", "-n")) == {"finetune": 1, **after}
    ok(bench.run("base"))
    assert bench.labels() == ["50pct seed 1"]
    # Records without models, as those of another machine, stay as they are.
    for name in ("model.pt", "model.json", "generation.txt"):
        (folder / name).unlink()
    assert jobs(bench.run("base", "--", "-n")) == {}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("values", "changed"),
    [
        ({}, {"finetune": {"lr": 0.5}}),
        (
            {"extends": "glue", "before_finetune": None, "changes": None},
            {"tasks": {"sst2": {"max-length": 32}}},
        ),
    ],
    ids=["translation", "glue"],
)
def test_a_calibration_is_repeated_when_its_settings_change(
    bench: Bench, values: dict[str, object], changed: dict[str, object]
) -> None:
    values = {"plans": [{"percent": 50}], **values}
    name = f"calibrated-{values.get('extends', 'tiny')}"
    calibration = f"runs/{name}/calibration.json"
    bench.study(name, **values)
    ok(bench.run(name, "--", calibration))
    assert [call[0] for call in bench.calls() if "--output" in call] == ["calibrate"]
    bench.study(name, **values, **changed)
    assert jobs(bench.run(name, "--", "-n", calibration)) == {"calibrate": 1}


@pytest.mark.slow
def test_a_second_run_in_a_folder_is_refused_in_one_line(bench: Bench) -> None:
    bench.study("locked", plans=[{"percent": 50}])
    with locked_folder(bench.work / "runs" / "locked"):
        done = bench.run("locked")
        dry = bench.run("locked", "--", "-n")
    assert done.returncode != 0 and not bench.calls()
    (line,) = [line for line in (done.stdout + done.stderr).splitlines() if "runs/locked" in line]
    assert line.startswith("runs/locked: another command is working there (process ")
    assert "Traceback" not in done.stdout + done.stderr
    ok(dry)
    assert "trainings: 3, of which 0 are done" in dry.stderr


@pytest.mark.slow
def test_a_failed_training_shows_the_end_of_its_log_and_the_others_go_on(bench: Bench) -> None:
    bench.study("failing", plans=[{"percent": 50}, {"percent": 25}])
    done = bench.run("failing", FAIL="50pct seed 1")
    assert done.returncode != 0
    assert "loss became NaN in epoch 7" in done.stderr
    assert (bench.work / "runs/failing/finetuned/25pct/seed1/result.json").is_file()
    assert not (bench.work / "runs/failing/table.md").exists()
    bench.calls()
    ok(bench.run("failing"))
    assert bench.labels() == ["50pct seed 1"]
    shutil.rmtree(bench.work / "runs/failing")
