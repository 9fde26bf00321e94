"""Killed and resumed trainings, compared with uninterrupted ones."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.file_io import PathManager

import fairseq_plugin  # noqa: F401  (changes fairseq's trainer)
from fairseq_plugin import resuming
from fairseq_plugin.checkpoints import Checkpoint
from tests import warm_process
from tests.fairseq_plugin.conftest import PLUGIN, ROOT, TRAIN, run
from tests.fairseq_plugin.killed_training import KilledAt

OPTIONS = [*TRAIN, "--arch=transformer_headpruned_tiny", "--es-heads=21", "--dropout=0.1"]

# For each training its options, and the lines of the log at which it is killed, one after another:
# each attempt goes on from the checkpoint that the one before it left.
KILLED_AT = {
    "between-epochs": (["--max-epoch=3"], ["begin training epoch 2", "begin training epoch 3"]),
    "inside-epochs": (
        ["--max-epoch=3", "--save-interval-updates=4"],
        [r'train_inner.*"num_updates": "5"', r'"num_updates": "11"', r'"num_updates": "17"'],
    ),
    "update-freq": (
        ["--max-epoch=4", "--save-interval-updates=1", "--update-freq=4"],
        [r'train_inner.*"num_updates": "2"', r'train_inner.*"num_updates": "5"'],
    ),
    "after-the-last-update": (
        ["--max-update=13", "--save-interval-updates=5", "--lr-scheduler=inverse_sqrt"],
        [r"Finished saving.*checkpoint_2_10", r"Saved checkpoint.*13 updates"],
    ),
    "epochs-of-their-own": (
        [
            *("--max-epoch=4", "--save-interval-updates=2", "--lr=1e-3,2e-3,3e-3"),
            *("--force-anneal=3", "--warmup-updates=3", "--update-freq=1,2", "--curriculum=2"),
            *("--encoder-layerdrop=0.3", "--skip-remainder-batch"),
        ],
        [r'"num_updates": "3"', r'"num_updates": "9"'],
    ),
    "plateau": (
        ["--max-epoch=6", "--lr-scheduler=reduce_lr_on_plateau", "--lr=0.03", "--lr-patience=1"],
        ["begin training epoch 2", "begin training epoch 4", "begin training epoch 5"],
    ),
    "patience": (
        ["--max-epoch=12", "--patience=1", "--lr=0.08"],
        ["begin training epoch 2", "Saved checkpoint.*epoch 3"],
    ),
    "gates": (
        [
            *("--max-epoch=3", "--criterion=label_smoothed_cross_entropy_with_l0"),
            *("--gates=ES,ED,EF,EL", "--l0-target=40%", "--save-interval-updates=2"),
            *("--update-freq=2", "--l0-warmup-updates=6"),
        ],
        [r'train_inner.*"num_updates": "4"', "begin training epoch 3"],
    ),
    "distillation": (
        [
            *("--max-epoch=2", "--criterion=label_smoothed_cross_entropy_with_distillation"),
            *("--distill-from={full}", "--distill-hidden=0.5", "--encoder-layerdrop=0.3"),
            "--save-interval-updates=2",
        ],
        [r'train_inner.*"num_updates": "5"'],
    ),
    "half-precision": (
        [
            *("--max-epoch=4", "--memory-efficient-fp16", "--fp16-scale-window=5"),
            "--fp16-init-scale=4",
        ],
        ["begin training epoch 2", "begin training epoch 4"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", KILLED_AT)
def test_a_killed_training_ends_with_the_weights_of_one_that_was_not(
    name: str, corpus: Path, full: Path, tmp_path: Path
):
    options, lines = KILLED_AT[name]
    own = [option.replace("{full}", str(full)) for option in options]
    flags = [str(corpus), "--user-dir", PLUGIN, *OPTIONS, *own]
    run("fairseq-train", *flags, "--save-dir", tmp_path / "whole")
    for line in lines:
        kill_at(line, *flags, "--save-dir", str(tmp_path / "killed"))
    run("fairseq-train", *flags, "--save-dir", tmp_path / "killed")
    for checkpoint in ("checkpoint_last.pt", "checkpoint_best.pt"):
        whole, killed = (
            Checkpoint.load(tmp_path / folder / checkpoint).state for folder in ("whole", "killed")
        )
        assert_equal(whole["model"], killed["model"])
        assert_equal(whole["last_optimizer_state"], killed["last_optimizer_state"])
        assert whole["extra_state"]["best"] == killed["extra_state"]["best"]
        assert whole["extra_state"]["headprune"] == killed["extra_state"]["headprune"]


def kill_at(line: str, *flags: str) -> None:
    """Train, and kill the process with signal 9 when a line of the log matches."""
    status, output = warm_process.run(
        ("fairseq-train", *flags),
        text=None,
        folder=ROOT,
        environment={**os.environ, "OMP_NUM_THREADS": "1"},
        timeout=600,
        main=KilledAt(line),
    )
    assert status == -signal.SIGKILL, output[-2000:]


def assert_equal(first: Any, second: Any) -> None:
    """Assert bitwise equality, also inside dictionaries and lists."""
    if isinstance(first, torch.Tensor):
        assert torch.equal(first, second)
    elif isinstance(first, dict):
        assert first.keys() == second.keys()
        for key in first:
            assert_equal(first[key], second[key])
    elif isinstance(first, list):
        assert len(first) == len(second)
        for one, other in zip(first, second, strict=True):
            assert_equal(one, other)
    else:
        assert first == second


def test_a_copy_of_a_checkpoint_is_whole_or_not_there(tmp_path: Path, monkeypatch):
    (tmp_path / "best.pt").write_text("new")
    (tmp_path / "last.pt").write_text("old")

    def half(source: str, target: str) -> None:
        Path(target).write_text("n")
        raise KeyboardInterrupt

    monkeypatch.setattr(resuming.shutil, "copyfile", half)
    with pytest.raises(KeyboardInterrupt):
        checkpoint_utils.PathManager.copy(str(tmp_path / "best.pt"), str(tmp_path / "last.pt"))
    assert (tmp_path / "last.pt").read_text() == "old"
    monkeypatch.undo()
    assert PathManager.copy(str(tmp_path / "best.pt"), str(tmp_path / "last.pt"), overwrite=True)
    assert (tmp_path / "last.pt").read_text() == "new"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["best.pt", "last.pt"]


def test_the_loss_scale_of_amp_is_kept():
    """The state of PyTorch's scaler, which fairseq does not save, is restored."""

    def trainer(**options: float) -> Any:
        scaler = torch.amp.GradScaler("cpu", **options)
        return SimpleNamespace(optimizer=SimpleNamespace(scaler=scaler))

    before, after = trainer(init_scale=64.0), trainer(init_scale=2.0)
    resuming.set_loss_scale_counters(after, resuming.loss_scale_counters(before))
    assert after.optimizer.scaler.get_scale() == 64.0
