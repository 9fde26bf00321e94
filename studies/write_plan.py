"""Write one plan of a study; the Snakefile's `plan` rule."""

from __future__ import annotations

import sys
from pathlib import Path

from studies.find import load_any


def _main(study: str, key: str, seed: str, output: str) -> None:
    load_any(Path(study)).plan(key, seed=int(seed)).save(output)


if __name__ == "__main__":
    _main(*sys.argv[1:])
