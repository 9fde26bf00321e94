"""One row of the table of bad inputs, and how it is run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests import warm_process
from tests.command import Outcome, headprune

ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, kw_only=True)
class BadInput:
    """A user's mistake, and the line that the command ends with.

    Attributes:
        label: names the row.
        command: program and arguments; ``{folder}`` stands for a new folder. ``headprune`` runs in
            this process, ``python`` is this interpreter, ``fairseq-*`` are the programs beside
            it, anything else is looked up in the checkout.
        message: a regular expression that the line on standard error must match.
        prepare: writes the files that the command reads into the folder.
        status: the exit status; None accepts any but 0.
        standard_input: what the command reads there.
        slow: the command takes more than a few seconds.
    """

    label: str
    command: tuple[str, ...]
    message: str
    prepare: Callable[[Path], None] | None = None
    status: int | None = None
    standard_input: str = ""
    slow: bool = False

    def __str__(self) -> str:
        return self.label


def check(row: BadInput, folder: Path) -> None:
    """Run a row: one line on standard error, a status that is not 0, no file added or changed."""
    if row.prepare is not None:
        row.prepare(folder)
    before = _contents(folder)
    outcome = _run(row, folder)
    # fairseq's own notes are written before it looks at its options.
    lines = re.sub(r"^INFO:fairseq\..*\n", "", outcome.err, flags=re.M).strip().splitlines()
    assert "Traceback" not in outcome.err, outcome.err
    assert outcome.status != 0, outcome.out
    if row.status is not None:
        assert outcome.status == row.status, outcome.err
    assert len(lines) == 1, outcome.err
    assert re.search(row.message, lines[0]), lines[0]
    assert _contents(folder) == before, "the command left files behind"


def _run(row: BadInput, folder: Path) -> Outcome:
    program, *arguments = (part.replace("{folder}", str(folder)) for part in row.command)
    if program == "headprune" and not row.standard_input:
        return headprune(*arguments)
    if warm_process.can_run((program,)):
        with tempfile.TemporaryDirectory() as temporary:
            errors = Path(temporary, "errors")
            status, out = warm_process.run(
                (program, *arguments),
                text=row.standard_input,
                folder=ROOT,
                environment={**os.environ, "COLUMNS": "200"},
                timeout=600,
                errors=errors,
            )
            return Outcome(status, out, errors.read_text())
    if program == "python":
        command = [sys.executable, *arguments]
    else:
        command = [str(ROOT / program), *arguments]
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "COLUMNS": "200"}
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        input=row.standard_input,
        capture_output=True,
        text=True,
        timeout=600,
    )
    return Outcome(done.returncode, done.stdout, done.stderr)


def _contents(folder: Path) -> dict[str, bytes | None]:
    """Read the contents of all files and the names of all folders; links are not followed."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        if path.is_file() and not path.is_symlink()
        else None
        for path in sorted(folder.rglob("*"))
    }
