"""Estimates of a study's cost, and studies cut to a budget."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from data_prep.lib.prepared import PreparedCorpus
from headprune import DataError, UsageError
from studies.budget import Cut, cut_to_budget, what_was_cut
from studies.calibrate import main as calibrate
from studies.calibrate import read_log
from studies.cost import Calibration, Job, Machine, cost_of, estimate
from studies.find import load_any
from studies.glue_study import MINILM, RESOURCE_DEFAULTS, GlueStudy, with_gpu
from studies.jobs import jobs_of, measured_flags, within_budget
from studies.plugin import running
from studies.study import Study

STUDIES = Path(__file__).parents[2] / "studies"

HOUR = Calibration(
    seconds_per_update={"translation": 36.0, "sst2": 3.6, "cola": 3.6},
    updates_per_epoch={"translation": 100, "sst2": 1000, "cola": 2000},
    model_bytes=10**9,
)
"""An epoch of translation takes an hour; one of SST-2 too, and one of CoLA two hours."""
ONE_CORE = Machine(cores=1)


REPEATED = "; those whose flags, data or plans have changed are repeated (jobs below)"


def test_a_length_is_epochs_or_updates() -> None:
    assert HOUR.hours("3ep") == 3
    assert HOUR.hours("0.5ep") == 0.5
    assert HOUR.hours("50up") == 0.5
    assert HOUR.hours("1ep", task="cola") == 2
    with pytest.raises(DataError, match="unlimited"):
        HOUR.hours("unlimited")


def test_as_many_trainings_run_at_a_time_as_there_are_cores() -> None:
    jobs = [Job(file=Path("a"), length="4ep", threads=2), Job(file=Path("b"), length="2ep")]
    jobs.append(Job(file=Path("c"), length="2ep", keeps_model=False))
    assert cost_of(jobs, HOUR, machine=Machine(cores=2)).hours == 4 + 1 + 1
    assert cost_of(jobs, HOUR, machine=Machine(cores=1)).hours == 8
    cost = cost_of(jobs, HOUR, machine=Machine(cores=4))
    assert (cost.trainings, cost.hours, cost.disk) == (3, 3, 2 * 10**9)
    assert str(cost) == "3 trainings, about 3.0 hours, 2.0 GB of models"


def test_jobs_share_the_gpus_of_one_machine() -> None:
    job = Job(file=Path("a"), length="4ep", threads=1, gpus=1)
    assert cost_of([job] * 3, HOUR, machine=Machine(cores=8, gpus=1)).hours == 12
    assert cost_of([job] * 3, HOUR, machine=Machine(cores=8, gpus=2)).hours == 6
    assert cost_of([job] * 3, HOUR, machine=Machine(cores=1, gpus=2)).hours == 12
    assert cost_of([job] * 3, HOUR, machine=Machine(cores=8)).hours == 1.5
    # A job without a GPU does not wait for one; one with more GPUs than there are takes them all.
    alone = Job(file=Path("b"), length="4ep", threads=1)
    many = Job(file=Path("c"), length="1ep", gpus=4)
    assert cost_of([alone, many], HOUR, machine=Machine(cores=8, gpus=1)).hours == 0.5 + 1
    assert str(Machine(cores=8, gpus=1)) == "on 8 cores and 1 GPU"
    assert str(Machine(cores=1)) == "on 1 core"


def test_on_a_cluster_the_hours_of_all_jobs_are_added_up(tmp_path: Path) -> None:
    jobs = [Job(file=tmp_path / name, length="4ep", threads=8, gpus=1) for name in "ab"]
    HOUR.save(tmp_path / "calibration.json")
    lines = estimate(jobs, tmp_path / "calibration.json", machine=Machine(cores=None, gpus=1))
    assert lines[1] == (
        "still to do: 2 trainings, about 8.0 hours, 2.0 GB of models, added up; jobs that run at "
        "the same time take less"
    )


def test_jobs_of_studies_need_the_gpus_of_their_resources(tmp_path: Path) -> None:
    def gpus(name: str, table: str) -> set[int]:
        study = load_any(STUDIES / f"{name}.yaml")
        return {job.gpus for job in jobs_of(study, [table], out=tmp_path, base=tmp_path)}

    assert gpus("wmt14.en-ru", "scratch") == gpus("glue.bert-base", "table4") == {1}
    assert gpus("multi30k", "scratch") == {0}


def test_a_grid_search_is_counted_once_a_task(tmp_path: Path) -> None:
    study = tmp_path / "study.yaml"
    study.write_text(
        """{name: g, runner: glue, model: minilm, seeds: [1], plans: [{percent: 50}],
        tasks: {sst2: {epochs: 3}, entailment: {}}, grid: {batch-sizes: "16,32"},
        resources: {grid: {threads: 2, gpu: 1}}}"""
    )
    jobs = jobs_of(load_any(study), [], out=tmp_path, base=tmp_path)
    searches = [job for job in jobs if job.file.parts[-3] == "grid"]
    assert [(job.task, job.trainings, job.threads, job.gpus) for job in searches] == [
        ("sst2", 2 * 4, 2, 1),
        ("entailment", 2 * 4, 2, 1),
    ]
    assert not any(job.keeps_model for job in searches)
    # Two models of each task; without the option, entailment has the two epochs of its default.
    assert len(jobs) == 2 + 2 * 2
    assert {(job.task, job.length) for job in jobs} == {("sst2", "3ep"), ("entailment", "2ep")}
    cost = cost_of([searches[0]], HOUR, machine=Machine(cores=2))
    assert (cost.trainings, cost.hours) == (8, 24)
    searches[0].file.parent.mkdir(parents=True)
    searches[0].file.write_text("")
    lines = estimate(jobs, tmp_path / "none.json", machine=Machine(cores=2))
    assert lines[0] == f"trainings: 20, of which 8 are done{REPEATED}"


def test_a_task_that_was_not_calibrated_is_named() -> None:
    with pytest.raises(DataError, match="the calibration has no mnli; delete it and calibrate"):
        HOUR.hours("1ep", task="mnli")


def test_a_calibration_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    HOUR.save(path)
    assert Calibration.load(path) == HOUR
    numbers = {"seconds_per_update": 3, "updates_per_epoch": 3, "model_bytes": 3}
    for content in ({}, numbers):
        path.write_text(json.dumps(content))
        with pytest.raises(DataError, match="no calibration; delete it"):
            Calibration.load(path)


def test_a_budget_asks_for_a_calibration(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="calibration.json: not there; a budget needs a calibrat"):
        Calibration.load(tmp_path / "calibration.json")


def test_a_dry_run_says_what_is_left_to_do(tmp_path: Path) -> None:
    study = load_any(STUDIES / "multi30k.yaml")
    jobs = jobs_of(study, ["table3"], out=tmp_path, base=tmp_path)
    assert sum(job.trainings for job in jobs) == 1 + 3 * (1 + 12)
    assert sum(job.translations for job in jobs) == 1 + 3 * (1 + 12 + 12)  # before fine-tuning too
    (tmp_path / "baseline").mkdir()
    (tmp_path / "baseline" / "model.pt").write_text("")
    calibration = tmp_path / "calibration.json"
    lines = estimate(jobs, calibration, machine=Machine(cores=2))
    assert lines[0] == f"trainings: 40, of which 1 are done{REPEATED}"
    assert "not known before a calibration" in lines[1] and str(calibration) in lines[1]
    HOUR.save(calibration)
    assert estimate(jobs, calibration, machine=Machine(cores=2))[1] == (
        "still to do: 39 trainings and 76 translations, about 19.5 hours of training, 39.0 GB of "
        "models, on 2 cores"
    )
    replace(HOUR, seconds_per_translation=360.0, checkpoint_bytes=3 * 10**9).save(calibration)
    (tmp_path / "baseline" / "generation.txt").write_text("")
    assert estimate(jobs, calibration, machine=Machine(cores=2))[1] == (
        "still to do: 39 trainings and 75 translations, about 23.3 hours, 39.0 GB of models and "
        "3.0 GB of checkpoints for each training, on 2 cores"
    )


def trainings_of(*arguments: Any, **options: Any) -> list[Job]:
    """The jobs without the translations."""
    return [job for job in jobs_of(*arguments, **options) if job.trainings]


def test_models_from_scratch_and_a_shared_baseline_are_counted(tmp_path: Path) -> None:
    long = load_any(STUDIES / "multi30k-long.yaml")
    jobs = trainings_of(long, [], out=tmp_path / "long", base=tmp_path / "base")
    assert [job.file for job in jobs][0] == tmp_path / "base" / "baseline" / "model.pt"
    assert {job.length for job in jobs} == {"10ep"}
    study = load_any(STUDIES / "multi30k.yaml")
    scratch = trainings_of(study, ["scratch"], out=tmp_path, base=tmp_path)
    assert sorted(job.length for job in scratch) == ["10ep"] * (1 + 9) + ["1ep"] * (3 + 9)


def test_figure_2_needs_one_model_of_each_row(tmp_path: Path) -> None:
    study = load_any(STUDIES / "glue.minilm.yaml")
    jobs = jobs_of(study, ["figure2"], out=tmp_path, base=tmp_path)
    assert len(jobs) == 17 and {job.task for job in jobs} == {"sst2"}
    assert all(job.keeps_model for job in jobs)
    table = jobs_of(study, ["table6"], out=tmp_path, base=tmp_path)
    assert len(table) == 5 * (1 + 4) * 3


def hours_of(cut: Cut) -> float:
    return len(cut.seeds) * len(cut.sizes)


@pytest.mark.parametrize(
    ("budget", "seeds", "sizes"),
    [
        (100, (1, 2, 3), (10, 20, 30, 40, 50, 60)),
        (18, (1, 2, 3), (10, 20, 30, 40, 50, 60)),
        (15, (1, 2, 3), (10, 20, 30, 50, 60)),
        (12, (1, 2), (10, 20, 30, 50, 60)),
        (6, (1, 2), (10, 30, 60)),
        (3, (1,), (10, 30, 60)),
        (1, (1,), (40,)),
    ],
)
def test_seeds_and_sizes_are_cut_evenly(
    budget: float, seeds: tuple[int, ...], sizes: tuple[int, ...]
) -> None:
    cut = cut_to_budget(budget, seeds=(1, 2, 3), sizes=[60, 50, 40, 30, 20, 10, 10], hours=hours_of)
    assert hours_of(cut) <= budget
    assert (cut.seeds, cut.sizes) == (seeds, sizes)


def test_a_budget_that_is_too_small_is_refused() -> None:
    with pytest.raises(UsageError, match="budget: 0.5 hours, but one seed of one row .* takes 1$"):
        cut_to_budget(0.5, seeds=(1, 2), sizes=[10, 20], hours=hours_of)


def test_what_was_cut_is_said() -> None:
    cut = Cut((1,), (10,))
    assert what_was_cut(cut, seeds=(1, 2, 3), labels=["25%", "50%"]) == (
        "budget: left out seeds 2, 3; rows 25%, 50%"
    )
    assert what_was_cut(cut, seeds=(1,), labels=[]) == "budget: nothing is left out"


def test_rows_of_one_size_stand_or_fall_together() -> None:
    study = load_any(STUDIES / "multi30k.yaml")
    part, line = within_budget(study, 20, tables=["table2"], calibration=HOUR, machine=ONE_CORE)
    assert isinstance(part, Study)
    keeps = [row.keep for row in part.tables["table2"].rows]
    assert len(keeps) % 2 == 0 and 0 < len(keeps) < 10
    assert keeps[0] == {"ES": "888444", "ED": "444888", "DS": "888444"}
    assert line.startswith("budget: left out seeds ") and "rows ES=" in line
    jobs = jobs_of(part, ["table2"], out=Path(), base=Path())
    assert 10 < cost_of(jobs, HOUR, machine=ONE_CORE).hours <= 20
    again, _ = within_budget(part, 20, tables=["table2"], calibration=HOUR, machine=ONE_CORE)
    assert again == part


def test_rows_with_gates_fall_with_others_of_their_size() -> None:
    study = load_any(STUDIES / "multi30k-shipped.yaml")
    assert isinstance(study, Study)
    study = replace(study, rows=(*study.rows, *study.tables["gates"].rows))
    study = replace(study, whole=(study.row("25pct"), *study.tables["gates"].rows))
    part, line = within_budget(study, 50, tables=[], calibration=HOUR, machine=ONE_CORE)
    labels = [row.label for row in part.whole]
    assert 0 < len(labels) < 3 and any(f"{row.label}" in line for row in study.whole)
    assert all(row.label in labels or row.label in line for row in study.whole)


def test_a_study_of_glue_is_cut_too() -> None:
    study = load_any(STUDIES / "glue.yaml")
    part, line = within_budget(study, 60, tables=[], calibration=HOUR, machine=ONE_CORE)
    assert len(part.whole) < len(study.whole) and "left out" in line
    assert cost_of(jobs_of(part, [], out=Path(), base=Path()), HOUR, machine=ONE_CORE).hours <= 60


def test_figure_2_stays_where_a_budget_leaves_no_row_of_changes(tmp_path: Path) -> None:
    path = tmp_path / "study.yaml"
    path.write_text(
        """{name: g, runner: glue, model: some/name, shape: {ES: 12x6}, tasks: {sst2: {epochs: 1}},
        changes: {task: sst2, rows: [10%]},
        tables: [{name: figure2, plans: [{percent: 10}, {percent: 50}, {percent: 90}]}]}"""
    )
    study = load_any(path)
    part, _ = within_budget(study, 1, tables=["figure2"], calibration=HOUR, machine=ONE_CORE)
    assert isinstance(part, GlueStudy)
    assert part.changed_runs() == []
    assert part.changed_runs("figure2") == ["sst2/50pct/remove/seed1"]
    assert part.runs_for(["figure2"]) == part.changed_runs("figure2")


def test_a_calibration_with_other_flags_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "calibration.json"
    study = load_any(STUDIES / "multi30k.yaml")
    assert isinstance(study, Study)
    flags = measured_flags(study)
    longer = replace(study.finetune, flags=(*study.finetune.flags, "--max-epoch", "9"))
    assert measured_flags(replace(study, finetune=longer)) == flags
    larger = replace(study.finetune, flags=(*study.finetune.flags, "--max-tokens", "9"))
    changed = measured_flags(replace(study, finetune=larger))
    replace(HOUR, flags=flags).save(path)
    Calibration.load(path).require_flags(flags, path)
    with pytest.raises(DataError, match="calibration.json: measured before the flags .* delete it"):
        Calibration.load(path).require_flags(changed, path)
    assert len(estimate([], path, machine=ONE_CORE, flags=flags)) == 2
    assert "warning: " in estimate([], path, machine=ONE_CORE, flags=changed)[2]
    # Files of older versions do not say their flags.
    content = json.loads(path.read_text())
    del content["flags"]
    path.write_text(json.dumps(content))
    Calibration.load(path).require_flags(changed, path)
    glue = measured_flags(load_any(STUDIES / "glue.minilm.yaml"))
    assert glue["sst2"][:2] == ["--model", MINILM] and "--epochs" not in glue["sst2"]


def test_a_calibration_trains_on_as_many_gpus_as_the_study(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs: list[Any] = []

    def train(job: Any, flags: list[str], *, model: Path, **options: Any) -> None:
        jobs.append(job)
        job.log.write_text(LOG)
        model.write_text("")
        (model.parent / "training").mkdir()
        for name in ("checkpoint_last.pt", "checkpoint_best.pt"):
            (model.parent / "training" / name).write_text("four")

    def generate(job: Any, flags: list[str], *, output: Path, **options: Any) -> None:
        assert flags[-6:] == ["--min-len", "12", "--max-len-a", "0", "--max-len-b", "12"]
        output.write_text("")

    monkeypatch.setattr(running, "train", train)
    monkeypatch.setattr(running, "generate", generate)
    monkeypatch.setattr(PreparedCorpus, "load", lambda data: SimpleNamespace(**CORPUS))
    path = tmp_path / "calibration.json"
    arguments = ["--data", "data", "--processes", "4", "--output", str(path)]
    assert calibrate([str(STUDIES / "multi30k.yaml"), *arguments]) == 0
    assert [job.processes for job in jobs] == [4]
    study = load_any(STUDIES / "multi30k.yaml")
    calibration = Calibration.load(path)
    assert calibration.flags == measured_flags(study)
    assert calibration.checkpoint_bytes == 8 and calibration.seconds_per_translation is not None


CORPUS = {"binarised": Path("bin"), "languages": ("en", "de"), "test_length": 12.3}
LOG = """\
| epoch 001:     10 / 253 loss=13.1, nll_loss=13, ppl=8400, wps=900, ups=0.5, wpb=1800, lr=0.1
| epoch 001:     20 / 253 loss=13.1, nll_loss=13, ppl=8400, wps=3600, ups=2.0, wpb=1800, lr=0.1
| epoch 001:     30 / 253 loss=13.1, nll_loss=13, ppl=8400, wps=7200, ups=4.0, wpb=1800, lr=0.1
| epoch 001:     40 / 253 loss=13.1, nll_loss=13, ppl=8400, wps=7200, ups=4.0, wpb=1800, lr=0.1
"""


def test_the_log_of_a_calibration_is_read(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text(LOG)
    assert read_log(log) == (0.25, 253)
    log.write_text(LOG.splitlines()[0])
    assert read_log(log) == (2.0, 253)
    # An update of 200 seconds, and of more: fairseq rounds the updates a second to 0.
    log.write_text(LOG.splitlines()[0].replace("wps=900, ups=0.5", "wps=9, ups=0"))
    assert read_log(log) == (200.0, 253)
    log.write_text("nothing")
    with pytest.raises(DataError, match="no updates to measure"):
        read_log(log)


def test_a_fine_tuning_of_glue_takes_one_gpu() -> None:
    resources = with_gpu(RESOURCE_DEFAULTS, 1)
    assert {rule for rule, each in resources.items() if each.gpu} == {"glue", "grid"}
    with pytest.raises(DataError, match="gpus: 4: a fine-tuning of GLUE takes one GPU; give"):
        with_gpu(RESOURCE_DEFAULTS, 4)
