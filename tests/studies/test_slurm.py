"""The tiny study through a real Slurm, with cancelled jobs and a snakemake that is killed.

Needs Slurm's programs (on Debian: slurm-wlm and munge) and snakemake-executor-plugin-slurm.
"""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import yaml

from tests.studies.slurm_cluster import CPUS_OF_A_NODE, Cluster, missing_programs, slurm_cluster

ROOT = Path(__file__).parents[2]
_PLUGIN = "snakemake_executor_plugin_slurm"

if missing := missing_programs():
    pytest.skip(f"Slurm is not installed: no {', '.join(missing)}", allow_module_level=True)
if os.getuid() != 0:
    pytest.skip("only root starts the daemons of Slurm here", allow_module_level=True)
if importlib.util.find_spec(_PLUGIN) is None:
    pytest.skip(f"no {_PLUGIN}", allow_module_level=True)

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with slurm_cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


def test_a_study_survives_cancelled_jobs_and_a_killed_snakemake(
    cluster: Cluster, tmp_path: Path
) -> None:
    study = _study(tmp_path)
    first = _start(cluster, study, tmp_path)
    job = _wait_for_job(cluster, "rule_baseline", first)
    first.send_signal(signal.SIGKILL)
    first.wait()
    # The job that its snakemake left behind is not in the way of the next one.
    assert job in cluster.jobs()

    second = _start(cluster, study, tmp_path)
    job = _wait_for_job(cluster, "rule_finetune_wildcards_control_1", second)
    cluster.run("scancel", job)
    output, _ = second.communicate(timeout=600)
    assert second.returncode == 0, output
    assert "Trying to restart job" in output
    assert "headprune_" in output  # the prefix of the jobs' names

    out = tmp_path / "run"
    for model in ("baseline", "finetuned/control/seed1", "finetuned/50pct/seed1"):
        record = json.loads((out / model / "result.json").read_text())
        assert record["metrics"]["bleu"] >= 0
    assert (out / "report.html").stat().st_size > 10_000


def test_a_job_that_no_node_can_run_ends_the_study_with_the_reason(
    cluster: Cluster, tmp_path: Path
) -> None:
    study = _study(tmp_path, resources={"prepare": {"threads": 2 * CPUS_OF_A_NODE}})
    running = _start(cluster, study, tmp_path)
    output, _ = running.communicate(timeout=120)
    assert running.returncode != 0
    assert "Requested node configuration is not available" in output
    assert not (tmp_path / "run" / "data" / "prep.json").exists()


def _study(folder: Path, **changes: object) -> Path:
    """The tiny study with one seed, in a file of its own."""
    path = folder / "study.yaml"
    content = {"name": "small", "extends": "tiny", "seeds": [1], "before_finetune": False}
    path.write_text(yaml.safe_dump({**content, **changes}))
    return path


def _start(cluster: Cluster, study: Path, folder: Path) -> subprocess.Popen[str]:
    """Start the study with the profile for Slurm, but look at its jobs more often."""
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "snakemake", "-s", "studies/Snakefile"),
            *("--workflow-profile", "studies/profiles/slurm"),
            *("--slurm-init-seconds-before-status-checks", "3"),
            *("--slurm-logdir", str(folder / "logs")),
            *("--config", f"study={study}", f"out={folder / 'run'}"),
        ],
        cwd=ROOT,
        env={**cluster.environment, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )


def _wait_for_job(cluster: Cluster, comment: str, snakemake: subprocess.Popen[str]) -> str:
    """The id of a running job, once it has begun."""

    def is_it(state: str, of_job: str) -> bool:
        return state == "RUNNING" and of_job == comment

    return _wait(
        lambda: next((job for job, values in cluster.jobs().items() if is_it(*values)), None),
        snakemake,
    )


def _wait(
    look: Callable[[], str | None], snakemake: subprocess.Popen[str], *, seconds: float = 300
) -> str:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if answer := look():
            return answer
        if snakemake.poll() is not None:
            assert snakemake.stdout is not None
            pytest.fail(f"snakemake has ended:\n{snakemake.stdout.read()}")
        time.sleep(0.2)
    raise TimeoutError
