"""Write one plan of a study; the Snakefile's `plan` rule."""

from __future__ import annotations

import sys
from pathlib import Path

from headprune.errors import exit_status
from studies.find import load_any


def _main(study: str, key: str, seed: str, output: str, scores: str | None = None) -> None:
    computed = None
    if scores is not None:
        from headprune.scores import HeadScores

        computed = HeadScores.load(Path(scores))
    load_any(Path(study)).plan(key, seed=int(seed), scores=computed).save(output)


if __name__ == "__main__":
    sys.exit(exit_status(_main, *sys.argv[1:]))
