"""The seconds that methods take to choose units, in a comparison's folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.json_files import json_object

_KINDS = ("scores", "methods")


class Costs:
    """The file of costs: seconds of each score's pass, and of each method by seed."""

    def __init__(self, path: Path) -> None:
        """Read the file, if it is there.

        Raises:
            DataError: it is no file of costs.
        """
        self._path = path
        self._seconds: dict[str, dict[str, dict[str, float]]] = {kind: {} for kind in _KINDS}
        if path.exists():
            content = json_object(path)
            try:
                for kind in _KINDS:
                    self._seconds[kind] = {
                        name: {run: float(value) for run, value in runs.items()}
                        for name, runs in content[kind].items()
                    }
            except (AttributeError, KeyError, TypeError, ValueError):
                raise DataError(f"{path}: not a file of costs; delete it") from None

    def add_score(self, name: str, seconds: float) -> None:
        """Write down the pass that computed a score; a known cost stays."""
        if name not in self._seconds["scores"]:
            self._add("scores", name, "pass", seconds)

    def add_method(self, name: str, *, seed: int, seconds: float) -> None:
        """Write down a run of a method.

        Of several runs with one seed the longest counts: budgets may share a training.
        """
        known = self._seconds["methods"].get(name, {}).get(str(seed), 0.0)
        self._add("methods", name, str(seed), max(known, seconds))

    def of(self, method: str, scores: Sequence[str]) -> float | None:
        """The seconds of a method and the scores that it needs, mean over seeds.

        Scores of one pass have the same time, which counts once.

        Returns:
            None where they are not known.
        """
        runs = self._seconds["methods"].get(method, {})
        passes = {self._seconds["scores"].get(name, {}).get("pass") for name in scores}
        parts = [*([mean(runs.values())] if runs else []), *passes]
        known = [part for part in parts if part is not None]
        return sum(known) if known else None

    def _add(self, kind: str, name: str, run: str, seconds: float) -> None:
        self._seconds[kind].setdefault(name, {})[run] = round(seconds, 2)
        write_text_atomically(self._path, json.dumps(self._seconds, indent=1) + "\n")
