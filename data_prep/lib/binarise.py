"""fairseq-preprocess into a folder that appears only when it is whole."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from data_prep.lib.cli import positive, run
from data_prep.lib.parallel import available_cores
from headprune.errors import DataError


def _parts(workers: int) -> int:
    """What to tell fairseq-preprocess, which cuts a text into so many parts.

    All but the first are processed side by side, and then the first by itself, so that two parts
    are no quicker than one.
    """
    return 1 if workers == 1 else 2 * workers + 1


def main(arguments: Sequence[str]) -> None:
    """Binarise the train, valid and test sets of a folder."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.lib.binarise",
        description="Run fairseq-preprocess on FOLDER/{train,valid,test}.{SOURCE,TARGET}.",
    )
    parser.add_argument("--source-lang", required=True)
    parser.add_argument("--target-lang", required=True)
    parser.add_argument("--separate-dictionaries", action="store_true")
    parser.add_argument("--workers", type=positive, default=available_cores())
    parser.add_argument("folder", type=Path)
    parser.add_argument("output", type=Path)
    options = parser.parse_args(arguments)

    # A name of its own: fairseq-preprocess may outlive a run that was killed.
    temporary = options.output.with_name(f".{options.output.name}.{os.getpid()}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    command = [sys.executable, "-m", "fairseq_cli.preprocess"]
    command += ["--source-lang", options.source_lang, "--target-lang", options.target_lang]
    for split in ("train", "valid", "test"):
        command += [f"--{split}pref", str(options.folder / split)]
    command += ["--destdir", str(temporary), "--workers", str(_parts(options.workers))]
    if not options.separate_dictionaries:
        command += ["--joined-dictionary"]
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    if done.returncode != 0:
        told = [line for line in done.stdout.splitlines() if line.strip()]
        raise DataError(f"fairseq-preprocess failed: {told[-1] if told else 'without a word'}")
    shutil.rmtree(options.output, ignore_errors=True)
    temporary.rename(options.output)


if __name__ == "__main__":
    run(main)
