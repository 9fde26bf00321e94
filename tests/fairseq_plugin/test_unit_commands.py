"""fairseq's own command lines on models with pruned neurons and layers."""

from __future__ import annotations

from pathlib import Path

import pytest

from fairseq_plugin.checkpoints import Checkpoint
from headprune import PruningPlan
from tests.fairseq_plugin.conftest import assert_same, generate, run, train
from tests.fairseq_plugin.test_commands import assert_same_weights, weights

PLAN = PruningPlan(
    kept={
        "ES": [(1, 3), ()],
        "EF": [range(10, 40), ()],
        "DF": [(0,), range(32)],
        "DL": [(), (0,)],
    },
    units={"ES": (4, 4), "EF": (64, 64), "DF": (64, 64), "DL": (1, 1)},
)
ARCH = "--arch=transformer_headpruned_tiny"
COUNTS = "ES=20 ED=04 DS=04 EF=30,0 DF=0,32 DL=01"

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plan") / "plan.json"
    PLAN.save(file)
    return file


def test_ways_from_a_checkpoint_translate_alike(
    corpus: Path, full: Path, plan: Path, tmp_path: Path
) -> None:
    """`headprune prune` in both forms, fine-tuning at learning rate 0, overrides, export."""
    for form in ("remove", "mask"):
        run(
            "headprune",
            "prune",
            full,
            "--plan",
            plan,
            "--form",
            form,
            "-o",
            tmp_path / f"{form}.pt",
        )
    reference = generate(corpus, "--path", tmp_path / "remove.pt")
    assert_same(generate(corpus, "--path", tmp_path / "mask.pt"), reference)

    save = tmp_path / "tuned"
    log = train(corpus, save, ARCH, "--plan", plan, "--finetune-from-model", full, "--lr=0")
    assert f"neurons and layers kept: {COUNTS.partition('DS=04 ')[2]}" in log
    tuned = Checkpoint.load(save / "checkpoint_last.pt")
    assert str(tuned.plan) == COUNTS and tuned.plan == PLAN.normalised(tuned.shape)
    assert_same_weights(save / "checkpoint_last.pt", tmp_path / "remove.pt")

    overrides = str({"plan": str(plan)})
    assert_same(generate(corpus, "--path", full, "--model-overrides", overrides), reference)

    run("headprune", "export", tmp_path / "remove.pt", "--to=fairseq", "-o", tmp_path / "stock.pt")
    assert_same(generate(corpus, "--path", tmp_path / "stock.pt", plugin=False), reference)
    assert Checkpoint.load(tmp_path / "stock.pt").options["decoder_layers"] == 1


def test_training_resumes_and_is_pruned_further(corpus: Path, full: Path, tmp_path: Path) -> None:
    options = [
        *(ARCH, "--ef-neurons=20", "--df-neurons=0,30", "--encoder-layers-kept=1"),
        *("--finetune-from-model", full),
    ]
    train(corpus, tmp_path / "whole", *options, epochs=2)
    train(corpus, tmp_path / "parts", *options, epochs=1)
    log = train(corpus, tmp_path / "parts", *options, epochs=2)
    assert "Loaded checkpoint" in log
    last = tmp_path / "parts" / "checkpoint_last.pt"
    assert_same_weights(tmp_path / "whole" / "checkpoint_last.pt", last)
    checkpoint = Checkpoint.load(last)
    assert str(checkpoint.plan) == "ES=04 ED=44 DS=44 EF=0,20 DF=0,30 EL=01"
    assert not any(name.endswith("kept_heads") for name in weights(last))

    fewer = tmp_path / "fewer.json"
    PruningPlan(
        kept={**checkpoint.plan.kept, "EF": [(), checkpoint.plan.kept["EF"][1][:5]]},
        units=checkpoint.plan.units,
    ).save(fewer)
    again = ["--plan", fewer, "--lr=0", "--finetune-from-model", last]
    train(corpus, tmp_path / "again", ARCH, *again)
    run("headprune", "prune", last, "--plan", fewer, "-o", tmp_path / "fewer.pt")
    assert_same_weights(tmp_path / "again" / "checkpoint_last.pt", tmp_path / "fewer.pt")


def test_neurons_that_are_gone_end_the_training_with_one_line(
    corpus: Path, full: Path, plan: Path, tmp_path: Path
) -> None:
    run("headprune", "prune", full, "--plan", plan, "-o", tmp_path / "pruned.pt")
    start = ["--finetune-from-model", tmp_path / "pruned.pt"]
    log = train(corpus, tmp_path / "tuned", ARCH, "--ef-neurons=40", *start, status=1)
    assert "error: EF: layer 0: neuron" in log or "error: DL: layer 0 is to be kept" in log
