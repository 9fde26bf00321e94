"""The jobs of a study, for estimates and budgets, and a study cut to a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from headprune.cli.group import command_named
from studies.budget import Cut, cut_to_budget, what_was_cut
from studies.cost import Calibration, Job, Machine, cost_of
from studies.glue_study import GlueStudy
from studies.models import BASELINE
from studies.plans import Row
from studies.study import Study

AnyStudy = Study | GlueStudy


def jobs_of(study: AnyStudy, tables: Sequence[str], *, out: Path, base: Path) -> list[Job]:
    """The trainings and translations of some tables of a study, with the baseline and the control.

    Args:
        study: the study.
        tables: names of its tables; none for its own table.
        out: its run folder.
        base: the run folder with its baseline.
    """
    if isinstance(study, GlueStudy):
        return _glue_jobs(study, study.runs_for(tables), out)
    jobs = []
    for model in study.models(chosen_rows(study, tables)):
        is_baseline = model.kind == BASELINE
        folder = (base if is_baseline else out) / model.folder
        jobs.append(
            Job(
                file=folder / "generation.txt",
                model=folder / "model.pt" if model.is_trained else None,
                record=folder / "result.json",
                trainings=0,
                translations=1,
                threads=study.resources["generate"].threads,
                gpus=study.resources["generate"].gpu,
                keeps_model=False,
            )
        )
        if not model.is_trained or (is_baseline and study.baseline_model is not None):
            continue
        # A model that is trained from scratch takes as long, and as many GPUs, as the baseline.
        is_long = is_baseline or model.row.from_scratch
        training = study.train if is_long and study.train is not None else study.finetune
        jobs.append(
            Job(
                file=folder / "model.pt",
                record=folder / "result.json",
                length=training.length,
                threads=study.resources["baseline" if is_baseline else "finetune"].threads,
                gpus=study.resources["baseline" if is_long else "finetune"].gpu,
            )
        )
    return jobs


def _glue_jobs(study: GlueStudy, runs: Sequence[str], out: Path) -> list[Job]:
    """The fine-tunings of some runs, and the grid search of each of their tasks."""
    tasks = dict.fromkeys(run.split("/")[0] for run in runs)
    lengths = {task: f"{_epochs(study, task):g}ep" for task in tasks}
    searches = [
        Job(
            file=out / "grid" / task / "result.json",
            length=lengths[task],
            task=task,
            threads=study.resources["grid"].threads,
            gpus=study.resources["grid"].gpu,
            trainings=_grid_cells(study.grid),
            keeps_model=False,
        )
        for task in tasks
        if study.grid is not None
    ]
    return searches + [
        Job(
            file=out / "models" / run / "result.json",
            length=lengths[task],
            task=task,
            threads=study.resources["glue"].threads,
            gpus=study.resources["glue"].gpu,
            keeps_model=run in study.kept_runs,
        )
        for run in runs
        for task in run.split("/")[:1]
    ]


def fine_tuning_options(study: GlueStudy, task: str) -> dict[str, Any]:
    """The values of all options of a task's fine-tuning, defaults too."""
    command, *flags = study.command(task)
    parser = command_named(command)
    context = parser.make_context(f"headprune {command}", ["--output", "OUT", *flags])
    return dict(context.params)


def _epochs(study: GlueStudy, task: str) -> float:
    """The number of epochs of a fine-tuning: of its option, or the default of its task."""
    epochs: float | None = fine_tuning_options(study, task)["epochs"]
    if epochs is not None:
        return epochs
    # Only here, as it imports transformers.
    from hf_plugin.glue.tasks import task_named

    return task_named(task).epochs


def _grid_cells(flags: Sequence[str]) -> int:
    """The number of fine-tunings of a grid search with these options of `headprune glue`."""
    # Only here, as it imports transformers.
    from hf_plugin.cli.glue import grid_cells

    options = command_named("glue").make_context("headprune glue", list(flags)).params
    sizes, rates = grid_cells(options["grid_batch_sizes"], options["grid_learning_rates"])
    return len(sizes) * len(rates)


def measured_flags(study: AnyStudy) -> dict[str, list[str]]:
    """The flags of the trainings that a calibration measures, by task, without their lengths."""
    if isinstance(study, GlueStudy):
        return {
            task: ["--model", study.model, *without(flags, ("--epochs",))]
            for task, flags in study.tasks.items()
        }
    training = [*study.model_flags, *without(study.finetune.flags, ("--max-epoch", "--max-update"))]
    machine = ["--precision", study.precision, "--gpus", str(study.resources["finetune"].gpu)]
    search = [*study.generate_flags, "--gpus", str(study.resources["generate"].gpu)]
    return {"translation": ["--arch", study.arch, *training, *machine, "generate", *search]}


def without(flags: Sequence[str], names: Sequence[str]) -> list[str]:
    """The flags without some that have a value."""
    before = ["", *flags]
    return [
        flag
        for flag, previous in zip(flags, before, strict=False)
        if flag not in names and previous not in names
    ]


def option(flags: Sequence[str], name: str, *, default: str) -> str:
    """The value of an option among flags."""
    return flags[flags.index(name) + 1] if name in flags else default


def chosen_rows(study: AnyStudy, tables: Sequence[str]) -> list[Row]:
    """The rows of some tables of a study; of its own table if none is named."""
    rows = [row for name in tables for row in study.tables[name].rows] or study.whole
    return list({row.key: row for row in rows}.values())


def within_budget(
    study: AnyStudy,
    budget: float,
    *,
    tables: Sequence[str],
    calibration: Calibration,
    machine: Machine,
) -> tuple[AnyStudy, str]:
    """The study cut to a budget, and a line that says what was left out.

    What is done already counts too, so that the same budget always leaves the same study.

    Args:
        study: the study.
        budget: the hours.
        tables: the tables that are asked for; none for the study's own.
        calibration: the durations.
        machine: the limits on the jobs that run at the same time.

    Raises:
        UsageError: the budget is too small for any row.
    """
    rows = chosen_rows(study, tables)
    sizes = {row.key: _size(row, study) for row in rows}

    def hours(cut: Cut) -> float:
        part = _part(study, cut, sizes)
        remaining = [name for name in tables if name in part.tables]
        jobs = jobs_of(part, remaining, out=Path(), base=Path())
        return cost_of(jobs, calibration, machine=machine).hours

    cut = cut_to_budget(budget, seeds=study.seeds, sizes=list(sizes.values()), hours=hours)
    dropped = [row.label for row in rows if sizes[row.key] not in cut.sizes]
    return _part(study, cut, sizes), what_was_cut(cut, seeds=study.seeds, labels=dropped)


def _size(row: Row, study: AnyStudy) -> int:
    """The number of heads that a row keeps; that of a percentage is the same for scores."""
    drawn = row
    if not row.has_known_plan:
        drawn = replace(row, method="random", order="unimportant-first")
    return drawn.plan(study.shape, seed=study.seeds[0]).total_kept


def _part(study: AnyStudy, cut: Cut, sizes: dict[str, int]) -> AnyStudy:
    """The study with the seeds and sizes of a cut; rows without a size are as they were."""

    def kept(rows: Sequence[Row]) -> tuple[Row, ...]:
        return tuple(row for row in rows if sizes.get(row.key, cut.sizes[0]) in cut.sizes)

    tables = {name: replace(table, rows=kept(table.rows)) for name, table in study.tables.items()}
    tables = {name: table for name, table in tables.items() if table.rows}
    changes: dict[str, Any] = {}
    if isinstance(study, GlueStudy) and study.changes is not None:
        remaining = {row.key for row in kept(study.rows)}
        keys = tuple(key for key in study.changes.keys if key in remaining)
        # Without keys too: figure 2 draws its own rows on the same task.
        changes = {"changes": replace(study.changes, keys=keys)}
    return replace(
        study,
        seeds=cut.seeds,
        rows=kept(study.rows),
        whole=kept(study.whole),
        tables=tables,
        **changes,
    )
