"""The trainings of a study, for estimates and budgets, and a study cut to a budget."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from studies.budget import Cut, cut_to_budget, what_was_cut
from studies.cost import Calibration, Job, cost_of
from studies.glue_study import GlueStudy
from studies.models import BASELINE
from studies.plans import Row
from studies.study import Study

AnyStudy = Study | GlueStudy


def jobs_of(study: AnyStudy, tables: Sequence[str], *, out: Path, base: Path) -> list[Job]:
    """The trainings that some tables of a study need, with the baseline and the control.

    Args:
        study: the study.
        tables: names of its tables; none for its own table.
        out: its run folder.
        base: the run folder with its baseline.
    """
    if isinstance(study, GlueStudy):
        return [_glue_job(study, run, out) for run in study.runs_for(tables)]
    jobs = []
    for model in study.models(chosen_rows(study, tables)):
        if not model.is_trained:
            continue
        is_baseline = model.kind == BASELINE
        training = study.train if is_baseline or model.row.from_scratch else study.finetune
        jobs.append(
            Job(
                file=(base if is_baseline else out) / model.folder / "model.pt",
                length=training.length,
                threads=study.resources["baseline" if is_baseline else "finetune"].threads,
            )
        )
    return jobs


def _glue_job(study: GlueStudy, run: str, out: Path) -> Job:
    task = run.split("/")[0]
    return Job(
        file=out / "models" / run / "result.json",
        length=f"{option(study.tasks[task], '--epochs', default='10')}ep",
        task=task,
        threads=study.resources["glue"].threads,
        keeps_model=run in study.kept_runs,
    )


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
    cores: int,
) -> tuple[AnyStudy, str]:
    """The study cut to a budget, and a line that says what was left out.

    What is done already counts too, so that the same budget always leaves the same study.

    Args:
        study: the study.
        budget: the hours.
        tables: the tables that are asked for; none for the study's own.
        calibration: the durations.
        cores: the number of CPU cores.

    Raises:
        UsageError: the budget is too small for any row.
    """
    rows = chosen_rows(study, tables)
    sizes = {row.key: _size(row, study) for row in rows}

    def hours(cut: Cut) -> float:
        part = _part(study, cut, sizes)
        remaining = [name for name in tables if name in part.tables]
        jobs = jobs_of(part, remaining, out=Path(), base=Path())
        return cost_of(jobs, calibration, cores=cores).hours

    cut = cut_to_budget(budget, seeds=study.seeds, sizes=list(sizes.values()), hours=hours)
    dropped = [row.label for row in rows if sizes[row.key] not in cut.sizes]
    return _part(study, cut, sizes), what_was_cut(cut, seeds=study.seeds, labels=dropped)


def _size(row: Row, study: AnyStudy) -> int:
    """The number of heads that a row keeps; that of a percentage is the same for scores."""
    drawn = replace(row, method="random", order="unimportant-first") if row.score else row
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
        changes = {"changes": replace(study.changes, keys=keys) if keys else None}
    return replace(
        study,
        seeds=cut.seeds,
        rows=kept(study.rows),
        whole=kept(study.whole),
        tables=tables,
        **changes,
    )
