"""Survival over several tasks, read from the folders of `headprune subnetworks`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from headprune.compare.records import RECORDS
from headprune.errors import DataError, UsageError
from headprune.json_files import json_object
from headprune.plan import PruningPlan
from headprune.report.document import Block, Column, Document, Notes, Table
from headprune.report.shown import Decimals
from headprune.results.record import Record
from headprune.subnetworks.choices import FULL, GOOD
from headprune.subnetworks.elements import elements_of, kinds_of, of_kind
from headprune.subnetworks.overlap import DRAWS, MeanOverlap
from headprune.subnetworks.survival import (
    P_VALUE,
    RANDOM_SEED,
    RATIO,
    Values,
    corrected_p_values,
    cross_task_overlaps,
    heat_map,
    mean_overlaps,
    overlap_notes,
    overlap_values,
    sentences_on,
    survival_over_tasks,
)
from headprune.wording import counted

_NUMBERED = re.compile(r"(?:seed|model)([0-9]+)", re.ASCII)
_RULES = ("score", "threshold", "step")
_TWO = Decimals(2)

ByTask = Mapping[str, Sequence[PruningPlan]]
"""For each task, the elements that survived in each of its models."""

_ACROSS = (
    f"The mean overlap of models of two tasks is tested against {DRAWS:,} permutations of the "
    f"elements of the first task (seed {RANDOM_SEED}), each the same for all of its models. So "
    "models of one task stay as alike as they are. Holm's correction is for the number of rows of "
    "this table."
)


def survivors_in(folder: Path) -> list[PruningPlan]:
    """The elements that survived in each model of a folder, in the order of their numbers.

    A folder that has records but no plans, such as published ones, is read from the records.

    Raises:
        DataError: the folder holds neither plans of survivors nor their records, those of some of
            its models alone, or one that cannot be read.
    """
    by_number = _plans_of(folder, GOOD, kind="before-finetune")
    if not by_number:
        raise DataError(
            f"{folder}: holds no plans/seed1/{GOOD}.json; give a folder of `headprune subnetworks`"
        )
    # A run makes the folders of all models before its first search.
    models = {*by_number, *_numbered(folder, "model*", name_of=lambda path: path.name)}
    if missing := sorted({*range(1, max(models) + 1)} - {*by_number}):
        raise DataError(
            f"{folder}: has no survivors of model {', '.join(map(str, missing))}, of "
            f"{max(models)}; run its `headprune subnetworks` again, which resumes"
        )
    # A record names the components in which something was pruned, and those of attention.
    kept = [plan for _, plan in sorted(by_number.items())]
    units = {name: layers for plan in kept for name, layers in plan.units.items()}
    return [elements_of(plan.completed(units)) for plan in kept]


def _plans_of(folder: Path, network: str, *, kind: str) -> dict[int, PruningPlan]:
    """The plan of a network in each model, from the plans, or from the records of a kind."""
    plans = f"plans/seed*/{network}.json"
    if paths := _numbered(folder, plans, name_of=lambda path: path.parent.name):
        return {number: PruningPlan.load(path) for number, path in paths.items()}
    records = f"{RECORDS}/{kind}/{network}/seed*.json"
    paths = _numbered(folder, records, name_of=lambda path: path.stem)
    return {number: Record.load(path).plan for number, path in paths.items()}


def _numbered(folder: Path, pattern: str, *, name_of: Callable[[Path], str]) -> dict[int, Path]:
    """The files of models, or their folders, by the number in the name that ``name_of`` gives."""
    return {
        int(match[1]): path
        for path in folder.glob(pattern)
        if (match := _NUMBERED.fullmatch(name_of(path)))
    }


def read_tasks(folders: Mapping[str, Path]) -> dict[str, list[PruningPlan]]:
    """The survivors of each task.

    Raises:
        UsageError: one folder twice, folders of models of different shapes, of models that had
            other elements before the search, or with different numbers of models.
        DataError: see ``survivors_in``.
    """
    _require_different(folders)
    by_task = {name: survivors_in(folder) for name, folder in folders.items()}
    first_task, first = next(iter(by_task.items()))
    pool = pool_in(folders[first_task], first[0])
    for name, plans in by_task.items():
        for plan in plans:
            if plan.units != first[0].units:
                raise UsageError(
                    f"{folders[name]}: models of another shape, or other components, than in "
                    f"{folders[first_task]}"
                )
        if pool_in(folders[name], plans[0]) != pool:  # the overlap by chance depends on it
            raise UsageError(
                f"{folders[name]}: its models had other heads or MLPs before the search than those "
                f"in {folders[first_task]}; give folders of models that were pruned alike"
            )
        if len(plans) != len(first):
            raise UsageError(
                f"{folders[name]}: {counted(len(plans), 'model')}, {folders[first_task]} has "
                f"{len(first)}; give folders with as many models each"
            )
    return by_task


def notes_on_rules(folders: Mapping[str, Path]) -> list[str]:
    """Name the rules of the search that differ between tasks: survivors then differ by them too.

    Published records have no rules, and are left out.
    """
    rules = {name: _rules_of(folder) for name, folder in folders.items()}
    notes = []
    for rule in _RULES:
        values = {name: own[rule] for name, own in rules.items() if rule in own}
        if len({*values.values()}) > 1:
            listed = ", ".join(f"{value} for {name}" for name, value in values.items())
            notes.append(f"The searches differ in --{rule}: {listed}.")
    return notes


def _require_different(folders: Mapping[str, Path]) -> None:
    """Raise a UsageError if one folder has two names."""
    names: dict[Path, str] = {}
    for name, folder in folders.items():
        other = names.setdefault(folder.resolve(), name)
        if other != name:
            raise UsageError(f"{other} and {name} are one folder, {folder}; give one for each task")


def _rules_of(folder: Path) -> dict[str, Any]:
    """The rules by which a folder's survivors were searched; empty for published records."""
    path = folder / "settings.json"
    settings = json_object(path) if path.is_file() else {}
    return {rule: settings[rule] for rule in _RULES if rule in settings}


def pool_in(folder: Path, survivors: PruningPlan) -> PruningPlan:
    """The elements that the models of a folder had before the search.

    Raises:
        DataError: the plan of the whole model cannot be read.
    """
    plans = _plans_of(folder, FULL, kind="baseline")
    if not plans:
        return PruningPlan.full(survivors.units)
    pool = elements_of(plans[min(plans)]).completed(survivors.units).part(survivors.units)
    assert pool is not None
    return pool


def document_of_tasks(
    by_task: ByTask,
    *,
    title: str,
    pool: PruningPlan | None = None,
    notes: Sequence[str] = (),
) -> Document:
    """The heat map over tasks and seeds, and the overlaps within and between tasks.

    Args:
        by_task: the survivors of each task.
        title: the title.
        pool: the elements that the models had before the search; None for all.
        notes: sentences to begin with.
    """
    first = next(iter(by_task.values()))
    if pool is None:
        pool = PruningPlan.full(first[0].units)
    spreads = survival_over_tasks(by_task)
    means: Values = {
        name: [[each.mean for each in units] for units in layers]
        for name, layers in spreads.items()
    }
    deviations: Values = {
        name: [[each.sd for each in units] for units in layers] for name, layers in spreads.items()
    }
    within = {task: mean_overlaps(plans, pool=pool) for task, plans in by_task.items()}
    named = {f"{task}'s models": overlaps for task, overlaps in within.items()}
    sentences = sentences_on(named) or [
        "One model a task: the overlap of seeds needs two or more, and is left out."
    ]
    survives = " with one seed"
    if len(first) > 1:
        survives = f": the mean over {len(first)} seeds, and the sample standard deviation"
    blocks: list[Block] = [Notes([*notes, *sentences]), _tasks_table(by_task, within)]
    across = cross_task_overlaps(by_task, pool=pool)
    if across.rows:
        blocks.append(across)
    blocks.append(
        Notes(
            [
                "The heat map has, for each head (and MLP), the number of tasks in which it "
                f"survives{survives}. Model 1 of each task counts as seed 1, and so on.",
                *overlap_notes(),
                *([_ACROSS] if across.rows else []),
            ]
        )
    )
    panels = {"mean": means} if len(first) == 1 else {"mean": means, "sd": deviations}
    return Document(
        title=title,
        blocks=blocks,
        sheet=Table(
            columns=[Column(name) for name in ("component", "layer", "unit", "mean", "sd")],
            rows=[
                [name, layer, unit, each.mean, each.sd]
                for name, layers in spreads.items()
                for layer, units in enumerate(layers)
                for unit, each in enumerate(units)
            ],
        ),
        values={
            "format": "headprune.overlap",
            "version": 1,
            "title": title,
            "tasks": [*by_task],
            "seeds": len(first),
            "mean": means,
            "sd": deviations,
            "overlaps": {task: overlap_values(overlaps) for task, overlaps in within.items()},
            "between_tasks": [
                dict(zip((column.name for column in across.columns), row, strict=True))
                for row in across.rows
            ],
        },
        figures=[
            heat_map(
                panels,
                name="survival",
                title=title,
                label=f"number of tasks, of {len(by_task)}, in which it survives",
                most=float(len(by_task)),
            )
        ],
    )


def _tasks_table(by_task: ByTask, within: Mapping[str, Mapping[str, MeanOverlap]]) -> Table:
    corrected = corrected_p_values(within)
    rows: list[list[object]] = []
    for task, plans in by_task.items():
        overlaps = within[task]
        for kind in kinds_of(plans[0]):
            kept = [of_kind(plan, kind).total_kept for plan in plans]
            overlap = overlaps.get(kind)
            rows.append(
                [
                    *(task, kind, len(plans), sum(kept) / len(kept)),
                    of_kind(plans[0], kind).total,
                    None if overlap is None else overlap.value,
                    None if overlap is None else overlap.chance,
                    None if overlap is None else overlap.p_value,
                    corrected.get((task, kind)),
                ]
            )
    table = Table(
        caption="Overlap of the models of one task:",
        columns=[
            *(Column("task"), Column("kind"), Column("models")),
            *(Column("mean number of survivors", _TWO), Column("elements")),
            *(Column("overlap", RATIO), Column("by chance", RATIO)),
            *(Column("p", P_VALUE), Column("p (Holm)", P_VALUE)),
        ],
        rows=rows,
    )
    return table.without_empty_columns()
