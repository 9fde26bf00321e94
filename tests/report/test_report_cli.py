"""`headprune bleu` and `headprune report` from the command line."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from headprune.results.record import Record

from .conftest import Make


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from headprune.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_bleu_writes_a_result_and_prints_it(make: Make, tmp_path: Path) -> None:
    path, result = make()
    done = run(
        *("bleu", path.parent / "generation.txt", "--reference", tmp_path / "raw" / "test.de"),
        *("--plan", path.parent / "plan.json", "--seed", 1, "--data", "wmt14.en-ru"),
        *("--finetune", "30ep", "-o", tmp_path / "again.json"),
    )
    assert done.returncode == 0, done.stderr
    assert f"BLEU {result.metrics['bleu']:.2f}" in done.stdout
    assert Record.load(tmp_path / "again.json").signature == result.signature


def test_what_is_not_given_follows_from_the_plan(make: Make, tmp_path: Path) -> None:
    path, result = make(seed=2)
    done = run(
        *("bleu", path.parent / "generation.txt", "--reference", tmp_path / "raw" / "test.de"),
        *("--plan", path.parent / "plan.json", "--data", "wmt14.en-ru", "--finetune", "30ep"),
        *("-o", tmp_path / "again.json"),
    )
    assert done.returncode == 0, done.stderr
    again = Record.load(tmp_path / "again.json")
    assert (again.kind, again.row, again.seed) == ("pruned", "50%", 2)
    assert (again.form, again.requested_percent) == ("remove", 50.0)
    assert again.signature == result.signature


def test_the_old_name_of_bleu_works_and_says_so(make: Make, tmp_path: Path) -> None:
    path, result = make()
    arguments = (
        *(path.parent / "generation.txt", "--reference", tmp_path / "raw" / "test.de"),
        *("--plan", path.parent / "plan.json", "--seed", 1, "--data", "wmt14.en-ru"),
    )
    new = run("bleu", *arguments, "-o", tmp_path / "new.json")
    old = run("score", *arguments, "-o", tmp_path / "old.json")
    assert (new.returncode, new.stderr) == (0, "")
    assert (old.returncode, old.stdout) == (0, new.stdout)
    assert old.stderr == "headprune score is now called headprune bleu\n"
    assert Record.load(tmp_path / "old.json").metrics == result.metrics


def test_studies_of_one_name_are_told_apart_by_folders(make: Make, tmp_path: Path) -> None:
    """They begin with different baselines, so they have no common table."""
    for number, name in ((1, "one"), (2, "two")):
        path, record = make("baseline", row="baseline", percent=0, wrong=number, seed=number)
        (tmp_path / name).mkdir()
        replace(record, study="same", seed=1, files={}).save(tmp_path / name / path.name)
    folders = [tmp_path / "one", tmp_path / "two"]
    done = run("report", *folders, "-o", tmp_path / "out", "--no-test")
    assert done.returncode == 1 and "leave out one, or give the folders as two" in done.stderr
    named = [f"--study={folder.name}={folder}" for folder in folders]
    done = run("report", *named, "-o", tmp_path / "out", "--no-test")
    assert done.returncode == 0, done.stderr
    assert "# one" in done.stdout and "# two" in done.stdout
    assert (tmp_path / "out" / "one" / "table.md").is_file()
    done = run("report", "-o", tmp_path / "other")
    assert done.returncode == 2 and "no result file given" in done.stderr


def test_report_writes_all_its_files(make: Make, tmp_path: Path) -> None:
    files = [make("control", row="control", percent=0)[0], make()[0]]
    done = run("report", *files, "--output-dir", tmp_path / "out", "--title", "Made up")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# Made up")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "report.html",
        "report.md",
        "table.md",
        "table.csv",
        "table.json",
        "figure.png",
        "figure.svg",
        "drops.svg",
    }


def test_a_mistake_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    done = run("report", tmp_path / "nowhere.json", "--output-dir", tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {tmp_path}/nowhere.json: cannot be read: No such file or directory\n"
    )
    assert not (tmp_path / "out").exists()
