"""A Slurm cluster of two nodes on this machine, for the tests."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "srun", "squeue", "scancel")
NODES = ("n1", "n2")
CPUS_OF_A_NODE = 2

# Without an accounting database, as on many small clusters. `config_overrides`: a node has the
# processors and the memory that are written here, whatever the machine has.
_CONFIGURATION = """\
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller_port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
MpiDefault=none
ReturnToService=2
KillWait=2
{nodes}
PartitionName=all Nodes={node_names} Default=YES MaxTime=INFINITE State=UP
"""


@dataclass(frozen=True)
class Cluster:
    """A running cluster.

    Attributes:
        environment: the environment variables for programs that use it.
    """

    environment: dict[str, str]

    def jobs(self) -> dict[str, tuple[str, str]]:
        """State and comment (rule and wildcards) of the pending and running jobs, by their id."""
        lines = self.run("squeue", "--noheader", "--format=%i|%T|%k").splitlines()
        return {number: (state, comment) for number, state, comment in map(_columns, lines)}

    def run(self, *command: str) -> str:
        """The output of a program of Slurm's."""
        return subprocess.run(
            command, env=self.environment, capture_output=True, text=True, check=True
        ).stdout


def missing_programs() -> list[str]:
    """The programs of Slurm that are not installed."""
    # Debian puts daemons where only root looks.
    return [name for name in PROGRAMS if _program(name) is None]


@contextmanager
def slurm_cluster(folder: Path) -> Iterator[Cluster]:
    """Start a cluster, and stop it and its jobs at the end.

    Args:
        folder: an empty folder for its files; its path must be short enough for a socket.
    """
    pids = [folder / name for name in ("munged.pid", "slurmctld.pid")]
    pids += [folder / f"slurmd.{node}.pid" for node in NODES]
    configuration = folder / "slurm.conf"
    programs = folder / "bin"
    programs.mkdir()
    # snakemake's plugin takes Slurm's variables out of a job's environment, and the job's srun
    # would look for the machine's own cluster.
    srun = programs / "srun"
    srun.write_text(f'#!/bin/sh\nSLURM_CONF={configuration} exec {_program("srun")} "$@"\n')
    srun.chmod(0o755)
    environment = {
        **os.environ,
        "SLURM_CONF": str(configuration),
        "PATH": f"{programs}:{os.environ['PATH']}",
    }
    cluster = Cluster(environment)
    (folder / "state").mkdir()
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(1024))
    key.chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    configuration.write_text(
        _CONFIGURATION.format(
            host=host,
            folder=folder,
            user=os.environ.get("USER", "root"),
            controller_port=_free_port(),
            nodes="\n".join(
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={_free_port()} "
                f"CPUs={CPUS_OF_A_NODE} RealMemory=100000"
                for node in NODES
            ),
            node_names=",".join(NODES),
        )
    )
    try:
        files = [
            f"--{name}-file={folder}/{file}"
            for name, file in {
                "key": "munge.key",
                "pid": "munged.pid",
                "log": "munged.log",
                "seed": "munged.seed",
            }.items()
        ]
        _start("munged", "--force", f"--socket={folder}/munge.socket", *files, env=environment)
        _start("slurmctld", "-c", env=environment)
        for node in NODES:
            _start("slurmd", "-N", node, env=environment)
        _wait_for_idle_nodes(cluster)
        yield cluster
        subprocess.run(["scancel", "--user", str(os.getuid())], env=environment, check=False)
    finally:
        for pid in reversed(pids):
            if pid.is_file():
                subprocess.run(["kill", pid.read_text().strip()], check=False)


def _columns(line: str) -> tuple[str, str, str]:
    number, state, comment = line.split("|", 2)
    return number, state, comment


def _program(name: str) -> str | None:
    return shutil.which(name) or shutil.which(name, path="/usr/sbin:/sbin")


def _start(name: str, *arguments: str, env: dict[str, str]) -> None:
    """Start a daemon, which goes into the background on its own."""
    subprocess.run([str(_program(name)), *arguments], env=env, check=True, timeout=60)


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        port: int = listening.getsockname()[1]
        return port


def _wait_for_idle_nodes(cluster: Cluster, *, seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    states = ""
    while time.monotonic() < end:
        try:
            states = cluster.run("sinfo", "--noheader", "--Node", "--format=%T")
        except subprocess.CalledProcessError:  # the controller is still starting
            states = ""
        if states.split() == ["idle"] * len(NODES):
            return
        time.sleep(0.5)
    raise TimeoutError(f"the nodes are not idle: {states!r}")
