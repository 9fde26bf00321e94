"""Jobs on one machine that take GPUs of their own; no GPU is needed for it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from headprune.errors import UsageError
from studies import gpus

ROOT = Path(__file__).resolve().parents[2]


def test_no_two_jobs_have_the_same_gpu(tmp_path: Path) -> None:
    first = gpus.take(2, of=["0", "1", "2"], locks=tmp_path)
    assert first is not None and list(first) == ["0", "1"]
    assert gpus.take(2, of=["0", "1", "2"], locks=tmp_path) is None
    second = gpus.take(1, of=["0", "1", "2"], locks=tmp_path)  # the one that was tried is free
    assert second is not None and list(second) == ["2"]
    os.close(first["1"])
    third = gpus.take(1, of=["0", "1", "2"], locks=tmp_path)
    assert third is not None and list(third) == ["1"]
    for descriptor in (first["0"], *second.values(), *third.values()):
        os.close(descriptor)


def test_a_job_waits_until_a_gpu_is_free(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = gpus.take(1, of=["GPU-a/b"], locks=tmp_path)
    assert taken is not None
    began = time.monotonic()
    threading.Timer(0.2, os.close, taken.values()).start()
    assert list(gpus.wait_for(1, of=["GPU-a/b"], locks=tmp_path)) == ["GPU-a/b"]
    assert time.monotonic() - began > 0.2
    assert capsys.readouterr().err == "note: waits for 1 of 1 GPUs\n"
    with pytest.raises(UsageError, match="asks for 3 GPUs, and there are 2"):
        gpus.wait_for(3, of=["0", "1"], locks=tmp_path)


def test_the_command_sees_its_gpu_and_holds_it(tmp_path: Path) -> None:
    program = [sys.executable, "-P", str(ROOT / "studies" / "gpus.py"), "1"]
    environment = {
        **os.environ,
        "CUDA_VISIBLE_DEVICES": "3,5",
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": str(ROOT),
    }
    show = "import os, sys; print(os.environ['CUDA_VISIBLE_DEVICES'], flush=True); sys.stdin.read()"
    jobs = []
    for expected in ("3", "5"):
        job = subprocess.Popen(
            [*program, sys.executable, "-c", show],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert job.stdout is not None and job.stdout.readline().strip() == expected
        jobs.append(job)
    jobs[0].kill()
    jobs[0].wait()
    free = gpus.take(1, of=["3", "5"], locks=next(tmp_path.glob("headprune-gpus-*")))
    assert free is not None and list(free) == ["3"]
    os.close(free["3"])
    jobs[1].communicate("")


def test_a_program_of_a_job_that_was_killed_holds_the_gpu(tmp_path: Path) -> None:
    job = """
import subprocess, sys
from studies.plugin import running
program = [sys.executable, "-c", "import sys; sys.stdin.read()"]
started = subprocess.Popen(program, pass_fds=running.inherited_locks(), stdin=0)
print(started.pid, flush=True)
started.wait()
"""
    process = subprocess.Popen(
        [sys.executable, "-P", str(ROOT / "studies" / "gpus.py"), "1", sys.executable, "-c", job],
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "3",
            "TMPDIR": str(tmp_path),
            "PYTHONPATH": str(ROOT),
        },
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdin is not None
    assert process.stdout.readline()
    process.kill()
    process.wait()
    locks = next(tmp_path.glob("headprune-gpus-*"))
    assert gpus.take(1, of=["3"], locks=locks) is None
    process.stdin.close()  # the program ends
    for _ in range(200):
        if gpus.take(1, of=["3"], locks=locks) is not None:
            return
        time.sleep(0.05)
    pytest.fail("the GPU stays taken after its program has ended")


def test_a_machine_without_gpus(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert gpus.devices() == []
    for given, names in (("-1", []), ("2,-1,3", ["2"])):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", given)
        assert gpus.devices() == names
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.setattr(os, "execvp", lambda file, command: (tmp_path / "ran").write_text(file))
    gpus.main(["2", "training", "--flag"])
    assert (tmp_path / "ran").read_text() == "training"
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
