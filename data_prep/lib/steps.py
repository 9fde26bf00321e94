"""Run a step of a preparation, or skip it if its inputs, options and outputs have not changed.

A finished step leaves a stamp with its command (without the number of workers), the versions of the
tools that affect its output, and the size and modification time of every input and output. The
stamp is removed before the step starts, and written when all outputs are complete, so an
interrupted step is never skipped.
"""

from __future__ import annotations

import argparse
import importlib
import json
import shutil
import sys
from collections.abc import Iterable, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from data_prep.lib.cli import run
from headprune.errors import DataError
from headprune.files import write_text_atomically
from headprune.json_files import json_object

STAMPS = Path(".steps")
MANIFEST = Path("prep.json")

# The tools whose versions can change the output of a step.
TOOLS = {
    "data_prep.lib.tokenise": ("sacremoses",),
    "data_prep.lib.truecase": ("sacremoses",),
    "data_prep.lib.bpe": ("subword-nmt",),
    "data_prep.lib.sentencepiece_model": ("sentencepiece",),
    "data_prep.lib.binarise": ("fairseq-fixed",),
    "data_prep.lib.numbers_corpus": ("num2words", "Babel"),
}


def tool_versions(names: Iterable[str]) -> dict[str, str]:
    """Look up the installed versions of packages; ``none`` for packages that are not installed."""
    versions = {}
    for name in names:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "none"
    return versions


def _state(path: Path) -> Any:
    """Describe a file, or the files of a folder, by size and modification time; None if missing."""
    if path.is_dir():
        return {
            str(file.relative_to(path)): _state(file)
            for file in sorted(path.rglob("*"))
            if file.is_file()
        }
    if not path.exists():
        return None
    status = path.stat()
    return [status.st_size, status.st_mtime_ns]


def _command_key(command: Sequence[str]) -> list[str]:
    """Remove ``--workers N`` from a command, since it does not affect the output."""
    key = list(command)
    while "--workers" in key:
        position = key.index("--workers")
        del key[position : position + 2]
    return key


def _describe(command: Sequence[str], inputs: Sequence[Path], outputs: Sequence[Path]) -> Any:
    return {
        "command": _command_key(command),
        "tools": tool_versions(TOOLS.get(command[0], ())),
        "inputs": {str(path): _state(path) for path in inputs},
        "outputs": {str(path): _state(path) for path in outputs},
    }


def is_done(
    name: str, *, command: Sequence[str], inputs: Sequence[Path], outputs: Sequence[Path]
) -> bool:
    """Check by its stamp that a step is finished and up to date."""
    try:
        stamp = json_object(STAMPS / f"{name}.json")
    except DataError:  # missing or incomplete
        return False
    described = _describe(command, inputs, outputs)
    return bool(stamp == described and None not in described["outputs"].values())


def _remove_leftovers(outputs: Sequence[Path]) -> None:
    """Remove the temporary files of a killed run, which have names from `atomic_path`."""
    for output in outputs:
        for leftover in output.parent.glob(f".{output.name}.*tmp*"):
            if leftover.is_dir():
                shutil.rmtree(leftover, ignore_errors=True)
            else:
                leftover.unlink(missing_ok=True)


def run_step(
    name: str, *, command: Sequence[str], inputs: Sequence[Path], outputs: Sequence[Path]
) -> None:
    """Run a module's ``main`` as a step, or print that it is skipped.

    Args:
        name: the name of the stamp, unique in the folder.
        command: the module's name and its arguments.
        inputs: the files that the step reads.
        outputs: the files or folders that the step writes.

    Raises:
        DataError: an input is missing, or the step fails.
    """
    if is_done(name, command=command, inputs=inputs, outputs=outputs):
        print(f"skip: {name} (done before)", file=sys.stderr)
        return
    for path in inputs:
        if not path.exists():
            raise DataError(f"{path}: no such file")
    stamp = STAMPS / f"{name}.json"
    stamp.unlink(missing_ok=True)
    # The manifest describes a finished preparation; from here on this one is unfinished.
    MANIFEST.unlink(missing_ok=True)
    _remove_leftovers(outputs)
    for path in outputs:
        path.parent.mkdir(parents=True, exist_ok=True)
    print(f"run:  {name}", file=sys.stderr)
    before = _describe(command, inputs, ())["inputs"]
    importlib.import_module(command[0]).main(list(command[1:]))
    described = _describe(command, inputs, outputs)
    missing = [path for path, state in described["outputs"].items() if state is None]
    if missing:
        raise DataError(f"step {name} ended without writing {', '.join(missing)}")
    described["inputs"] = before
    write_text_atomically(stamp, json.dumps(described, indent=1) + "\n")


def refresh(name: str) -> None:
    """Accept the present inputs and outputs of a finished step, after a change by other means.

    A step without a stamp is left alone: a copy made by prepared.sh has no stamps.
    """
    path = STAMPS / f"{name}.json"
    if not path.is_file():
        return
    stamp = json_object(path)
    for files in ("inputs", "outputs"):
        stamp[files] = {each: _state(Path(each)) for each in stamp[files]}
    write_text_atomically(path, json.dumps(stamp, indent=1) + "\n")


def main(arguments: Sequence[str]) -> None:
    """Run one step in the current folder."""
    parser = argparse.ArgumentParser(
        prog="python -m data_prep.lib.steps",
        description="Run a module as a step of the preparation in the current folder, once.",
    )
    parser.add_argument("name")
    parser.add_argument("--in", dest="inputs", type=Path, nargs="+", default=[])
    parser.add_argument("--out", dest="outputs", type=Path, nargs="+", required=True)
    parser.add_argument("--do", dest="command", nargs=argparse.REMAINDER, required=True)
    options = parser.parse_args(arguments)
    run_step(options.name, command=options.command, inputs=options.inputs, outputs=options.outputs)


if __name__ == "__main__":
    run(main)
