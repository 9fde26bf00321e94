"""The seconds that methods take to choose units, in a comparison's folder."""

from __future__ import annotations

import json
from pathlib import Path
from statistics import mean

from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.json_files import json_object


class Costs:
    """The file of costs: the seconds of every run of every method and score, by its label."""

    def __init__(self, path: Path) -> None:
        """Read the file, if it is there.

        Raises:
            DataError: it is no file of costs.
        """
        self._path = path
        self._seconds: dict[str, dict[str, float]] = {}
        if path.exists():
            content = json_object(path)
            try:
                self._seconds = {
                    name: {label: float(value) for label, value in runs.items()}
                    for name, runs in content.items()
                }
            except (AttributeError, TypeError, ValueError):
                raise DataError(f"{path}: not a file of costs; delete it") from None

    def add(self, name: str, label: str, seconds: float) -> None:
        """Write down a run of a method or score."""
        self._seconds.setdefault(name, {})[label] = round(seconds, 2)
        write_text_atomically(self._path, json.dumps(self._seconds, indent=1) + "\n")

    def mean(self, name: str) -> float | None:
        """The mean seconds of the runs of a method or score; None where they are not known."""
        runs = self._seconds.get(name)
        return mean(runs.values()) if runs else None
