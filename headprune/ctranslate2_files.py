"""The folder of an exported model, as CTranslate2 reads it."""

from __future__ import annotations

import json
from pathlib import Path

import ctranslate2

from headprune.errors import DataError, UsageError


def available_device(device: str) -> str:
    """The device to run on: ``cpu`` or ``cuda``; ``auto`` is a GPU where there is one.

    Raises:
        UsageError: CTranslate2 finds no GPU.
    """
    if device == "auto":
        return "cuda" if ctranslate2.get_cuda_device_count() else "cpu"
    if device == "cuda" and not ctranslate2.get_cuda_device_count():
        raise UsageError("--device cuda: CTranslate2 finds no GPU")
    return device


def open_translator(
    folder: Path, *, device: str, name: Path | None = None, **threads: int
) -> ctranslate2.Translator:
    """Load the model of a folder.

    Args:
        folder: the folder.
        device: see ``available_device``.
        name: of the folder, for the message; default: its path.
        threads: ``inter_threads`` and ``intra_threads`` of CTranslate2.

    Raises:
        DataError: the files in the folder are not a CTranslate2 model.
    """
    try:
        return ctranslate2.Translator(str(folder), device=device, **threads)
    except (RuntimeError, ValueError) as error:
        raise DataError(f"{name or folder}: CTranslate2 cannot load it ({error})") from None


def vocabulary(folder: Path, side: str) -> list[str]:
    """The source or target words of a model, in files of JSON or of one word a line.

    Args:
        side: ``source`` or ``target``.

    Raises:
        DataError: there is no such file, or it cannot be read.
    """
    for name in (f"{side}_vocabulary", "shared_vocabulary"):
        for suffix in (".json", ".txt"):
            path = (folder / name).with_suffix(suffix)
            if not path.is_file():
                continue
            try:
                text = path.read_text(encoding="utf-8")
                words = json.loads(text) if suffix == ".json" else text.splitlines()
            except (OSError, ValueError) as problem:
                raise DataError(f"{path}: cannot be read ({problem})") from None
            if not isinstance(words, list):
                raise DataError(f"{path}: not a vocabulary")
            return [str(word) for word in words]
    raise DataError(f"{folder}: no vocabulary of the {side} language")
