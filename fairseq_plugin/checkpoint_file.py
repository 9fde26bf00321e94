"""Reading a checkpoint file: whole, undamaged, and without executing anything that is in it."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import torch

from fairseq_plugin import safe_globals
from headprune.errors import DataError, reason_of
from headprune.weights import is_zip, verify_zip


def read(path: str | Path) -> dict[str, Any]:
    """The content of a checkpoint file.

    torch does not compare the checksums that it writes, so this does.

    Raises:
        DataError: no such file, an unreadable or a damaged one, or no checkpoint of fairseq.
    """
    safe_globals.allow()
    try:
        zipped = is_zip(path)
    except FileNotFoundError:
        raise DataError(f"{path}: no such file") from None
    except IsADirectoryError:
        raise DataError(f"{path}: a folder, not a checkpoint file") from None
    except OSError as error:
        raise DataError(f"{path}: cannot read ({error.strerror})") from None
    try:
        if zipped:
            verify_zip(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        if zipped:
            reason = "it holds objects other than weights and options, which could run code"
            raise DataError(
                f"{path}: refused: {reason} ({reason_of(error, last_line=True)})"
            ) from None
        raise DataError(f"{path}: not a checkpoint file") from None
    except DataError:
        raise
    # A damaged file can make zipfile and torch fail in any way, MemoryError included.
    except Exception as error:
        reason = reason_of(error)
        raise DataError(f"{path}: corrupt or truncated ({reason})") from None
    if not isinstance(state, dict):
        raise DataError(f"{path}: not a checkpoint of fairseq")
    return state
