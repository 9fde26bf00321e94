"""The batch size and learning rate that a grid search chose."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from headprune import DataError
from headprune.results.record import Record
from studies.chosen_cell import options_of

RECORD = Path(__file__).parents[1] / "old_files" / "files" / "glue/control/result.json"


def record(folder: Path, **settings: object) -> Path:
    """A record of a fine-tuning with other settings."""
    path = folder / "result.json"
    record = Record.load(RECORD)
    replace(record, training={**record.training, "settings": settings}).save(path)
    return path


def test_the_chosen_cell_is_options(tmp_path: Path) -> None:
    path = record(tmp_path, batch_size=16, learning_rate=0.00002)
    assert options_of(path) == ["--batch-size", "16", "--learning-rate", "2e-05"]


@pytest.mark.parametrize(
    "settings", [{"batch_size": 16}, {"batch_size": 16, "learning_rate": "x"}, {}]
)
def test_a_record_without_them_is_refused_in_one_line(
    tmp_path: Path, settings: dict[str, object]
) -> None:
    with pytest.raises(DataError, match="result.json: no batch size and learning rate .*delete"):
        options_of(record(tmp_path, **settings))
