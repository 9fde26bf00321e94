"""The parts of a training job that a kill or a changed study puts to the test."""

from __future__ import annotations

import argparse
import fcntl
import json
import re
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import pytest
import torch

from fairseq_plugin import running, training_folder, worker
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.processes import with_processes
from headprune.errors import DataError, UsageError
from tests.fairseq_plugin.conftest import PLUGIN, TRAIN


def identity(data: Path, flags: list[str], *, depends: list[Path] | None = None) -> str:
    data.mkdir(exist_ok=True)
    return training_folder.identity(flags, data=data, depends=depends or [], precision="fp32")


def checkpoint(path: Path, content: str = "weights") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", content * 100)
    return path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "2026-01-01 00:00:00 | INFO | valid | epoch 012 | valid on 'valid' subset | loss 4.2 | "
            "nll_loss 2.6 | ppl 6.1 | wps 900 | num_updates 1000 | best_loss 4.2",
            "epoch 12 | valid ppl 6.1",
        ),
        (
            "2026-01-01 00:00:00 | INFO | train_inner | epoch 003:     50 / 249 loss=7.1, "
            "nll_loss=6.2, ppl=75.3, wps=2000, num_updates=550",
            "epoch 3 | batch 50 of 249 | ppl 75.3",
        ),
        ("2026-01-01 00:00:00 | INFO | train | epoch 003 | loss 7 | ppl 70", None),
        ("a traceback, say", None),
    ],
)
def test_progress_in_short(line: str, said: str | None) -> None:
    assert running.progress_line(line) == said


@pytest.mark.parametrize("given", [None, "ACTIVE"])
def test_waiting_threads_give_their_core_away(
    given: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "python"
    program.write_text("#!/bin/sh\nenv\n")
    program.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(program))
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY", raising=False)
    else:
        monkeypatch.setenv("OMP_WAIT_POLICY", given)
    job = running.Job(label="made up", log=tmp_path / "log", threads=2)
    running._run(job, "train", [])
    log = job.log.read_text()
    assert f"OMP_WAIT_POLICY={given or 'PASSIVE'}\n" in log and "OMP_NUM_THREADS=2\n" in log


def test_a_longer_training_is_the_same_training(tmp_path: Path) -> None:
    short = identity(tmp_path / "bin", ["--lr", "1", "--max-epoch", "2"])
    longer = identity(tmp_path / "bin", ["--lr", "1", "--max-epoch", "9"])
    other = identity(tmp_path / "bin", ["--lr", "2", "--max-epoch", "2"])
    assert short == longer
    assert short != other


def test_a_training_in_another_place_is_the_same_training(tmp_path: Path) -> None:
    flags = ["--user-dir", "/here/fairseq_plugin", "--head-plan", "/here/plan.json", "--lr", "1"]
    moved = [flag.replace("/here", "/there") for flag in flags]
    assert identity(tmp_path / "bin", flags) == identity(tmp_path / "bin", moved)


def test_other_data_or_another_start_is_another_training(tmp_path: Path) -> None:
    start, data = tmp_path / "model.pt", tmp_path / "bin"
    start.write_bytes(b"one")
    first = identity(data, [], depends=[start])
    start.write_bytes(b"two")
    second = identity(data, [], depends=[start])
    (data / "dict.en.txt").write_text("a 1\n")
    third = identity(data, [], depends=[start])
    assert len({first, second, third}) == 3


def test_another_test_set_is_the_same_training(tmp_path: Path) -> None:
    data = tmp_path / "bin"
    first = identity(data, [])
    (data / "test1.en-ru.en.bin").write_text("a sentence")
    assert identity(data, []) == first
    # The marks of older versions include the test sets; they are still known.
    old = partial(training_folder.identity, [], data=data, depends=[], precision="fp32")
    (tmp_path / "training.json").write_text(old(test_sets=True))
    last = checkpoint(tmp_path / "checkpoint_last.pt")
    known = partial(old, test_sets=True)
    training_folder.forget_unless_same(tmp_path, first, adopt=False, older_mark=known)
    assert last.exists() and (tmp_path / "training.json").read_text() == first != known()


@pytest.mark.parametrize(
    ("flags", "reason"),
    [
        (["--max-epoch", "2"], "it has run for 4 epochs, more than --max-epoch 2"),
        (["--max-update=399"], "it has run for 400 updates, more than --max-update 399"),
        (["--max-epoch", "4"], None),
        (["--max-epoch", "9", "--max-update", "400"], None),
        (["--max-epoch", "0"], None),  # no limit
    ],
)
def test_a_training_that_is_made_shorter_begins_anew(
    flags: list[str], reason: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # At the end of an epoch, fairseq saves the number of the next.
    iterator = {"epoch": 5, "iterations_in_epoch": 0}
    state = {
        "optimizer_history": [{"num_updates": 400}],
        "extra_state": {"train_iterator": iterator},
    }
    last, best = (tmp_path / f"checkpoint_{name}.pt" for name in ("last", "best"))
    for path in (last, best):
        torch.save(state, path)
    training_folder.forget_if_longer(tmp_path, flags)
    assert last.exists() == best.exists() == (reason is None)
    note = "" if reason is None else f"note: {reason}; beginning anew\n"
    assert capsys.readouterr().out == note


def test_checkpoints_stay_only_while_the_training_is_the_same(tmp_path: Path) -> None:
    last = checkpoint(tmp_path / "checkpoint_last.pt")
    training_folder.forget_unless_same(tmp_path, "a", adopt=False)
    assert not last.exists()  # Of whatever training that was.
    checkpoint(last)
    training_folder.forget_unless_same(tmp_path, "a", adopt=False)
    assert last.exists()
    training_folder.forget_unless_same(tmp_path, "b", adopt=False)
    assert not last.exists()


def test_checkpoints_of_older_versions_are_adopted_only_where_nothing_describes_them(
    tmp_path: Path,
) -> None:
    last = checkpoint(tmp_path / "checkpoint_last.pt")
    training_folder.forget_unless_same(tmp_path, "a", adopt=True)
    assert last.exists()
    training_folder.forget_unless_same(tmp_path, "b", adopt=True)
    assert not last.exists()


def test_a_last_checkpoint_cut_short_is_replaced_by_the_best(tmp_path: Path) -> None:
    best = checkpoint(tmp_path / "checkpoint_best.pt")
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(best.read_bytes()[: best.stat().st_size // 2])
    training_folder.mend_last_checkpoint(tmp_path)
    assert last.read_bytes() == best.read_bytes()


def test_a_last_checkpoint_cut_short_goes_where_there_is_no_better(tmp_path: Path) -> None:
    last = tmp_path / "checkpoint_last.pt"
    last.write_bytes(b"PK\x03\x04 cut")
    training_folder.mend_last_checkpoint(tmp_path)
    assert not last.exists()


def test_a_whole_last_checkpoint_is_left_alone(tmp_path: Path) -> None:
    checkpoint(tmp_path / "checkpoint_best.pt", "older")
    last = checkpoint(tmp_path / "checkpoint_last.pt", "newer")
    before = last.read_bytes()
    training_folder.mend_last_checkpoint(tmp_path)
    assert last.read_bytes() == before


def test_the_folder_is_held_by_the_training_after_its_job_was_killed(tmp_path: Path) -> None:
    code = "import sys; print('held', flush=True); sys.stdin.read()"
    with running.alone_in(tmp_path) as lock:
        child = subprocess.Popen(
            [sys.executable, "-c", code],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=(lock,),
        )
        assert child.stdout is not None
        child.stdout.readline()
    # This process has let go of the folder, its child has not.
    with (tmp_path / "lock").open("w") as again:
        with pytest.raises(BlockingIOError):
            fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        child.communicate(b"")
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_processes_share_the_steps_of_an_update() -> None:
    flags = ["--max-tokens", "100", "--update-freq", "8", "--lr", "1"]
    assert with_processes(flags, 1) == flags
    assert with_processes(flags, 4)[3] == "2"
    with pytest.raises(UsageError, match="3 GPUs: --update-freq is 8, no multiple of it"):
        with_processes(flags, 3)
    with pytest.raises(UsageError, match="2 GPUs: --update-freq is 1"):
        with_processes(flags[:2], 2)
    assert with_processes(["--update-freq=8", "--cpu"], 2) == ["--update-freq=4", "--cpu"]
    assert with_processes(["--update-freq", "4,2"], 2) == ["--update-freq", "2,1"]
    for steps in ("4,1", "x", "[4]"):
        with pytest.raises(UsageError, match=re.escape(f"--update-freq is {steps}, no multiple")):
            with_processes([f"--update-freq={steps}"], 2)


class _Started(Exception):
    """A training would start now."""


def started_flags(
    monkeypatch: pytest.MonkeyPatch, corpus: Path, folder: Path, *own: str, processes: int = 1
) -> argparse.Namespace:
    """The options that fairseq-train reads from its command line on a machine with four GPUs."""
    from fairseq import options

    def start(flags: Sequence[str] | None = None, **_: object) -> None:
        raise _Started(list(flags or sys.argv[1:]))

    monkeypatch.setattr("fairseq_cli.train.cli_main", start)
    monkeypatch.setattr(worker, "_torchrun", start)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    flags = ["--user-dir", PLUGIN, "--arch=transformer_headpruned_tiny", *TRAIN, *own]
    given = ["train", "--data", str(corpus), "--model", str(folder / "model.pt")]
    given += ["--save-dir", str(folder), "--processes", str(processes), "--", *flags]
    with pytest.raises(_Started) as started:
        worker.train(*worker.parse(given))
    parsed: argparse.Namespace = options.parse_args_and_arch(
        options.get_training_parser(), input_args=started.value.args[0]
    )
    return parsed


def test_one_process_takes_one_of_the_machines_gpus(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flags = started_flags(monkeypatch, corpus, tmp_path, "--max-epoch=1")
    assert flags.distributed_world_size == 1
    flags = started_flags(monkeypatch, corpus, tmp_path, "--distributed-world-size=2")
    assert flags.distributed_world_size == 2  # the user's own


def test_shares_of_a_training_are_the_same_for_several_processes(
    corpus: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = ["--max-update=5 epochs", "--warmup-updates=20%", "--lr-scheduler=inverse_sqrt"]
    own += ["--update-freq=2"]
    one, two = (
        started_flags(monkeypatch, corpus, tmp_path, *own, processes=number) for number in (1, 2)
    )
    assert (one.max_update, one.warmup_updates) == (two.max_update, two.warmup_updates)
    assert (one.update_freq, two.update_freq) == ([2], [1])


def test_the_facts_of_a_training_name_the_metric_that_chose_its_checkpoint(
    full: Path, tmp_path: Path
) -> None:
    model = tmp_path / "model.pt"
    training_folder.finish(full.parent, model, resumed=False)
    facts = json.loads(model.with_suffix(".json").read_text())
    assert facts["best_metric"] == "loss" and facts["best_valid_loss"] > 0


@pytest.mark.slow
def test_a_shorter_training_is_the_one_of_its_length(corpus: Path, tmp_path: Path) -> None:
    def train(epochs: int) -> dict[str, object]:
        job, model = running.Job(label="x", log=tmp_path / "log", threads=1), tmp_path / "model.pt"
        own = [flag for flag in TRAIN if flag not in ("--cpu", "--log-format=json")]
        flags = ["--user-dir", PLUGIN, "--arch", "transformer_headpruned_tiny", *own]
        flags += ["--log-format", "simple", "--max-epoch", str(epochs)]
        running.train(job, flags, data=corpus, languages=None, model=model, keep_checkpoints=True)
        facts: dict[str, object] = json.loads(model.with_suffix(".json").read_text())
        return facts

    short = train(1)
    longer = train(2)
    assert longer["resumed"] and longer["best_epoch"] == 2
    again = train(1)
    assert again == short and not again["resumed"]


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="takes as many GPUs as processes")
def test_two_processes_train_the_model_of_one(corpus: Path, tmp_path: Path) -> None:
    own = [flag for flag in TRAIN if flag != "--cpu"]
    flags = ["--user-dir", PLUGIN, "--arch", "transformer_headpruned_tiny", *own]
    flags += ["--max-update", "4", "--update-freq", "2", "--clip-norm", "1.0"]
    facts, states = [], []
    for processes in (1, 2):
        folder = tmp_path / str(processes)
        job = running.Job(label="x", log=folder / "log", threads=1, processes=processes)
        model = folder / "model.pt"
        running.train(job, flags, data=corpus, languages=None, model=model)
        facts.append(json.loads(model.with_suffix(".json").read_text()))
        states.append(Checkpoint.load(model).state["model"])
    assert facts[0]["best_updates"] == facts[1]["best_updates"]
    assert facts[0]["best_valid_loss"] == pytest.approx(facts[1]["best_valid_loss"], abs=2e-3)
    for name, tensor in states[0].items():
        if not name.endswith("k_proj.bias"):  # has no gradient but rounding errors
            torch.testing.assert_close(tensor, states[1][name], atol=1e-4, rtol=1e-4)


@pytest.mark.slow
@pytest.mark.skipif(torch.cuda.is_available(), reason="takes as many GPUs as processes")
def test_an_error_of_one_of_two_processes_is_named(corpus: Path, tmp_path: Path) -> None:
    own = [flag for flag in TRAIN if flag != "--cpu"]
    flags = ["--user-dir", PLUGIN, "--arch", "transformer_headpruned_tiny", *own]
    flags += ["--max-update", "4", "--update-freq", "2", "--valid-subset", "missing"]
    job = running.Job(label="x", log=tmp_path / "log", threads=1, processes=2)
    with pytest.raises(DataError, match="status 1: FileNotFoundError: Dataset not found: missing"):
        running.train(job, flags, data=corpus, languages=None, model=tmp_path / "model.pt")
