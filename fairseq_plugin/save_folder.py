"""The folder that fairseq-train makes for its checkpoints, before it looks at most of its flags."""

from __future__ import annotations

import atexit
from contextlib import suppress
from functools import wraps
from pathlib import Path

from fairseq import checkpoint_utils


def remove_if_empty() -> None:
    """Let no empty ``--save-dir`` stay where fairseq-train made it and ended without a checkpoint.

    Folders above it that were made too are removed as well.
    """
    make = checkpoint_utils.verify_checkpoint_directory

    @wraps(make)
    def remember(save_dir: str) -> None:
        folder = Path(save_dir).absolute()
        made = [each for each in (folder, *folder.parents) if not each.exists()]
        make(save_dir)
        if made:
            atexit.register(_remove, made)

    checkpoint_utils.verify_checkpoint_directory = remember


def _remove(folders: list[Path]) -> None:
    """Remove the folders, innermost first, up to the first that holds something."""
    with suppress(OSError):
        for folder in folders:
            folder.rmdir()
