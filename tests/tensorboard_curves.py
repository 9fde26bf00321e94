"""Read what a training wrote for TensorBoard."""

from __future__ import annotations

from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def curves_in(folder: Path) -> set[str]:
    """The names of the curves in a folder and the folders in it."""
    names: set[str] = set()
    for path in folder.rglob("events.out.tfevents.*"):
        events = EventAccumulator(str(path)).Reload()
        names |= {*events.Tags()["scalars"]}
    return names
