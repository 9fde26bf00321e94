"""Reading a checkpoint file: whole, undamaged, and without executing anything that is in it."""

from __future__ import annotations

import pickle
import zipfile
from pathlib import Path
from typing import Any

import torch

from fairseq_plugin import safe_globals
from headprune.errors import DataError

_ZIP = b"PK\x03\x04"


def read(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint file.

    torch does not compare the checksums that it writes, so this does: 0.1 s for 250 MB.

    Raises:
        DataError: no such file, a damaged one, or one that is no checkpoint of fairseq.
    """
    safe_globals.allow()
    try:
        is_zip = _is_zip(path)
        if is_zip:
            _verify(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{path}: a folder, not a checkpoint file") from None
    except pickle.UnpicklingError as error:
        if is_zip:
            reason = "it holds objects other than weights and options, which could run code"
            raise DataError(f"{path}: refused: {reason} ({str(error).splitlines()[-1]})") from None
        raise DataError(f"{path}: not a checkpoint file") from None
    except DataError:
        raise
    # A damaged file can make zipfile and torch fail in any way, MemoryError included.
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise DataError(f"{path}: corrupt or truncated ({reason})") from None
    if not isinstance(state, dict):
        raise DataError(f"{path}: not a checkpoint of fairseq")
    return state


def _is_zip(path: str | Path) -> bool:
    """Whether the file begins as zip files do; torch before 1.6 wrote bare pickles."""
    with open(path, "rb") as file:
        return file.read(len(_ZIP)) == _ZIP


def _verify(path: str | Path) -> None:
    """Compare the CRC-32 of every file in the archive, in pieces of bounded size."""
    with zipfile.ZipFile(path) as archive:
        if not any(member.CRC for member in archive.infolist()):
            return  # torch.serialization.set_crc32_options(False) leaves them out
        damaged = archive.testzip()
    if damaged is not None:
        raise DataError(f"{path}: corrupt: the checksum of {damaged} in it is another")
