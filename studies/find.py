"""Finding a study by its name, and reading it as what it is: translation or GLUE."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from headprune import DataError
from studies.glue_study import GlueStudy, load_glue_study
from studies.study import Study, load_study
from studies.yaml_checks import read_yaml, shown

RUNNERS: dict[str, Callable[[Path], Study | GlueStudy]] = {
    "translation": load_study,
    "glue": load_glue_study,
}
"""For each value of a study's key `runner`, what reads the rest; the first is the default."""


def find_study(study: str, *, folder: Path) -> Path:
    """The YAML file for a name in `folder` (`demo`) or a path (`my/study.yaml`)."""
    by_name = folder / f"{study}.yaml"
    if by_name.is_file():
        return by_name
    path = Path(study)
    if path.is_file():
        return path
    known = ", ".join(sorted(p.stem for p in folder.glob("*.yaml")))
    raise DataError(
        f"study: no study is called {study!r} and no such file exists; studies here: {known}"
    )


def runner_of(path: Path) -> str:
    """What kind of study a YAML file holds.

    Raises:
        DataError: the file cannot be read, or names a runner that there is not.
    """
    raw = read_yaml(path)
    runner = raw.get("runner", "translation") if isinstance(raw, dict) else "translation"
    if not isinstance(runner, str) or runner not in RUNNERS:
        raise DataError(f"{path}: runner: {shown(runner)} is not one of {', '.join(RUNNERS)}")
    return runner


def load_any(path: Path) -> Study | GlueStudy:
    """Read and check a study of either kind.

    Raises:
        DataError: with the file's name and the key, for what is wrong in it.
    """
    return RUNNERS[runner_of(path)](path)
