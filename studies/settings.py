"""The values of snakemake's `--config`: which study runs, in which folder, on which data."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headprune import UsageError

KEYS = ("study", "out", "data_dir")
_NOT_IN_PATHS = "{}\\"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """The values of `--config`; None where one is left out."""

    study: str
    out: str | None = None
    data_dir: str | None = None


def settings_of(config: Mapping[str, object]) -> Settings:
    """Check what snakemake read from `--config`.

    Raises:
        UsageError: an unknown key, no study, or a value that snakemake did not read as text.
    """
    for key, value in config.items():
        if key not in KEYS:
            raise UsageError(f"--config {key}: there are study, out and data_dir")
        if value is None or value == "":
            raise UsageError(f"--config {key}: the value is empty")
        if not isinstance(value, str):
            raise UsageError(
                f"--config {key}: snakemake reads the value as {_kind(value)}, not as text; for a "
                f"file or folder of that name write ./ before it"
            )
    if "study" not in config:
        raise UsageError("which study? Add --config study=NAME, such as study=demo")
    return Settings(**{key: str(value) for key, value in config.items()})


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
