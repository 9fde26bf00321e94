"""The tiny study, from made-up text to table and figure, killed on its way."""

from __future__ import annotations

import csv
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from headprune import DataError, HeadPlan
from headprune.origin import Origin
from studies.fairseq_flags import require_good_flags
from studies.study import load_study

ROOT = Path(__file__).parents[2]
STUDIES = ROOT / "studies"

pytest.importorskip("fairseq", reason="studies train with fairseq")


HOSTILE = """it's "a" folder; $(touch executed) `touch executed` & *"""
"""A name that a shell would read as several commands."""


def command(
    study: Path | str, out: Path | str, *options: str, studies: Path = STUDIES
) -> list[str]:
    return [
        *(sys.executable, "-m", "snakemake", "-s", str(studies / "Snakefile"), "--cores", "2"),
        *("--config", f"study={study}", f"out={out}", *options),
    ]


def run(
    study: Path | str,
    out: Path | str,
    *options: str,
    studies: Path = STUDIES,
    cwd: Path = ROOT,
    **environment: str,
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(study, out, *options, studies=studies),
        cwd=cwd,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def copied_checkout(folder: Path) -> Path:
    """A checkout in another folder; its `studies`."""
    for name in ("headprune", "fairseq_plugin", "hf_plugin", "data_prep", "studies"):
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, folder / name, ignore=ignored)
    return folder / "studies"


@pytest.mark.parametrize("kind", ["tiny", "tiny, trained", "glue"])
def test_no_text_of_the_user_reaches_the_shell(kind: str, tmp_path: Path) -> None:
    studies = copied_checkout(tmp_path / HOSTILE)
    checkout = studies.parent
    data = tmp_path / f"data {HOSTILE}"
    data.mkdir()
    # Stand-ins for the programs, which only write down how they were called.
    for program in (studies / "fairseq_job.py", checkout / "headprune" / "cli" / "__init__.py"):
        shutil.copy(ROOT / "tests" / "studies" / "stub.py", program)
    script = checkout / "data_prep" / "numbers.sh"
    script.write_text(f"#!{sys.executable}\n" + (ROOT / "tests/studies/stub.py").read_text())
    study = yaml.safe_load((STUDIES / f"{kind.split(',')[0]}.yaml").read_text())
    study["description"] = f"{HOSTILE} {{row}}"
    study["plans"] = [{"percent": 50, "label": f"50% {HOSTILE} {{x}}"}]
    study["seeds"] = [1]
    trained = tmp_path / f"{HOSTILE}.pt"
    if kind.startswith("tiny"):
        study["data"]["name"] = HOSTILE
        study["data"]["args"]["note"] = HOSTILE
        study["finetune"]["tensorboard-logdir"] = HOSTILE
        study["plans"].append({"percent": 50, "method": "l0-gates", "label": f"gates {HOSTILE}"})
        if kind != "tiny":
            trained.touch()
            study |= {"train": None, "baseline_model": str(trained)}
    else:
        study["tasks"] = {"sst2": {"max-train-examples": 5}}
        study["changes"] = {"task": "sst2", "rows": [f"50% {HOSTILE} {{x}}"]}
    path = studies / f"{HOSTILE}.yaml"
    path.write_text(yaml.safe_dump(study))

    record = tmp_path / "record"
    work = tmp_path / "work"
    work.mkdir()
    done = run(path, HOSTILE, f"data_dir={data}", studies=studies, cwd=work, RECORD=str(record))
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(entry.name for entry in work.iterdir()) == [".snakemake", HOSTILE]
    assert not list(tmp_path.rglob("executed"))
    calls = [json.loads(line) for line in record.read_text().splitlines()]
    (report,) = [call for call in calls if call[0] == "report"]
    assert report[report.index("--title") + 1] == f"{HOSTILE} {{row}}"
    assert report[report.index("--output-dir") + 1] == HOSTILE
    if kind.startswith("tiny"):
        assert "note: waiting for another preparation" in done.stderr
        (prepare,) = [call for call in calls if "--out" in call]
        assert prepare[prepare.index("--out") + 1] == str(work / HOSTILE / "data")
        assert prepare[prepare.index("--from-dir") + 1] == str(data)
        assert prepare[prepare.index("--note") + 1] == HOSTILE
        (train,) = [call for call in calls if "control seed 1" in call and call[0] == "train"]
        start = next(call for call in calls if "baseline" in call)
        assert start[0] == ("train" if kind == "tiny" else "copy")
        if kind != "tiny":
            assert start[start.index("--checkpoint") + 1] == str(trained)
            # The same file with another time, as after a checkout, repeats nothing.
            os.utime(trained, (time.time() + 60, time.time() + 60))
            again = run(path, HOSTILE, f"data_dir={data}", "-n", studies=studies, cwd=work)
            assert "Nothing to be done" in again.stdout + again.stderr
            trained.write_bytes(b"another model")
            again = run(path, HOSTILE, f"data_dir={data}", "-n", studies=studies, cwd=work)
            assert re.search(r"^finetune +2$", again.stdout + again.stderr, re.MULTILINE)
            study["baseline_model"] = str(work / HOSTILE / "baseline" / "model.pt")
            path.write_text(yaml.safe_dump(study))
            inside = run(path, HOSTILE, studies=studies, cwd=work)
            assert inside.returncode != 0 and (work / HOSTILE / "baseline" / "model.pt").exists()
            assert "whose files the study replaces; copy it" in inside.stdout + inside.stderr
        (gates,) = [call for call in calls if "--closed-plan" in call]
        plan = gates[gates.index("--closed-plan") + 1]
        assert f"--plan {plan} " in " ".join(next(c for c in calls if "bleu" in c and plan in c))
        assert gates[gates.index("--gates") + 1] == "ES,ED,DS"
        assert gates[gates.index("--l0-target") + 1] == "50.0%" and "--head-form" not in gates
        assert train[train.index("--user-dir") + 1] == str(checkout / "fairseq_plugin")
        assert train[train.index("--tensorboard-logdir") + 1] == HOSTILE
        assert {call[call.index("--label") + 1] for call in calls if "--label" in call} >= {
            "baseline",
            "control seed 1",
            "baseline: translation",
        }
        assert sum("--head-form" in call[: call.index("--")] for call in calls if "--" in call) == 1
    else:
        glue = [call for call in calls if call[0] == "glue"]
        assert len(glue) == 2 and all(f"--data-dir={data}" in call for call in glue)
        assert all("--overwrite" in call for call in glue)
        assert any(f"--row=50% {HOSTILE} {{x}}" in call for call in glue)
        assert (work / HOSTILE / "changes.md").is_file()
        assert len(list((work / HOSTILE).glob("models/**/model/config.json"))) == 1


@pytest.mark.parametrize(
    "study",
    ["demo", "enru-shipped", "glue-mean", "glue.bert-base", "multi30k-shipped", "wmt14.en-ru"],
)
def test_a_study_of_each_kind_plans_its_jobs(study: str, tmp_path: Path) -> None:
    done = run(study, tmp_path / "out", "-n")
    assert done.returncode == 0, done.stderr
    assert re.search(r"^report +1 *$", done.stdout + done.stderr, re.MULTILINE)
    assert not (tmp_path / "out").exists()


def test_a_mistake_in_a_study_is_named(tmp_path: Path) -> None:
    path = tmp_path / "wrong.yaml"
    path.write_text("name: wrong\nbogus: 1\n")
    done = run(path, tmp_path / "out", "-n")
    assert done.returncode != 0
    assert f"{path}: unknown key: bogus" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("section", "flags", "message"),
    [
        ("finetune", {"lrr": 1}, "finetune: fairseq-train: unrecognized arguments: --lrr 1"),
        ("train", {"optimizer": "adm"}, "train: fairseq-train: argument --optimizer: invalid"),
        ("model", {"encoder-layer": 2}, "model: fairseq-train: unrecognized arguments: --encoder"),
        ("generate", {"bema": 5}, "generate: fairseq-generate: unrecognized arguments: --bema 5"),
    ],
)
def test_a_flag_that_fairseq_does_not_know_is_named_before_any_work(
    section: str, flags: dict[str, object], message: str, tmp_path: Path
) -> None:
    study = yaml.safe_load((STUDIES / "tiny.yaml").read_text())
    study[section] = {**study.get(section, {}), **flags}
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    with pytest.raises(DataError) as caught:
        require_good_flags(load_study(path), path)
    assert str(caught.value).startswith(f"{path}: {message}")


def test_flags_are_checked_when_snakemake_reads_a_study_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    study = yaml.safe_load((STUDIES / "tiny.yaml").read_text())
    study["finetune"]["lrr"] = 1
    path = tmp_path / "study.yaml"
    path.write_text(yaml.safe_dump(study))
    done = run(path, tmp_path / "out")
    assert done.returncode != 0 and not (tmp_path / "out").exists()
    assert "unrecognized arguments: --lrr 1; did you mean --lr?" in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    good = load_study(STUDIES / "tiny.yaml")
    require_good_flags(good, path)
    monkeypatch.setattr("studies.questions.subprocess.run", None)
    require_good_flags(good, path)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("data_dir=5", "--config data_dir: snakemake reads the value as a number"),
        ("data_dir=/no/where", "data_dir: there is no folder /no/where"),
        ("out=runs/{row}", "out: 'runs/{row}' holds '{'"),
    ],
)
def test_a_setting_that_makes_no_sense_is_named(setting: str, message: str, tmp_path: Path) -> None:
    done = run("glue", tmp_path / "out", setting, "-n")
    assert done.returncode != 0
    assert message in done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr


def test_a_mistaken_setting_is_named(tmp_path: Path) -> None:
    done = run("glue", tmp_path / "out", "data-dir=GLUE", "-n")
    assert done.returncode != 0
    assert (
        "--config data-dir: there are study, table, out, base, data_dir and budget"
        in done.stdout + done.stderr
    )


def test_glue_data_can_be_named_on_the_command_line(tmp_path: Path) -> None:
    data = tmp_path / "GLUE"
    mistaken = run("glue", tmp_path / "out", f"data_dir={data}", "-n")
    assert mistaken.returncode != 0
    assert f"data_dir: there is no folder {data}" in mistaken.stdout + mistaken.stderr
    data.mkdir()
    relative = os.path.relpath(data, ROOT)  # where snakemake is run
    done = run("glue", tmp_path / "out", f"data_dir={relative}", "-n", "-p", "--quiet", "host")
    assert done.returncode == 0, done.stderr
    commands = [line for line in done.stdout.splitlines() if "command=glue" in line]
    assert commands and all(f"--data-dir={data}" in line for line in commands)
    control = next(line for line in commands if "--kind=control" in line)
    assert "--select=none" in control and "--form" not in control
    done = run("multi30k", tmp_path / "out", f"data_dir={data}", "-n", "-p", "--quiet", "host")
    assert f"--from-dir {data}" in done.stdout + done.stderr


# A training waits at the beginning of its fourth epoch to be killed.
STOP_IN_EPOCH_4 = """
import logging, signal
handle = logging.Logger.handle
def stop(logger, record):
    handle(logger, record)
    while record.getMessage() == "begin training epoch 4":
        signal.pause()
logging.Logger.handle = stop
"""


@pytest.mark.slow
def test_killed_in_a_training_it_goes_on_from_there_to_the_table(tmp_path: Path) -> None:
    study = yaml.safe_load((STUDIES / "tiny.yaml").read_text())
    study["train"]["max-epoch"] = 6
    study["seeds"] = [1]
    study["plans"].append({"percent": 75, "method": "l0-gates", "components": ["ES"]})
    # fairseq, too, meets paths with spaces and quotes.
    studies = copied_checkout(tmp_path / "it's a checkout")
    path, out = tmp_path / "tiny.yaml", tmp_path / HOSTILE
    path.write_text(yaml.safe_dump(study))
    log = out / "logs" / "baseline" / "train.log"

    (tmp_path / "stop").mkdir()
    (tmp_path / "stop" / "sitecustomize.py").write_text(STOP_IN_EPOCH_4)
    places = [str(tmp_path / "stop"), *filter(None, [os.environ.get("PYTHONPATH")])]
    with (tmp_path / "first.log").open("wb") as words:
        first = subprocess.Popen(
            command(path, out),
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(places)},
            stdout=words,
            stderr=words,
            start_new_session=True,
        )
        while not (log.exists() and "begin training epoch 4" in log.read_text()):
            assert first.poll() is None, (tmp_path / "first.log").read_text()
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGKILL)
        first.wait()
    assert not (out / "baseline" / "model.pt").exists()

    second = run(path, out, studies=studies)
    assert second.returncode == 0, second.stdout + second.stderr
    begun = re.findall(r"begin training epoch (\d+)", log.read_text())
    assert begun.count("1") == begun.count("2") == 1
    assert begun[-1] == "6"

    assert not list(tmp_path.rglob("executed")) and not (ROOT / "executed").exists()

    facts = {
        path.parent.relative_to(out).as_posix(): json.loads(path.read_text())["training"]
        for path in out.rglob("result.json")
    }
    assert facts["baseline"]["resumed"] is True
    assert facts["finetuned/control/seed1"]["resumed"] is False
    assert len(facts["baseline"]["curve"]["valid"]) == 6  # epochs, resumed ones too

    table = json.loads((out / "table.json").read_text())
    gates, half = table["rows"]
    assert (gates["label"], half["label"]) == ("75% ES l0-gates", "50%")
    assert half["seeds"] == gates["seeds"] == table["control"]["seeds"] == [1]
    assert half["parameters"] < gates["parameters"] < table["control"]["parameters"]
    assert half["before"]["n"] == 1
    plan = HeadPlan.load(out / "gates" / "75pct-ES-l0-gates" / "seed1" / "plan.json")
    assert {name: sum(counts) for name, counts in plan.counts.items()} == {
        "ES": 2,
        "ED": 8,
        "DS": 8,
    }
    assert plan.origin == Origin(method="l0-gates", seed=1, budget="75%")
    assert table["sentences"] == study["data"]["args"]["test"]
    with (out / "table.csv").open() as file:
        assert len(list(csv.DictReader(file))) == 4
    for name in ("table.md", "figure.png", "figure.svg", "report.html"):
        assert (out / name).stat().st_size > 0
    assert "Training curves" in (out / "report.md").read_text()
    # Only what resuming needs is gone.
    assert not list(out.glob("finetuned/*/*/training/*.pt"))
    assert len(list(out.glob("finetuned/*/*/model.pt"))) == 2

    before = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()}
    again = run(path, out, studies=studies)
    assert again.returncode == 0
    assert {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file()} == before

    # Another seed adds to what is there and repeats nothing.
    study["seeds"] = [1, 2]
    path.write_text(yaml.safe_dump(study))
    more = run(path, out, "-n", studies=studies)
    counts = dict(re.findall(r"^(\w+) +(\d+)$", more.stdout + more.stderr, re.MULTILINE))
    assert counts["finetune"] == "2" and counts["gates"] == "1"
    assert "baseline" not in counts and "prepare" not in counts
