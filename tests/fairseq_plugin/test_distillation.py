"""Distillation in fairseq: the criterion's loss, its teacher, trainings, and mistakes."""

from __future__ import annotations

import math
import re
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_plugin import arguments
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.criterions.label_smoothed_cross_entropy_with_distillation import (
    NAME,
    LabelSmoothedCrossEntropyWithDistillation,
)
from fairseq_plugin.teacher import load_teacher
from headprune import DataError, PruningPlan, UsageError
from tests.command import headprune
from tests.fairseq_plugin import checkpoints
from tests.fairseq_plugin.conftest import train
from tests.fairseq_plugin.models import SHAPE, SIZES, build, dictionary
from tests.fairseq_plugin.test_learned_gates import sample

PLAN = PruningPlan(
    kept={"ES": [(1, 3), (0,)], "ED": [(0, 1, 2), (2,)], "DS": [(), (0, 3)], "EL": [(), (0,)]},
    units={**SHAPE, "EL": (1, 1)},
)


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the dictionaries of the tiny models, whose files name the languages."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "train.en-de.en.idx").touch()
    for language in ("en", "de"):
        dictionary().save(str(folder / f"dict.{language}.txt"))
    return folder


@pytest.fixture(scope="module")
def teacher(data: Path) -> Path:
    """A checkpoint of a tiny stock transformer."""
    return checkpoints.write(data / "teacher.pt")


def task(data: Path) -> TranslationTask:
    cfg = TranslationConfig(data=str(data), source_lang="en", target_lang="de")
    return TranslationTask(cfg, dictionary(), dictionary())


def criterion(data: Path, path: Path | None, **options: Any) -> Any:
    return LabelSmoothedCrossEntropyWithDistillation(
        task(data),
        sentence_avg=False,
        label_smoothing=0.1,
        distill_from=None if path is None else str(path),
        **options,
    )


def batch() -> dict[str, Any]:
    return {**sample(), "id": torch.arange(5)}


def test_the_loss_is_that_of_its_formula(data: Path, teacher: Path) -> None:
    student = build(plan=PLAN.to_json(), seed=1).train()
    chosen = criterion(
        data, teacher, distill_weight=0.3, distill_temperature=3.0, distill_hidden=0.7
    )
    state = torch.get_rng_state()
    loss, size, log = chosen(student, batch())
    assert torch.equal(torch.get_rng_state(), state)  # neither loading nor teaching draws numbers
    plain = LabelSmoothedCrossEntropyCriterion(task(data), False, 0.1)
    own, _, own_log = plain(student, batch())
    assert log["loss"] == own_log["loss"] and log["nll_loss"] == own_log["nll_loss"]

    full = build("transformer").eval()
    inputs, labels, pad = batch()["net_input"], batch()["target"], dictionary().pad()
    logits, targets = student(**inputs)[0] / 3, full(**inputs)[0] / 3
    total = 0.0
    for row, token in labels.ne(pad).nonzero().tolist():
        p, q = targets[row, token].softmax(-1), logits[row, token].softmax(-1)
        total += 9 * float((p * (p.log() - q.log())).sum().detach())
    assert float(log["distill_loss"]) == pytest.approx(total, rel=1e-4)

    states = [
        {
            "encoder": model.encoder(inputs["src_tokens"], return_all_hiddens=True)[
                "encoder_states"
            ],
            "decoder": model(**inputs)[1]["inner_states"],
        }
        for model in (student, full)
    ]
    differences = []
    # State 0 is the embeddings; the student's encoder has layer 1 alone.
    for side, place, layer, tokens in (
        ("encoder", 1, 1, inputs["src_tokens"]),
        ("decoder", 1, 0, inputs["prev_output_tokens"]),
        ("decoder", 2, 1, inputs["prev_output_tokens"]),
    ):
        difference = states[0][side][place] - states[1][side][layer + 1]  # T x B x C
        differences.append(difference[tokens.ne(pad).T].square().mean())
    hidden = torch.stack(differences).mean()
    torch.testing.assert_close(log["hidden_loss"], hidden.detach())
    expected = 0.7 * own + 0.3 * total + size * 0.7 * hidden
    torch.testing.assert_close(loss, expected, rtol=1e-4, atol=1e-3)

    loss.backward()
    (pair,) = chosen._pairs
    assert all(parameter.grad is None for parameter in pair.teacher.parameters())
    assert student.encoder.embed_tokens.weight.grad.any() and not pair.teacher.training
    assert not chosen.state_dict() and not list(chosen.parameters())
    student.eval()
    assert torch.equal(chosen(student, batch())[0], plain(student, batch())[0])


def test_what_is_equal_to_its_teacher_has_nothing_to_learn(data: Path, teacher: Path) -> None:
    same = build()
    same.load_state_dict(checkpoints.content()["model"])
    loss, _, log = criterion(data, teacher, distill_weight=1.0, distill_hidden=1.0)(
        same.train(), batch()
    )
    values = [float(value) for value in (loss.detach(), log["distill_loss"], log["hidden_loss"])]
    assert values == pytest.approx([0, 0, 0], abs=1e-5)


def test_a_student_in_half_precision(data: Path, teacher: Path) -> None:
    student = build(seed=1).to(torch.bfloat16).train()
    chosen = criterion(data, teacher)
    loss, _, _ = chosen(student, batch())
    assert {each.dtype for each in chosen._pairs[0].teacher.parameters()} == {torch.bfloat16}
    loss.backward()
    assert math.isfinite(float(loss.detach()))
    autocast = build(seed=1, autocast="bf16").train()
    chosen = criterion(data, teacher)
    chosen(autocast, batch())
    (pair,) = chosen._pairs
    assert pair.teacher.decoder.cfg.autocast == pair.teacher.encoder.cfg.autocast == "bf16"


def test_mistakes(data: Path, teacher: Path, tmp_path: Path) -> None:
    for options, message in (
        ({"path": None}, f"--criterion {NAME}: give --distill-from"),
        ({"path": teacher, "distill_temperature": 0.0}, "--distill-temperature 0: give a number"),
        ({"path": teacher, "distill_weight": 1.1}, "--distill-weight 1.1: give a share"),
    ):
        with pytest.raises(UsageError, match=re.escape(message)):
            criterion(data, **options)
    with pytest.raises(DataError, match="--distill-from: .*none.pt: no such file"):
        arguments.check(Namespace(distill_from=str(tmp_path / "none.pt")))
    adaptive = build(adaptive_softmax_cutoff="5,10").train()
    with pytest.raises(UsageError, match="not with --adaptive-softmax-cutoff"):
        criterion(data, teacher)(adaptive, batch())
    deep = build(seed=1, encoder_layers=3).train()
    with pytest.raises(UsageError, match=r"other layers \(EL 2, DL 2\) than the model \(EL 3"):
        criterion(data, teacher, distill_hidden=1.0)(deep, batch())

    def written(**options: Any) -> str:
        state = checkpoints.content()
        vars(state["args"]).update(options)
        torch.save(state, tmp_path / "other.pt")
        return str(tmp_path / "other.pt")

    path = written(source_lang="de", target_lang="en")
    with pytest.raises(UsageError, match="translates de-en, the training is for en-de"):
        load_teacher(path, task(data), autocast="none")
    for language in ("en", "de"):
        dictionary(len(SIZES)).save(str(tmp_path / f"dict.{language}.txt"))
    path = written(source_lang="en", target_lang="de", data=str(tmp_path))
    with pytest.raises(UsageError, match=r"another vocabulary \(.*dict.en.txt\)"):
        load_teacher(path, task(data), autocast="none")
    with pytest.raises(DataError, match="checkpoint's dictionary and width"):
        path = written(source_lang="en", target_lang="de")
        load_teacher(path, task(tmp_path), autocast="none")


@pytest.mark.slow
def test_train_towards_the_unpruned_model(corpus: Path, full: Path, tmp_path: Path) -> None:
    common = (
        *("--arch=transformer_headpruned_tiny", "--es-heads=21", f"--finetune-from-model={full}"),
        *("--dropout=0.1", "--label-smoothing=0.1"),
    )
    plain = tmp_path / "plain"
    train(corpus, plain, *common, "--criterion=label_smoothed_cross_entropy")
    distilled = (*common, f"--criterion={NAME}", f"--distill-from={full}")
    zero, one = tmp_path / "zero", tmp_path / "one"
    train(corpus, zero, *distilled, "--distill-weight=0")
    log = train(corpus, one, *distilled, "--distill-hidden=0.1")
    for key in ("train_distill_loss", "train_hidden_loss"):
        assert re.search(rf'"{key}": "[0-9.]+"', log), key
    states = [Checkpoint.load(path / "checkpoint_last.pt").state for path in (plain, zero, one)]
    weights = [state["model"] for state in states]
    assert weights[0].keys() == weights[1].keys() == weights[2].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
    assert not all(torch.equal(weights[0][name], weights[2][name]) for name in weights[0])
    assert states[0].keys() == states[2].keys()
    stock = tmp_path / "stock.pt"
    exported = headprune("export", one / "checkpoint_last.pt", "--to", "fairseq", "-o", stock)
    assert exported.status == 0, exported.err
    own = Checkpoint.load(stock).state["cfg"]["criterion"]
    assert own["_name"] == "label_smoothed_cross_entropy" and "distill_from" not in own
