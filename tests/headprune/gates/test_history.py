"""Logs of trainings with gates, and their figure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headprune import DataError
from headprune.gates.history import OpenUnits, read_history
from headprune.report.drawing import svg_with_text
from headprune.report.open_units import draw_open_units

JSON_LINES = """\
2026 | INFO | train_inner | {"epoch": 1, "loss": "3", "open_ES": "7.9", "open_DF": "60.1", \
"num_updates": "10"}
2026 | INFO | valid | {"epoch": 1, "valid_open_ES": "7.5", "valid_num_updates": "15"}
2026 | INFO | train | {"epoch": 1, "train_open_ES": "7.7", "train_num_updates": "15"}
2026 | INFO | train_inner | {"epoch": 2, "loss": "3", "open_ES": "6.1", "num_updates": "20"}
2026 | INFO | train_inner | {"epoch": 2, "loss": "3", "open_ES": "6.2", "num_updates": "20"}
"""
SIMPLE = "INFO | train_inner | epoch 001: 10 / 15 loss=3, open_ES=7.9, open_DF=60.1, num_updates=10"


def test_logs_of_both_libraries_are_read(tmp_path: Path) -> None:
    first = OpenUnits(10, {"ES": 7.9, "DF": 60.1})
    path = tmp_path / "train.log"
    path.write_text(JSON_LINES)
    assert read_history(path) == [first, OpenUnits(20, {"ES": 6.2})]
    path.write_text(SIMPLE)
    assert read_history(path) == [first]
    for text in (JSON_LINES, SIMPLE):  # as in a --log-file, which has no names of loggers
        path.write_text("\n".join(line.rpartition("| ")[2] for line in text.splitlines()))
        assert read_history(path)[0] == first
    state = tmp_path / "trainer_state.json"
    entries = [{"step": 10, "loss": 3.0, "open_ES": 7.9, "open_DF": 60.1}, {"step": 10, "x": 1}]
    state.write_text(json.dumps({"log_history": entries[::-1]}))
    assert read_history(state) == [first]


def test_a_log_without_gates_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "train.log"
    path.write_text('train_inner | {"loss": "3", "num_updates": "10"}')
    with pytest.raises(DataError, match="no line of the log has the number of open units"):
        read_history(path)


def test_the_figure_has_a_line_for_each_component() -> None:
    history = [OpenUnits(10, {"ES": 8, "DF": 64}), OpenUnits(20, {"ES": 2, "DF": 32})]
    svg = svg_with_text(lambda: draw_open_units(history, before={"ES": 8, "DF": 64}))
    for text in ("ES: encoder self-attention, 8 heads", "DF: decoder feed-forward, 64 neurons"):
        assert text in svg
