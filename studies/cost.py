"""The cost of a study: the number of trainings, the hours expected, the disk that is needed.

A calibration, a training of some updates on the study's data and a translation of its test set,
says how long they take and how large the files are; see `calibrate.py`. It is kept in the run
folder, as calibration.json.
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from headprune import DataError
from headprune.files import write_text_atomically
from headprune.json_files import json_object

CALIBRATION = "calibration.json"
"""The name of the file in the run folder."""


@dataclass(frozen=True, kw_only=True)
class Calibration:
    """Measured on the machine and the data of a study.

    Attributes:
        seconds_per_update: seconds of an update, for each task of GLUE, or ``translation``.
        updates_per_epoch: the number of updates of an epoch, of the same.
        model_bytes: the size of a model's file.
        flags: the flags of the trainings, for each task, as ``jobs.measured_flags`` gives them;
            None in files of older versions.
        seconds_per_translation: seconds to translate the test set; None for GLUE, whose
            fine-tunings end with their evaluation, and in files of older versions.
        checkpoint_bytes: the size of the checkpoints of a training while it runs; 0 where it was
            not measured.
    """

    seconds_per_update: Mapping[str, float]
    updates_per_epoch: Mapping[str, int]
    model_bytes: int
    flags: Mapping[str, Sequence[str]] | None = None
    seconds_per_translation: float | None = None
    checkpoint_bytes: int = 0

    def save(self, path: Path) -> None:
        """Write the file, whole or not at all."""
        write_text_atomically(path, json.dumps(asdict(self), indent=1) + "\n")

    @classmethod
    def load(cls, path: Path) -> Calibration:
        """Read the file.

        Raises:
            DataError: it is not there, or no calibration.
        """
        if not path.is_file():
            raise DataError(
                f"{path}: not there; a budget needs a calibration, so run the same command without "
                f"the budget and with `-- {path}` at the end first (with make: FLAGS={path})"
            )
        mistake = DataError(f"{path}: no calibration; delete it and calibrate again")
        try:
            found = cls(**json_object(path))
        except TypeError:
            raise mistake from None
        numbers = (found.seconds_per_update, found.updates_per_epoch)
        if not all(isinstance(each, dict) for each in (*numbers, found.flags or {})):
            raise mistake
        return found

    def is_of(self, flags: Mapping[str, Sequence[str]]) -> bool:
        """Check that it was measured with these flags, as far as the file says."""
        return self.flags is None or dict(self.flags) == flags

    def require_flags(self, flags: Mapping[str, Sequence[str]], path: Path) -> None:
        """Check that it was measured with these flags.

        Raises:
            DataError: the flags have changed since.
        """
        if not self.is_of(flags):
            raise DataError(
                f"{path}: measured before the flags of the trainings changed; delete it and run "
                f"the same command without the budget and with `-- {path}` at the end (with make: "
                f"FLAGS={path})"
            )

    def hours(self, length: str, *, task: str = "translation") -> float:
        """The hours of a training of a length such as ``10ep`` (epochs) or ``200up`` (updates)."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(ep|up)", length)
        if match is None:
            raise DataError(f"a training without an end ({length}) cannot be estimated")
        if task not in self.seconds_per_update or task not in self.updates_per_epoch:
            raise DataError(f"the calibration has no {task}; delete it and calibrate again")
        updates = float(match[1]) * (self.updates_per_epoch[task] if match[2] == "ep" else 1)
        return updates * self.seconds_per_update[task] / 3600

    def hours_of(self, job: Job) -> float:
        """The hours of a job; translations that were not measured count as none."""
        hours = job.translations * (self.seconds_per_translation or 0.0) / 3600
        if job.trainings:
            hours += job.trainings * self.hours(job.length, task=job.task)
        return hours


@dataclass(frozen=True, kw_only=True)
class Job:
    """Trainings of a study that a rule runs one after another, or a translation of the test set.

    Attributes:
        file: the file that the rule writes.
        model: the model that a translation is of; with another one the translation is made again.
        record: the record of the model. Where it was made elsewhere, there is no model.json beside
            it, and nothing is to do.
        length: the length of each training, such as ``10ep``; empty for a translation.
        task: the task of GLUE, or ``translation``.
        threads: the CPU threads that it takes.
        gpus: the GPUs that it takes.
        trainings: the number of trainings; a grid search has several.
        translations: the number of translations of the test set.
        keeps_model: True if its model stays on the disk.
    """

    file: Path
    model: Path | None = None
    record: Path | None = None
    length: str = ""
    task: str = "translation"
    threads: int = 1
    gpus: int = 0
    trainings: int = 1
    translations: int = 0
    keeps_model: bool = True

    @property
    def is_done(self) -> bool:
        """True if a run of the study has nothing to do for it."""
        record = self.record
        if record is not None and record.exists() and not record.with_name("model.json").exists():
            return True
        return self.file.exists() and (self.model is None or self.model.exists())


@dataclass(frozen=True, kw_only=True)
class Machine:
    """The limits on the jobs that run at the same time.

    Attributes:
        cores: the number of CPU cores; None on a cluster, whose number of free nodes is not known.
        gpus: the number of GPUs, which jobs that need a GPU share; None without such a limit.
    """

    cores: int | None
    gpus: int | None = None

    def share(self, job: Job) -> float:
        """The share of the machine that a job takes: of its cores or of its GPUs, the larger one.

        On a cluster, 1: the hours of all jobs are added up.
        """
        if self.cores is None:
            return 1.0
        of_cores = min(job.threads, self.cores) / self.cores
        of_gpus = min(job.gpus, self.gpus) / self.gpus if self.gpus else 0.0
        return max(of_cores, of_gpus)

    def __str__(self) -> str:
        if self.cores is None:
            return "added up; jobs that run at the same time take less"
        cores = f"on {self.cores} core" + "s" * (self.cores != 1)
        return f"{cores} and {self.gpus} GPU" + "s" * (self.gpus != 1) if self.gpus else cores


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of some trainings and translations.

    Attributes:
        trainings, translations: their numbers.
        hours: their hours, with as many at a time as the machine allows.
        disk: the bytes of the models that stay.
        checkpoints: the bytes of the checkpoints of each training while it runs; 0 if not known.
        has_all: True if the hours are those of all jobs; False if translations were not measured.
    """

    trainings: int
    hours: float
    disk: int
    translations: int = 0
    checkpoints: int = 0
    has_all: bool = True

    def __str__(self) -> str:
        text = f"{self.trainings} training" + "s" * (self.trainings != 1)
        if self.translations:
            text += f" and {self.translations} translation" + "s" * (self.translations != 1)
        text += f", about {self.hours:.1f} hours" + " of training" * (not self.has_all)
        text += f", {self.disk / 1e9:.1f} GB of models"
        if self.trainings and self.checkpoints:
            text += f" and {self.checkpoints / 1e9:.1f} GB of checkpoints for each training"
        return text


def cost_of(jobs: Iterable[Job], calibration: Calibration, *, machine: Machine) -> Cost:
    """The cost of jobs, with as many at a time as the machine allows."""
    jobs = list(jobs)
    kept = sum(job.keeps_model for job in jobs)
    translations = sum(job.translations for job in jobs)
    return Cost(
        trainings=sum(job.trainings for job in jobs),
        translations=translations,
        hours=sum(calibration.hours_of(job) * machine.share(job) for job in jobs),
        disk=kept * calibration.model_bytes,
        checkpoints=calibration.checkpoint_bytes,
        has_all=not translations or calibration.seconds_per_translation is not None,
    )


def estimate(
    jobs: Sequence[Job],
    calibration: Path,
    *,
    machine: Machine,
    flags: Mapping[str, Sequence[str]] | None = None,
) -> list[str]:
    """Lines for a dry run: finished trainings, remaining trainings and their cost.

    Args:
        jobs: the trainings and translations.
        calibration: the file, which need not exist.
        machine: the limits on the jobs that run at the same time.
        flags: the flags of the trainings; where the calibration was measured with others, a line
            says so. None leaves the line out.
    """
    remaining = [job for job in jobs if not job.is_done]
    total = sum(job.trainings for job in jobs)
    done = total - sum(job.trainings for job in remaining)
    counted = f"trainings: {total}, of which {done} are done"
    if done:
        counted += "; those whose flags, data or plans have changed are repeated (jobs below)"
    if not calibration.is_file():
        named = shlex.quote(str(calibration))
        return [
            counted,
            f"hours and disk: not known before a calibration, which takes some minutes: run "
            f"the same command without -n and with `-- {named}` at the end (with make: "
            f"FLAGS={named})",
        ]
    measured = Calibration.load(calibration)
    cost = cost_of(remaining, measured, machine=machine)
    lines = [counted, f"still to do: {cost}, {machine}"]
    if flags is not None and not measured.is_of(flags):
        lines.append(
            f"warning: {calibration} was measured before the flags of the trainings changed; "
            "delete it and calibrate again"
        )
    return lines
