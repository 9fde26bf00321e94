"""The folder of a run: a result or an interrupted training in it has to be of the same run."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from headprune.errors import UsageError
from headprune.json_files import json_object
from headprune.recovery.distillation import DISTILL_SETTINGS, TEACHER
from headprune.recovery.variant import VARIANT_SETTINGS
from headprune.results.record import Record
from hf_plugin.finetuning.settings import Settings
from hf_plugin.finetuning.start_weights import START, start_fingerprint, teacher_fingerprint

_OLDER = {"hold_out": 0.0, "pooling": "first", "weight_decay": 0.0, "adam_epsilon": 1e-8}
"""Values of settings that are missing from the results of older versions."""

CLAIM = "settings.json"
"""File in the folder of a training with its settings and the fingerprints of its models."""

_WEIGHTS = {"model": START, "distill_from": TEACHER}
"""Settings that name models, with the facts about a training that name their weights."""


class OtherRun(UsageError):
    """The folder has files of a run with other settings, or with models of other weights."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}; choose another output folder or delete this one")
        self.what = what


def require_own(
    settings: Settings, output: Path, *, overwrite: bool = False, ignored: Sequence[str] = ()
) -> None:
    """Check that the result or the interrupted training in a folder is of the same run.

    Args:
        settings: those of this run.
        output: the folder.
        overwrite: remove the files of another run in place of refusing them.
        ignored: the settings that may differ.

    Raises:
        OtherRun: they are of another run.
        UsageError: files of another program have the names of the run's files.
        DataError: they cannot be read.
    """
    result, training = output / "result.json", output / "training"
    _require_no_other_files(output, overwrite=overwrite)
    try:
        if result.exists():
            facts = Record.load(result).training
            _require_same(
                facts.get("settings"), settings, where=result, ignored=ignored, facts=facts
            )
        elif any(training.glob("*/checkpoint-*")):
            claimed = json_object(training / CLAIM)
            _require_same(claimed, settings, where=training, ignored=ignored, facts=claimed)
    except OtherRun as problem:
        if not overwrite:
            raise
        print(f"note: {problem.what}; it is removed", file=sys.stderr)
        for file in (result, *output.glob("predictions*.tsv")):
            file.unlink(missing_ok=True)
        for folder in (training, output / "model"):
            shutil.rmtree(folder, ignore_errors=True)


def remove_unused_claim(output: Path) -> None:
    """Remove the folder of a training that wrote nothing else: it was refused, or diverged soon."""
    training = output / "training"
    if [path.name for path in training.rglob("*") if not path.is_dir()] == [CLAIM]:
        shutil.rmtree(training)


def _require_no_other_files(output: Path, *, overwrite: bool) -> None:
    """Refuse files and folders that have the names of a run's own, but are of no run.

    Args:
        output: the folder.
        overwrite: accept a model and predictions whose result was removed, as snakemake does.
    """
    if (output / "training" / CLAIM).exists():
        return
    names = [output / "training"]
    # A search that was interrupted while it copied the best model has no result yet.
    if not (
        overwrite or (output / "result.json").exists() or any(output.glob("grid/*/result.json"))
    ):
        names += [output / "model", *output.glob("predictions*.tsv")]
    for path in names:
        if path.exists():
            raise UsageError(
                f"{path}: exists already, and is not of a training; give another output folder"
            )


def _require_same(
    recorded: object,
    settings: Settings,
    *,
    where: Path,
    ignored: Sequence[str],
    facts: Mapping[str, Any],
) -> None:
    """Raise an OtherRun if recorded settings differ, except in the ``ignored`` ones.

    Args:
        recorded: the settings, as JSON.
        settings: those of this run.
        where: the file or folder, in the folder of the run, that the settings were read from.
        facts: facts about the recorded training. Models whose fingerprints are known, from these
            facts and from a folder, are compared by them in place of their paths.
    """
    values = settings.as_json()
    differing = [
        name
        for name in dict.fromkeys([*values, "distill_from", *DISTILL_SETTINGS, *VARIANT_SETTINGS])
        if name not in ignored
        and (
            not isinstance(recorded, dict)
            or recorded.get(name, _OLDER.get(name)) != values.get(name)
        )
    ]
    if set(differing) <= set(_WEIGHTS):  # else nothing is reused, and no weights need be read
        same = _same_weights(settings, facts, where=where.parent)
        differing = [name for name in differing if name not in same]
    if not differing:
        return
    recorded_settings = recorded if isinstance(recorded, dict) else {}
    described = [
        _described(name, recorded_settings.get(name), values.get(name)) for name in differing
    ]
    raise OtherRun(f"{where}: is of a run with other settings ({', '.join(described)})")


def _described(name: str, recorded: object, value: object) -> str:
    """Name a setting that differs, with both values where they are short."""
    if name == "own":
        return "the data, their columns, labels or metric"
    if all(isinstance(each, str | int | float) for each in (recorded, value)):
        return f"{name} {recorded} there, {value} here"
    return name


def _same_weights(settings: Settings, facts: Mapping[str, Any], *, where: Path) -> list[str]:
    """List the settings that name a model with the recorded weights; others are not known.

    Raises:
        OtherRun: a model has other weights.
    """
    same = []
    for name, fact in _WEIGHTS.items():
        path = getattr(settings, name)
        if path is None or fact not in facts:
            continue
        if name == "model":
            fingerprint = start_fingerprint(path)
        else:
            fingerprint = teacher_fingerprint(path, settings.data.task)
        if fingerprint is None:
            continue
        if fingerprint != facts[fact]:
            done = "trained from" if settings.epochs else "measured with"
            raise OtherRun(f"{where}: was {done} an older version of the weights in {path}")
        same.append(name)
    return same
