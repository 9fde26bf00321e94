"""Files of predictions, written and read."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from headprune.errors import DataError
from headprune.results.predictions import read_predictions
from hf_plugin.tasks.predictions import table
from hf_plugin.tasks.task import Task


def test_labels_with_tabs_and_line_ends_stay_in_their_cells(tmp_path: Path) -> None:
    task = Task(name="moods", text=("text",), labels=("very\tgood", "not\r\nso good", 'so "so'))
    path = tmp_path / "predictions.tsv"
    path.write_text(table([0, 1, 2], [0, 2, 2], task), newline="")
    assert read_predictions(path) == [
        ("very good", "very good"),
        ("not  so good", 'so "so'),
        ('so "so', 'so "so'),
    ]


def test_a_cell_that_is_too_long_is_one_clear_line(tmp_path: Path) -> None:
    path = tmp_path / "predictions.tsv"
    path.write_text(f"index\tprediction\tlabel\n0\t{'a' * 200_000}\tb\n")
    before = csv.field_size_limit(131_072)  # Python's default, which reading tables has raised
    try:
        with pytest.raises(
            DataError, match=f"{path}: not a file of predictions .field larger"
        ) as caught:
            read_predictions(path)
    finally:
        csv.field_size_limit(before)
    assert "\n" not in str(caught.value)
