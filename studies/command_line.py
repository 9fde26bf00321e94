"""Options of snakemake's command line that a study reads before snakemake acts on them."""

from __future__ import annotations

import re
from collections.abc import Sequence

RETRIES_ON_A_CLUSTER = 3
"""The number of retries on a cluster, where jobs can be preempted.

On one machine a failed job is not retried.
"""
_SHORT_DRY_RUN = re.compile(r"-[npqkF]*n[npqkF]*")
"""`-n`, also together with other short options that have no value of their own, as in `-np`."""


def is_dry_run(arguments: Sequence[str]) -> bool:
    """True if snakemake only prints the jobs: `-n`, `--dry-run` or the executor `dryrun`."""
    return executor_of(arguments) == "dryrun" or any(
        word in ("--dry-run", "--dryrun") or _SHORT_DRY_RUN.fullmatch(word) for word in arguments
    )


def executor_of(arguments: Sequence[str]) -> str | None:
    """The executor that the command line names; None without one."""
    for word, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if word in ("--executor", "-e"):
            return following
        for start in ("--executor=", "-e"):
            if word.startswith(start):
                return word.removeprefix(start)
    return None


def is_on_a_cluster(arguments: Sequence[str]) -> bool:
    """True if the executor that the command line names runs jobs on other machines."""
    return executor_of(arguments) not in (None, "local", "dryrun", "touch")


def retries(arguments: Sequence[str]) -> int | None:
    """The number of retries of a failed job; None leaves it to snakemake's own options.

    A cluster's job is a snakemake too, with an executor such as `slurm-jobstep`. It must not retry:
    the one that submitted it does.
    """
    is_job = (executor_of(arguments) or "").endswith("-jobstep")
    return RETRIES_ON_A_CLUSTER if is_on_a_cluster(arguments) and not is_job else None
