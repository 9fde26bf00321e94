"""Every row of every table of bad inputs; a module of this folder with ``ROWS`` is a table."""

from __future__ import annotations

import pkgutil
from importlib import import_module
from pathlib import Path

import pytest

import tests.bad_inputs as package
from tests.bad_inputs.table import BadInput, check

ROWS: list[BadInput] = [
    row
    for module in pkgutil.iter_modules(package.__path__)
    if not module.name.startswith("test_")
    for row in getattr(import_module(f"tests.bad_inputs.{module.name}"), "ROWS", [])
]


def test_rows_have_names_of_their_own() -> None:
    assert len({row.label for row in ROWS}) == len(ROWS)


@pytest.mark.parametrize(
    "row",
    [pytest.param(row, marks=pytest.mark.slow if row.slow else (), id=str(row)) for row in ROWS],
)
def test_bad_input_ends_with_one_line(row: BadInput, tmp_path: Path) -> None:
    check(row, tmp_path)
