"""Records of single measurements, and the outputs beside them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headprune.compare.measuring import measure_and_save
from headprune.errors import DataError
from headprune.task_model import Measurement
from tests.headprune.compare.test_compare import Made, subject


def test_outputs_stay_as_they_were_if_the_record_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = replace(subject(), metric="accuracy")
    output = tmp_path / "result.json"
    monkeypatch.setattr(Made, "measured_data_name", "made.up", raising=False)

    def measure(value: float, outputs: str) -> None:
        measurement = Measurement(value, False, outputs={"predictions": outputs})
        monkeypatch.setattr(Made, "measure", lambda self, plan=None: measurement)
        measure_and_save(made, output=output)

    measure(80.0, "first\n")
    files = {path: path.read_text() for path in tmp_path.iterdir()}
    assert "first\n" in files.values() and output in files
    with pytest.raises(DataError, match="result.json: not written: accuracy is 101.0, not between"):
        measure(101.0, "second\n")
    assert {path: path.read_text() for path in tmp_path.iterdir()} == files
