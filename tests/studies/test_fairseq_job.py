"""The program that a study's jobs run."""

from __future__ import annotations

from pathlib import Path

import pytest

from studies import fairseq_job


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
