"""The values of snakemake's `--config`: which study runs, in which folder, on which data."""

from __future__ import annotations

import os
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from headprune import UsageError
from headprune.wording import listed

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
            raise UsageError(f"--config {key}: there are {listed(KEYS)}")
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


def require_one_sharer(base: str | None, *, study: str, homes: Sequence[str]) -> None:
    """Check that the setting `base` names the run folder of one study.

    Args:
        base: the setting.
        study: the name of the study that runs.
        homes: the names of the studies in whose run folders its data and its baseline are.

    Raises:
        UsageError: the study shares with no other study, or with two.
    """
    others = [name for name in dict.fromkeys(homes) if name != study]
    if base is None or len(others) == 1:
        return
    if not others:
        raise UsageError(f"base: {study} shares data or baseline with no study; leave `base` out")
    raise UsageError(
        f"base: {study} takes the data of {others[0]} and the baseline of {others[1]}, which are "
        f"two run folders; leave `base` out and put both beside the folder `out`"
    )


def run_folder(name: str, *, root: Path, runner: str, key: str = "out") -> str:
    """The folder that a study runs in, as its rules name files in it.

    Args:
        name: as the user gave it, relative to the folder that snakemake was started in.
        root: the checkout.
        runner: the study's kind; `translation` hands the folder to fairseq.
        key: the setting that it is the value of.

    Raises:
        UsageError: snakemake or fairseq would read the path as something other than a path, or it
            is the checkout's folder.
    """
    for what, path in ((key, name), ("the checkout's folder", str(root))):
        require_plain_path(path, what)
    if runner == "translation" and ":" in name:
        raise UsageError(
            f"{key}: {name!r} holds ':', with which fairseq separates folders; choose another one"
        )
    if len(os.path.basename(name.rstrip("/")).encode()) > 255:
        raise UsageError(f"{key}: a name of more than 255 bytes: {name[:40]}...")
    if os.path.exists(name) and not _is_folder(name):
        raise UsageError(f"{key}: {name} exists and is not a folder")
    name = name.rstrip("/") or "/"
    if os.path.realpath(name) == os.path.realpath(root):
        raise UsageError(f"{key}: {name} is the checkout itself; choose a folder such as runs/NAME")
    if any(os.path.exists(os.path.join(name, file)) for file in ("__init__.py", "Snakefile")):
        raise UsageError(f"{key}: {name} holds source files; choose a folder such as runs/NAME")
    # A relative path that begins with a dash would be an option to the programs that get it, and
    # from one that ends in a dot the names of the folder and of those beside it do not follow.
    ends_in_a_dot = os.path.basename(name) in (".", "..")
    return os.path.abspath(name) if name.startswith("-") or ends_in_a_dot else name


def require_plain_path(path: str, what: str) -> None:
    """Check that snakemake and fairseq take a path for nothing else.

    Args:
        path: the path.
        what: the setting, for the message.

    Raises:
        UsageError: it has a character that they interpret.
    """
    bad = next((c for c in path if c in _NOT_IN_PATHS or unicodedata.category(c) == "Cc"), None)
    if bad is not None:
        raise UsageError(
            f"{what}: {path!r} holds {bad!r}, which snakemake or fairseq take for something "
            "other than a part of a path; choose another name"
        )


def require_outside(file: Path, folders: Sequence[str], *, key: str) -> None:
    """Check that a file of the user's is in none of the folders that a run writes to.

    Raises:
        UsageError: the run would replace it.
    """
    for folder in folders:
        if file.resolve().is_relative_to(Path(folder).resolve()):
            raise UsageError(
                f"{key}: {file} is in the run folder {folder}, whose files the study replaces; "
                "copy it to another place"
            )


def _is_folder(name: str) -> bool:
    try:
        return Path(name).is_dir()
    except (OSError, ValueError):  # a name that no file can have
        return False


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return "true or false"
    return "a number" if isinstance(value, (int, float)) else "a list or a mapping"
