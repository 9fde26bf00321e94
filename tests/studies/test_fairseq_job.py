"""The parts of a training job that a kill or a changed study puts to the test."""

from __future__ import annotations

import argparse
import fcntl
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from studies import fairseq_job


def options(tmp_path: Path, **changes: object) -> argparse.Namespace:
    (tmp_path / "data" / "bin").mkdir(parents=True, exist_ok=True)
    values = {"data": tmp_path / "data", "depends": [], "precision": "fp32", **changes}
    return argparse.Namespace(**values)


def checkpoint(path: Path, content: str = "weights") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", content * 100)
    return path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "2026-01-01 00:00:00 | INFO | valid | epoch 012 | valid on 'valid' subset | loss 4.2 | "
            "nll_loss 2.6 | ppl 6.1 | wps 900 | num_updates 1000 | best_loss 4.2",
            "epoch 12 | valid ppl 6.1",
        ),
        (
            "2026-01-01 00:00:00 | INFO | train_inner | epoch 003:     50 / 249 loss=7.1, "
            "nll_loss=6.2, ppl=75.3, wps=2000, num_updates=550",
            "epoch 3 | batch 50 of 249 | ppl 75.3",
        ),
        ("2026-01-01 00:00:00 | INFO | train | epoch 003 | loss 7 | ppl 70", None),
        ("a traceback, say", None),
    ],
)
def test_progress_in_short(line: str, said: str | None) -> None:
    assert fairseq_job.progress_line(line) == said


def test_a_longer_training_is_the_same_training(tmp_path: Path) -> None:
    short = fairseq_job._identity(options(tmp_path), ["--lr", "1", "--max-epoch", "2"])
    longer = fairseq_job._identity(options(tmp_path), ["--lr", "1", "--max-epoch", "9"])
    other = fairseq_job._identity(options(tmp_path), ["--lr", "2", "--max-epoch", "2"])
    assert short == longer
    assert short != other


def test_a_training_in_another_place_is_the_same_training(tmp_path: Path) -> None:
    flags = ["--user-dir", "/here/fairseq_plugin", "--head-plan", "/here/plan.json", "--lr", "1"]
    moved = [flag.replace("/here", "/there") for flag in flags]
    given = options(tmp_path)
    assert fairseq_job._identity(given, flags) == fairseq_job._identity(given, moved)


def test_other_data_or_another_start_is_another_training(tmp_path: Path) -> None:
    start = tmp_path / "model.pt"
    start.write_bytes(b"one")
    given = options(tmp_path, depends=[start])
    first = fairseq_job._identity(given, [])
    start.write_bytes(b"two")
    second = fairseq_job._identity(given, [])
    (tmp_path / "data" / "bin" / "dict.en.txt").write_text("a 1\n")
    third = fairseq_job._identity(given, [])
    assert len({first, second, third}) == 3


def test_checkpoints_stay_only_while_the_training_is_the_same(tmp_path: Path) -> None:
    last = checkpoint(tmp_path / "checkpoint_last.pt")
    fairseq_job._forget_unless_same(tmp_path, "a")
    assert not last.exists()  # Of whatever training that was.
    checkpoint(last)
    fairseq_job._forget_unless_same(tmp_path, "a")
    assert last.exists()
    fairseq_job._forget_unless_same(tmp_path, "b")
    assert not last.exists()


def test_a_last_checkpoint_cut_short_is_replaced_by_the_best(tmp_path: Path) -> None:
    best = checkpoint(tmp_path / "checkpoint_best.pt")
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(best.read_bytes()[: best.stat().st_size // 2])
    fairseq_job._mend_last_checkpoint(tmp_path)
    assert last.read_bytes() == best.read_bytes()


def test_a_last_checkpoint_cut_short_goes_where_there_is_no_better(tmp_path: Path) -> None:
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(b"PK\x03\x04 cut")
    fairseq_job._mend_last_checkpoint(tmp_path)
    assert not last.exists()


def test_a_whole_last_checkpoint_is_left_alone(tmp_path: Path) -> None:
    checkpoint(tmp_path / "checkpoint_best.pt", "older")
    last = checkpoint(tmp_path / "checkpoint_last.pt", "newer")
    before = last.read_bytes()
    fairseq_job._mend_last_checkpoint(tmp_path)
    assert last.read_bytes() == before


def test_the_folder_is_held_by_the_training_after_its_job_was_killed(tmp_path: Path) -> None:
    code = "import sys; print('held', flush=True); sys.stdin.read()"
    with fairseq_job._alone_in(tmp_path) as lock:
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(lock,),
        )
        assert child.stdout is not None
        child.stdout.readline()
    # This process has let go of the folder, its child has not.
    with (tmp_path / "lock").open("w") as again:
        with pytest.raises(BlockingIOError):
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        child.communicate(b"")
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_data_that_was_not_prepared_is_one_clear_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = fairseq_job.main(
        ["train", "--data", str(tmp_path / "nowhere"), "--label", "x"]
        + ["--model", str(tmp_path / "m.pt"), "--log", str(tmp_path / "log"), "--"]
    )
    assert status == 1
    assert capsys.readouterr().err == (
        f"error: {tmp_path}/nowhere/prep.json: cannot be read: No such file or directory\n"
    )
