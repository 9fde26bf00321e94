"""The score movement of fairseq checkpoints, by the real command."""

from __future__ import annotations

import json
import shlex
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn.functional import cross_entropy

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.scores.model import FairseqModel
from fairseq_plugin.scores.run import batches_of, load_items, load_scored
from fairseq_plugin.scores.translation_model import TranslationModel
from headprune import UsageError
from headprune.gates import gated
from headprune.scores import HeadScores
from headprune.scores.units import parts_of

from .test_compare import FINETUNE, forked_programs, headprune, prepared  # noqa: F401

ONE_UPDATE = (
    "--arch transformer_headpruned_tiny --share-all-embeddings --optimizer sgd --lr 1e-3 "
    "--max-tokens 99999 --required-batch-size-multiple 1 --max-update 1 --dropout 0 "
    "--num-workers 0 --criterion cross_entropy --clip-norm 1e-3 --disable-validation"
)


def test_one_step_is_minus_the_gradient_of_gates_not_clipped(
    full: Path, corpus: Path, tmp_path: Path
) -> None:
    options = ("--score", "movement", "--components", "ES,ED,DS,EF,DF", "--finetune", ONE_UPDATE)
    headprune("scores", full, *options, "-o", tmp_path)
    movement = HeadScores.load(tmp_path / "movement.json")
    assert movement.settings["steps"] == 1 and movement.data.endswith("bin.train[300]")
    assert "|part:training|trained-on:yes|finetune:1up|learning_rate:1e-3|" in movement.signature

    model, task = load_scored(Checkpoint.load(full), corpus)
    items = load_items(task, "train", corpus, max_examples=None)
    (batch,) = batches_of(items, model, size=300)
    parts = parts_of(FairseqModel(model), ["ES", "ED", "DS", "EF", "DF"])
    model.eval()
    gates = {
        name: [torch.ones(len(each.present), requires_grad=True) for each in layers]
        for name, layers in parts.items()
    }
    pairs = [
        (part, gate) for name in parts for part, gate in zip(parts[name], gates[name], strict=True)
    ]
    with gated(pairs):
        logits, _ = model(**batch["net_input"])  # N x L x V
        target = batch["target"]  # N x L
        cross_entropy(
            logits.transpose(1, 2), target, ignore_index=model.decoder.padding_idx
        ).backward()
    for name, layers in gates.items():
        for layer, gate in enumerate(layers):
            assert gate.grad is not None
            found = torch.tensor(movement.values[name][layer])
            torch.testing.assert_close(found, -gate.grad, rtol=1e-3, atol=1e-7)


def test_an_epoch_beside_another_score_leaves_the_checkpoint(
    full: Path, corpus: Path, tmp_path: Path
) -> None:
    model = shutil.copy(full, tmp_path / "model.pt")
    before = Checkpoint.load(model).fingerprint
    both = ("--score", "movement", "--score", "fisher", "--data", corpus, "--max-examples", 6)
    headprune("scores", model, *both, "--finetune", FINETUNE, "-o", tmp_path / "out")
    movement = HeadScores.load(tmp_path / "out" / "movement.json")
    assert movement.settings["finetune"] == "1ep" and movement.settings["steps"] > 1
    assert "subset_seed" not in movement.settings
    assert HeadScores.load(tmp_path / "out" / "fisher.json").settings["part"] == "scoring"
    assert Checkpoint.load(model).fingerprint == before == movement.fingerprint
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model.pt", "out"]


def test_a_comparison_scores_by_its_own_fine_tuning(full: Path, corpus: Path) -> None:
    model = TranslationModel(path=full, data=corpus, finetuning=tuple(shlex.split(ONE_UPDATE)))
    one, two = (
        model.scores(["movement"], seed=seed, components=["ES"])["movement"] for seed in (1, 2)
    )
    assert two.settings["seed"] == 2 and two.settings["finetune"] == "1up"
    # One update sees the whole training set, without dropout: the seed changes only its order.
    torch.testing.assert_close(
        torch.tensor(one.values["ES"]), torch.tensor(two.values["ES"]), rtol=1e-3, atol=1e-7
    )
    with pytest.raises(UsageError, match="with the flags of --finetune"):
        replace(model, finetuning=()).scores(["movement"], seed=1)


def test_mistakes(full: Path, tmp_path: Path) -> None:
    for options, message in (
        (("--score", "movement"), "of a fairseq checkpoint with the flags of --finetune"),
        (("--score", "fisher", "--finetune", FINETUNE), "--finetune goes with --score movement"),
        (("--score", "movement", "--finetune", "--lr 1"), "--finetune: give --arch"),
        (
            ("--score", "movement", "--finetune", f"{FINETUNE} --memory-efficient-fp16"),
            "movement needs full precision; leave --memory-efficient-fp16 out",
        ),
        (
            ("--score", "movement", "--finetune", f"{FINETUNE} --train-subset=valid"),
            "movement is not computed with --train-subset; leave it out",
        ),
    ):
        with pytest.raises(UsageError, match=message):
            headprune("scores", full, *options, "-o", tmp_path / "out")
    assert not list((tmp_path / "out").glob("*.json"))


@pytest.mark.parametrize("command", [("compare",), ("iterate", "--steps", 2)])
@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ((), "movement is computed during a fine-tuning with labels"),
        (
            ("--finetune", f"{FINETUNE} --memory-efficient-fp16"),
            "leave --memory-efficient-fp16 out",
        ),
    ],
)
def test_mistakes_are_found_before_anything_is_measured(
    full: Path,
    corpus: Path,
    tmp_path: Path,
    command: tuple[object, ...],
    flags: tuple[str, ...],
    message: str,
) -> None:
    options = ("--score", "movement", "--percent", 50, "--data", corpus, *flags)
    with pytest.raises(UsageError, match=message):
        headprune(*command, full, *options, "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
def test_a_comparison_by_the_command(full: Path, prepared: Path, tmp_path: Path) -> None:  # noqa: F811
    options = ("--score", "movement", "--percent", 50, "--data", prepared)
    flags = ("--finetune", ONE_UPDATE, "--seeds", 1, "--beam", 1)
    headprune("compare", full, *options, *flags, "-o", tmp_path / "out")
    rows = json.loads((tmp_path / "out" / "compare.json").read_text())["rows"]
    (movement,) = (row for row in rows if row["score"] == "movement")
    assert movement["percent"] == 50
    assert HeadScores.load(tmp_path / "out" / "scores" / "movement.json").settings["steps"] == 1
