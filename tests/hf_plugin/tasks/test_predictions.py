"""Files of predictions, written and read."""

from __future__ import annotations

from pathlib import Path

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
