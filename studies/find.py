"""Read a study with the reader of its kind: translation or GLUE."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headprune import DataError
from studies.extending import find_study, read_study
from studies.glue_study import GlueStudy, load_glue_study
from studies.study import Study, load_study
from studies.yaml_checks import shown

__all__ = ["find_study", "load_any", "runner_of"]

RUNNERS: dict[str, Callable[[Path], Study | GlueStudy]] = {
    "translation": load_study,
    "glue": load_glue_study,
}
"""For each value of a study's key `runner`, what reads the rest; the first is the default."""


def runner_of(path: Path) -> str:
    """The kind of study that a YAML file holds: its key `runner`.

    Raises:
        DataError: the file cannot be read, or names an unknown runner.
    """
    raw = read_study(path)
    runner = raw.get("runner", "translation") if isinstance(raw, dict) else "translation"
    if not isinstance(runner, str) or runner not in RUNNERS:
        raise DataError(f"{path}: runner: {shown(runner)} is not one of {', '.join(RUNNERS)}")
    return runner


def load_any(path: Path) -> Study | GlueStudy:
    """Read and check a study of either kind.

    Raises:
        DataError: the file has a mistake; the message has its name and the key.
    """
    return RUNNERS[runner_of(path)](path)
