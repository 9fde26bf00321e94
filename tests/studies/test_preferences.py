"""The preferences of tables 2 and 3 after two lengths of fine-tuning."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headprune.errors import DataError, UsageError
from studies.preferences import PREFERENCES, line, main, preference, values_in

PUBLISHED = Path(__file__).parents[2] / "docs" / "results"
TABLES = [
    str(PUBLISHED / name / "table.json")
    for name in ("multi30k-shipped-tables-2-3", "multi30k-shipped")
]


def test_the_published_table_comes_out_again(capsys: pytest.CaptureFixture[str]) -> None:
    main(TABLES)
    printed = capsys.readouterr().out
    assert printed in (PUBLISHED / "multi30k-shipped" / "README.md").read_text(encoding="utf-8")
    assert "| +1.28 | +0.36 | -0.93 (-1.15 to -0.70) | -0.82, -0.98, -0.98 | 0.0031 |" in printed


def test_the_preference_of_a_seed_is_a_mean_over_groups() -> None:
    values = {
        "a": {1: 30.0, 2: 31.0},
        "b": {1: 29.0, 2: 32.0},
        "c": {1: 28.0, 2: 33.0},
        "d": {1: 25.0, 2: 25.0},
        "e": {1: 24.0, 2: 22.0},
    }
    # Of the triple 1.5 and -1.5, of the pair 1 and 3.
    assert preference(values, [("a", "b", "c"), ("d", "e")]) == {1: 1.25, 2: 0.75}


def test_rows_and_seeds_that_do_not_fit(tmp_path: Path) -> None:
    values = {"a": {1: 30.0, 2: 31.0}, "b": {1: 29.0}}
    with pytest.raises(DataError, match="no row c in the table"):
        preference(values, [("a", "c")])
    with pytest.raises(DataError, match="b: other seeds than those of a"):
        preference(values, [("a", "b")])
    with pytest.raises(DataError, match="the two tables have other seeds"):
        line("x", {1: 0.0, 2: 1.0}, {1: 0.0})
    with pytest.raises(DataError, match="x: a test needs two seeds or more, with different"):
        line("x", {1: 0.0, 2: 1.0}, {1: 1.0, 2: 2.0})
    with pytest.raises(UsageError, match="give two files"):
        main(TABLES[:1])
    (tmp_path / "table.json").write_text(json.dumps({"rows": 1}))
    for name in ("table.json", "none.json"):
        with pytest.raises(DataError, match=f"{name}: not the table.json of a study"):
            values_in(tmp_path / name)


def test_the_rows_are_those_of_the_studies() -> None:
    for path in TABLES:
        values = values_in(Path(path))
        assert all(row in values for groups in PREFERENCES.values() for g in groups for row in g)
