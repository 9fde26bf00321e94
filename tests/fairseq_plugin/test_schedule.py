"""Numbers of updates from shares of a training."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

pytest.importorskip("fairseq")

from fairseq_plugin.schedule import (
    count_updates,
    has_shares,
    length_name,
    placeholders,
    resolve,
)
from headprune import UsageError
from tests.fairseq_plugin.conftest import PLUGIN, TRAIN


def resolved(text: str, *, epoch: int | None = None) -> str:
    """The flags in ``text`` (a space in a value is written as ``_``)."""

    def updates_per_epoch() -> int:
        assert epoch is not None, "nothing here depends on the data"
        return epoch

    flags = [word.replace("_", " ") for word in text.split()]
    return " ".join(resolve(flags, updates_per_epoch=updates_per_epoch))


@pytest.mark.parametrize(
    ("flags", "epoch", "numbers"),
    [
        (
            "--max-epoch 10 --warmup-updates 500 --total-num-update 100%",
            253,
            "--max-epoch 10 --warmup-updates 500 --total-num-update 2530",
        ),
        ("--max-epoch 1 --warmup-updates 20%", 253, "--max-epoch 1 --warmup-updates 50"),
        ("--max-update 50 --warmup-updates 20%", None, "--max-update 50 --warmup-updates 10"),
        ("--max-update=50 --warmup-updates=12.5%", None, "--max-update=50 --warmup-updates=6"),
        (
            "--max-update 0.5_epochs --total-num-update 100%",
            99,
            "--max-update 49 --total-num-update 49",
        ),
        ("--max-epoch 3 --warmup-updates 1_epoch", 40, "--max-epoch 3 --warmup-updates 40"),
        (
            "--max-epoch 9 --max-update 100 --warmup-updates 10%",
            20,
            "--max-epoch 9 --max-update 100 --warmup-updates 10",
        ),
        ("--max-epoch 1 --warmup-updates 1%", 5, "--max-epoch 1 --warmup-updates 1"),
        ("--max-update 70 --lr 1e-3 --arch 5%", None, "--max-update 70 --lr 1e-3 --arch 5%"),
    ],
)
def test_shares_become_numbers(flags: str, epoch: int | None, numbers: str) -> None:
    assert resolved(flags, epoch=epoch) == numbers


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ("--warmup-updates 10%", "without --max-epoch or --max-update"),
        ("--max-update 10%", "--max-update: give the length in updates or in epochs"),
    ],
)
def test_shares_of_nothing_are_refused(flags: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        resolved(flags, epoch=10)


def test_parsers_see_numbers() -> None:
    flags = ["--max-epoch", "2", "--warmup-updates", "10%", "--max-update=1.5 epochs"]
    assert has_shares(flags) and not has_shares(["--warmup-updates", "10"])
    assert placeholders(flags)[3:] == ["1", "--max-update=1"]


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        (["--max-epoch", "3", "--max-update", "5"], "3ep"),
        (["--max-update=200"], "200up"),
        (["--max-update", "0.5 epochs"], "0.5ep"),
        (["--lr", "1"], "unlimited"),
    ],
)
def test_the_length_in_signatures(flags: list[str], name: str) -> None:
    assert length_name(flags) == name


def test_the_updates_counted_are_those_that_fairseq_makes(corpus: Path, full: Path) -> None:
    flags = [str(corpus), "--user-dir", PLUGIN, *TRAIN, "--arch=transformer_headpruned_tiny"]
    state = torch.load(full)
    updates = state["optimizer_history"][-1]["num_updates"]
    assert updates > 2 and count_updates(flags) == updates / 2  # of two epochs
    assert count_updates([*flags, "--update-freq", "3"]) == -(-updates // 2 // 3)
