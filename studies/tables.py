"""The tables of a study: lists of rows that are reported together.

Rows that several tables have are trained once. `studies/rows/` holds those of the paper's tables;
a study names them in its key `tables`, with rows of its own where its model has another shape.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from headprune import DataError, UsageError
from studies.extending import STUDIES, read_study
from studies.plans import Row
from studies.yaml_checks import (
    as_list,
    as_mapping,
    as_text,
    as_title,
    read_yaml,
    require_known,
    shown,
    study_name,
)

PAPER = "paper"
"""The name that stands for all tables and figures of the paper that a study has."""
OWN = "own"
"""The name that stands for the table of a study itself, of the key `plans`."""
OF_PAPER = ("table1", "table2", "table3", "table4", "table5", "table6", "figure1", "figure2")
_KEYS = ("name", "file", "description", "paper", "plans", "tables")

ReadRows = Callable[[object, str], tuple[Row, ...]]
"""From a list of rows and its key to the rows."""
CheckPaper = Callable[[object], tuple[str, ...]]
"""From a list of names of the paper's tables to those that are set beside the results."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """Rows that are reported together.

    Attributes:
        name: the name of the table: `table1`.
        description: its title.
        rows: its rows, without the control.
        paper: the paper's tables to set beside it.
    """

    name: str
    description: str
    rows: tuple[Row, ...]
    paper: tuple[str, ...]


def read_tables(raw: object, *, read_rows: ReadRows, check_paper: CheckPaper) -> dict[str, Table]:
    """Read the key `tables` of a study.

    Args:
        raw: a list of names of files in `studies/rows`, or of mappings: `name`, and what differs
            from the file of that name, or of the name `file`.
        read_rows: reads a list of rows.
        check_paper: checks the names of the paper's tables.

    Raises:
        DataError: no such table, or the same name twice.
    """
    tables: dict[str, Table] = {}
    for number, entry in enumerate(as_list(raw, "tables"), start=1):
        where = f"tables[{number}]"
        values: Mapping[str, Any] = (
            {"name": entry} if isinstance(entry, str) else as_mapping(entry, where)
        )
        require_known(values, _KEYS, where=f"{where}.")
        name = study_name(values.get("name"), f"{where}.name")
        if name in tables:
            raise DataError(f"{where}: {name!r} is there twice")
        if name in (OWN, PAPER):
            raise DataError(f"{where}: the name {name!r} is reserved; choose another")
        values = _with_defaults(values, name, where=where)
        rows: dict[str, Row] = {}
        if "plans" in values:
            rows = {row.key: row for row in read_rows(values["plans"], f"{where}.plans")}
        for other in as_list(values.get("tables", []), f"{where}.tables"):
            if other not in tables:
                raise DataError(f"{where}.tables: there is no table {shown(other)} before this one")
            add_rows(rows, tables[other].rows, where=where)
        if not rows:
            raise DataError(f"{where}: no rows; give `plans`, or `tables` whose rows it has")
        tables[name] = Table(
            name=name,
            description=as_title(values.get("description", name), f"{where}.description"),
            rows=tuple(rows.values()),
            paper=check_paper(values.get("paper", [])),
        )
    return tables


def _with_defaults(values: Mapping[str, Any], name: str, *, where: str) -> Mapping[str, Any]:
    """The values of a table, with those of its file where they are missing."""
    file = study_name(values.get("file", name), f"{where}.file")
    path = STUDIES / "rows" / f"{file}.yaml"
    has_rows = "plans" in values or "tables" in values
    if not path.is_file():
        if has_rows and "file" not in values:
            return values
        known = ", ".join(sorted(path.stem for path in path.parent.glob("*.yaml")))
        raise DataError(f"{where}: no table is called {file!r}; give it `plans`, or one of {known}")
    defaults = as_mapping(read_yaml(path), str(path))
    require_known(defaults, _KEYS[2:], where=f"{path}: ")
    rows = ("plans", "tables")
    return {
        **{key: defaults[key] for key in defaults if not (has_rows and key in rows)},
        **values,
    }


def add_rows(rows: dict[str, Row], more: Sequence[Row], *, where: str) -> None:
    """Add rows by their key; a row may be in several tables.

    Raises:
        DataError: another row has the same key.
    """
    known = {key.lower(): row for key, row in rows.items()}
    for row in more:
        other = known.get(row.key.lower(), row)
        if other != row:
            raise DataError(
                f"{where}: {row.label!r} is another row than the {other.label!r} of another "
                f"table, but would have the same folder, {row.key}; give it a `label` of its own"
            )
        rows[row.key] = row


def chosen_tables(names: str, tables: Mapping[str, Table], *, study: str) -> list[str]:
    """The tables that a comma-separated list names; `paper` stands for all of the paper's.

    None for `own`, which stands for the table of the study itself, and for an empty list.

    Raises:
        UsageError: the study has no such table, or `own` is not alone.
    """
    if names.strip() == OWN:
        return []
    of_paper = [name for name in tables if name in OF_PAPER]
    chosen: list[str] = []
    for name in filter(None, (part.strip() for part in names.split(","))):
        if name == PAPER and of_paper:
            chosen += of_paper
        elif name in tables:
            chosen.append(name)
        elif name == OWN:
            raise UsageError(f"table: {OWN!r} is the study's own table; make it without others")
        else:
            known = ", ".join([*tables, *([PAPER] if of_paper else []), OWN])
            others = ", ".join(_studies_with(name)) if name in OF_PAPER else ""
            advice = f"; {others} have it" if others else ""
            raise UsageError(f"table: the study {study} has no {name!r}; it has: {known}{advice}")
    return list(dict.fromkeys(chosen))


def _studies_with(table: str) -> Iterator[str]:
    """The studies of this folder whose files name a table."""
    for path in sorted(STUDIES.glob("*.yaml")):
        for entry in read_study(path).get("tables") or ():
            if table in (entry, entry.get("name") if isinstance(entry, Mapping) else None):
                yield path.stem


def rows_of(
    values: Mapping[str, Any], tables: Mapping[str, Table], *, read_rows: ReadRows
) -> tuple[tuple[Row, ...], tuple[Row, ...]]:
    """The rows of a study's own table, and all its rows.

    Its own are those of the key `plans`; without it, those of all its tables.

    Raises:
        DataError: the study has neither `plans` nor `tables`.
    """
    rows: dict[str, Row] = {}
    if values["plans"] is not None:
        rows = {row.key: row for row in read_rows(values["plans"], "plans")}
    elif not tables:
        raise DataError("missing key: plans, or tables")
    own = tuple(rows.values())
    for table in tables.values():
        add_rows(rows, table.rows, where=f"tables: {table.name}")
    return own or tuple(rows.values()), tuple(rows.values())


def as_paper_of(raw: object, *, pair: str, known: Callable[[str], object]) -> tuple[str, ...]:
    """Names of the paper's tables on translation; table 1 has a column for each pair.

    `table1` stands for the column of this pair of languages, and is left out for other pairs.
    """
    names = []
    for name in as_list(raw, "paper"):
        if name == "table1":
            try:
                known(f"{name}:{pair}")
            except UsageError:
                continue
            name = f"{name}:{pair}"
        names.append(as_text(name, "paper"))
    return tuple(names)
