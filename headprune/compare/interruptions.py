"""Fine-tunings that were interrupted and resumed."""

from __future__ import annotations

from pathlib import Path


def is_resumed(folder: Path) -> bool:
    """Tell if the fine-tuning in ``folder``, about to start, resumes an interrupted one.

    The file ``resumed`` in it keeps the answer over further interruptions.
    """
    mark = folder / "resumed"
    if any(folder.rglob("checkpoint*")):
        mark.touch()
    return mark.exists()
