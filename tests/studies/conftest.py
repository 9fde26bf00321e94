"""Questions to the plugins are answered in forks of a process that has imported fairseq."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import SimpleNamespace

import pytest

from tests import warm_process


@pytest.fixture(autouse=True)
def warm_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("studies.questions.subprocess", SimpleNamespace(run=_run))


def _run(
    command: Sequence[str], *, cwd: Path, input: str, capture_output: bool, text: bool
) -> subprocess.CompletedProcess[str]:
    """Stands in for `subprocess.run` of `python -m MODULE`."""
    assert capture_output and text
    _, _, module = command
    with NamedTemporaryFile("r") as errors:
        status, output = warm_process.run(
            (module,),
            text=input,
            folder=cwd,
            environment=os.environ,
            timeout=600,
            main=partial(warm_process.run_module, module),
            errors=Path(errors.name),
        )
        return subprocess.CompletedProcess(command, status, output, errors.read())
