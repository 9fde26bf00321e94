"""The cost of a study: the number of trainings, the hours expected, the disk that is needed.

A calibration, a training of some updates on the study's data, says how long an update takes and
how large a model is; see `calibrate.py`. It is kept in the run folder, as calibration.json.
"""

from __future__ import annotations

import json
import re
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
    """

    seconds_per_update: Mapping[str, float]
    updates_per_epoch: Mapping[str, int]
    model_bytes: int

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
        values = json_object(path)
        try:
            return cls(**values)
        except TypeError:
            raise DataError(f"{path}: no calibration; delete it and calibrate again") from None

    def hours(self, length: str, *, task: str = "translation") -> float:
        """The hours of a training of a length such as ``10ep`` (epochs) or ``200up`` (updates)."""
        match = re.fullmatch(r"(\d+(?:\.\d+)?)(ep|up)", length)
        if match is None:
            raise DataError(f"a training without an end ({length}) cannot be estimated")
        if task not in self.seconds_per_update or task not in self.updates_per_epoch:
            raise DataError(f"the calibration has no {task}; delete it and calibrate again")
        updates = float(match[1]) * (self.updates_per_epoch[task] if match[2] == "ep" else 1)
        return updates * self.seconds_per_update[task] / 3600


@dataclass(frozen=True, kw_only=True)
class Job:
    """A training of a study.

    Attributes:
        file: the file that it leaves; it is done once that is there.
        length: its length, such as ``10ep``.
        task: the task of GLUE, or ``translation``.
        threads: the CPU threads that it takes.
        keeps_model: True if its model stays on the disk.
    """

    file: Path
    length: str
    task: str = "translation"
    threads: int = 1
    keeps_model: bool = True


@dataclass(frozen=True, kw_only=True)
class Cost:
    """The cost of some trainings.

    Attributes:
        trainings: their number.
        hours: their hours, one after the other or as many at a time as the cores allow.
        disk: the bytes of the models that stay.
    """

    trainings: int
    hours: float
    disk: int

    def __str__(self) -> str:
        number = f"{self.trainings} training" + "s" * (self.trainings != 1)
        return f"{number}, about {self.hours:.1f} hours, {self.disk / 1e9:.1f} GB of models"


def cost_of(jobs: Iterable[Job], calibration: Calibration, *, cores: int) -> Cost:
    """The cost of jobs, as many at a time as there are cores for."""
    jobs = list(jobs)
    hours = [
        calibration.hours(job.length, task=job.task) * min(job.threads, cores) / cores
        for job in jobs
    ]
    kept = sum(job.keeps_model for job in jobs)
    return Cost(trainings=len(jobs), hours=sum(hours), disk=kept * calibration.model_bytes)


def estimate(jobs: Sequence[Job], calibration: Path, *, cores: int) -> list[str]:
    """Lines for a dry run: finished trainings, remaining trainings and their cost."""
    left = [job for job in jobs if not job.file.exists()]
    counted = f"trainings: {len(jobs)}, of which {len(jobs) - len(left)} are done"
    if not calibration.is_file():
        return [
            counted,
            f"hours and disk: not known before a calibration, which takes a minute or two: run "
            f"the same command without -n and with `-- {calibration}` at the end (with make: "
            f"FLAGS={calibration})",
        ]
    cost = cost_of(left, Calibration.load(calibration), cores=cores)
    return [counted, f"still to do: {cost}, on {cores} cores"]
