"""Options of snakemake's command line that a study reads."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
import yaml

from headprune import DataError
from studies.command_line import is_dry_run, retries
from studies.glue_study import RESOURCE_DEFAULTS as GLUE_DEFAULTS
from studies.sections import Resources, read_resources
from studies.study import RESOURCE_DEFAULTS

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "studies"


@pytest.mark.parametrize("word", ["-n", "-np", "-kn", "--dry-run", "--dryrun", "-edryrun"])
def test_a_dry_run_is_recognised(word: str) -> None:
    assert is_dry_run(["snakemake", "-s", "Snakefile", word])


def test_the_executor_of_dry_runs_is_recognised() -> None:
    assert is_dry_run(["snakemake", "-e", "dryrun"])
    assert is_dry_run(["snakemake", "--executor=dryrun"])
    assert not is_dry_run(["snakemake", "-e", "local"])


def test_other_words_are_no_dry_run() -> None:
    words = ["snakemake", "--cores", "2", "-s", "n", "--config", "out=-n-", "--nolock", "-c1"]
    assert not is_dry_run([*words, "-Rfinetune", "-sSnakefile"])


def test_jobs_are_retried_on_a_cluster_only() -> None:
    assert retries(["snakemake", "--executor", "slurm"]) == 3
    assert retries(["snakemake", "--executor=slurm"]) == 3
    assert retries(["snakemake", "-e", "slurm", "-n"]) == 3
    assert retries(["snakemake", "--executor", "local"]) is None
    assert retries(["snakemake", "--executor", "slurm-jobstep", "--retries", "0"]) is None
    assert retries(["snakemake", "--cores", "2"]) is None


@pytest.mark.parametrize("name", ["Snakefile", "fairseq.smk", "glue.smk"])
def test_every_rule_that_a_cluster_runs_names_what_it_needs(name: str) -> None:
    text = (STUDIES / name).read_text()
    rules = dict(re.findall(r"^rule (\w+):\n((?: .*\n|\n)+)", text, re.MULTILINE))
    assert rules
    for rule, body in rules.items():
        if rule in ("all", "plan"):  # these run where snakemake does
            continue
        for directive in ("threads: threads_of(", "retries: RETRIES", "**resource_of("):
            assert directive in body, f"{rule}: {directive}"


@pytest.mark.parametrize("defaults", [RESOURCE_DEFAULTS, GLUE_DEFAULTS])
def test_every_rule_has_memory_and_a_time_limit(defaults: dict[str, Resources]) -> None:
    for resources in defaults.values():
        assert {"mem_mb", "runtime"} <= resources.besides_threads.keys()
    asked = read_resources({"report": {"gpu": 2}}, defaults=defaults)
    assert asked["report"].besides_threads["gpu"] == 2


def test_one_limit_of_time_holds_for_all_rules_without_their_own() -> None:
    given = {"all": {"runtime": 300}, "report": {"runtime": 7, "gpu": 1}}
    asked = read_resources(given, defaults=RESOURCE_DEFAULTS)
    assert asked.keys() == RESOURCE_DEFAULTS.keys()
    assert {rule for rule, resources in asked.items() if resources.runtime != 300} == {"report"}
    assert (asked["report"].runtime, asked["report"].gpu) == (7, 1)
    assert asked["baseline"].threads == RESOURCE_DEFAULTS["baseline"].threads


def test_a_resource_of_all_rules_is_checked() -> None:
    with pytest.raises(DataError, match=r"^unknown key: resources\.all\.hours"):
        read_resources({"all": {"hours": 3}}, defaults=RESOURCE_DEFAULTS)


def test_the_profile_for_slurm_keeps_what_the_default_one_says() -> None:
    """All but `quiet`, which would hide the errors of a cluster's jobs."""
    default, slurm = (
        yaml.safe_load((STUDIES / "profiles" / name / "config.yaml").read_text())
        for name in ("default", "slurm")
    )
    del default["quiet"]
    assert default.items() <= slurm.items()


def test_snakemake_takes_the_target_of_the_calibration_from_make() -> None:
    cli = pytest.importorskip("snakemake.cli")
    page = (ROOT / "docs/guides/studies.md").read_text()
    found = re.findall(r"^ *make (study .*FLAGS=(\S+\.json))$", page, re.MULTILINE)
    ((words, target),) = found
    command = ["make", "-n", "--no-print-directory", "CORES=2", *shlex.split(words)]
    # Under `make test`, the outer make's flags and variables must not reach this one.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True
    )
    line = done.stdout.replace("\\\n", " ").partition("/snakemake ")[2]
    arguments = shlex.split(line)
    options = cli.get_argument_parser().parse_args(arguments)
    assert list(options.targets) == [target]
    assert options.cores == 2
    assert "gpu" in options.resources
    assert options.config == ["study=multi30k", "table=table2"]
