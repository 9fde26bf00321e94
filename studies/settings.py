"""The values of snakemake's `--config`: which study runs, in which folder, on which data."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headprune import UsageError

KEYS = ("study", "table", "out", "base", "data_dir", "budget")
_NOT_IN_PATHS = "{}\\"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The values of `--config`; None where one is left out.

    Attributes:
        study: the study's name or file.
        table: names of its tables, with commas.
        out: the run folder.
        base: the run folder of the study whose data or baseline this one shares.
        data_dir: the folder that the data are taken from.
        budget: the hours that the run may take.
    """

    study: str
    table: str | None = None
    out: str | None = None
    base: str | None = None
    data_dir: str | None = None
    budget: float | None = None


def settings_of(config: Mapping[str, object]) -> Settings:
    """Check what snakemake read from `--config`.

    Raises:
        UsageError: an unknown key, no study, or a value that snakemake did not read as text.
    """
    for key, value in config.items():
        if key not in KEYS:
            known = f"{', '.join(KEYS[:-1])} and {KEYS[-1]}"
            raise UsageError(f"--config {key}: there are {known}")
        if value is None or value == "":
            raise UsageError(f"--config {key}: the value is empty")
        if key == "budget":
            if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
                raise UsageError(f"--config budget: {value!r} is no number of hours above 0")
        elif not isinstance(value, str):
            raise UsageError(
                f"--config {key}: snakemake reads the value as {_kind(value)}, not as text; for a "
                f"file or folder of that name write ./ before it"
            )
    if "study" not in config:
        raise UsageError("which study? Add --config study=NAME, such as study=demo")
    return Settings(**config)  # type: ignore[arg-type]  # checked above


def data_folder(name: str | None) -> Path | None:
    """The folder with the data, made absolute.

    Raises:
        UsageError: it does not exist.
    """
    if name is None:
        return None
    if not _is_folder(name):
        raise UsageError(f"data_dir: there is no folder {name}")
    return Path(name).resolve()


def sibling_folder(out: str, *, name: str) -> str:
    """The default run folder of another study: beside this study's."""
    return os.path.join(os.path.dirname(out), name)


def run_folder(name: str, *, root: Path, runner: str) -> str:
    """The folder that a study runs in, as its rules name files in it.

    Args:
        name: as the user gave it, relative to the folder that snakemake was started in.
        root: the checkout.
        runner: the study's kind; `translation` hands the folder to fairseq.

    Raises:
        UsageError: snakemake or fairseq would read the path as something other than a path.
    """
    for what, path in (("out", name), ("the checkout's folder", str(root))):
        bad = next((c for c in path if c in _NOT_IN_PATHS or unicodedata.category(c) == "Cc"), None)
        if bad is not None:
            raise UsageError(
                f"{what}: {path!r} holds {bad!r}, which snakemake or fairseq take for something "
                "other than a part of a path; choose another folder"
            )
    if runner == "translation" and ":" in name:
        raise UsageError(
            f"out: {name!r} holds ':', with which fairseq separates folders; choose another folder"
        )
    if len(os.path.basename(name.rstrip("/")).encode()) > 255:
        raise UsageError(f"out: a name of more than 255 bytes: {name[:40]}...")
    if os.path.exists(name) and not _is_folder(name):
        raise UsageError(f"out: {name} exists and is not a folder")
    name = name.rstrip("/") or "/"
    # A relative path that begins with a dash would be an option to the programs that get it.
    return os.path.abspath(name) if name.startswith("-") else name


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, (int, float)) else "a list or a mapping"
