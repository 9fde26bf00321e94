"""Print the options of the cell that a grid search chose; the Snakefile's rule `glue` uses it."""

from __future__ import annotations

import sys
from pathlib import Path

from headprune.errors import DataError, exit_status
from headprune.results.record import Record


def options_of(path: Path) -> list[str]:
    """The batch size and learning rate of the record of a grid search, as options.

    Raises:
        DataError: the file is no record, or not that of a grid search.
    """
    settings = Record.load(path).settings
    try:
        batch_size, learning_rate = int(settings["batch_size"]), float(settings["learning_rate"])
    except (KeyError, TypeError, ValueError):
        raise DataError(
            f"{path}: no batch size and learning rate of a grid search; delete the file, so that "
            "the search runs again"
        ) from None
    return ["--batch-size", str(batch_size), "--learning-rate", f"{learning_rate:g}"]


def _main(path: str) -> None:
    print(*options_of(Path(path)))


if __name__ == "__main__":
    sys.exit(exit_status(_main, sys.argv[1]))
