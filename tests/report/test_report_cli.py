"""`headprune score` and `headprune report` from the command line."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from headprune.report.results import Result

from .conftest import Make


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", "from headprune.cli import main; main()", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
    )


def test_score_writes_a_result_and_says_it(make: Make, tmp_path: Path) -> None:
    path, result = make()
    done = run(
        *("score", path.parent / "generation.txt", "--reference", tmp_path / "raw" / "test.de"),
        *("--plan", path.parent / "plan.json", "--seed", 1, "--data", "wmt14.en-ru"),
        *("--finetune", "30ep", "-o", tmp_path / "again.json"),
    )
    assert done.returncode == 0, done.stderr
    assert f"BLEU {result.bleu:.2f}" in done.stdout
    assert Result.load(tmp_path / "again.json").signature == result.signature


def test_report_writes_all_its_files(make: Make, tmp_path: Path) -> None:
    files = [make("control", row="control", percent=0)[0], make()[0]]
    done = run("report", *files, "--output-dir", tmp_path / "out", "--title", "Made up")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("# Made up")
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "table.md",
        "table.csv",
        "table.json",
        "figure.png",
        "figure.svg",
    }


def test_a_mistake_is_one_line_and_no_traceback(tmp_path: Path) -> None:
    done = run("report", tmp_path / "nowhere.json", "--output-dir", tmp_path / "out")
    assert done.returncode == 1
    assert done.stderr == (
        f"error: {tmp_path}/nowhere.json: cannot be read: No such file or directory\n"
    )
    assert not (tmp_path / "out").exists()
