"""Distillation in fairseq: the criterion's loss, its teacher, trainings, and mistakes."""

from __future__ import annotations

import json
import math
import re
import subprocess
from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fairseq.criterions.label_smoothed_cross_entropy import LabelSmoothedCrossEntropyCriterion
from fairseq.tasks.translation import TranslationConfig, TranslationTask

from fairseq_plugin import arguments, running
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.criterions.label_smoothed_cross_entropy_with_distillation import (
    NAME,
    LabelSmoothedCrossEntropyWithDistillation,
)
from fairseq_plugin.scores import translation_model
from fairseq_plugin.scores.translation_model import TranslationModel
from fairseq_plugin.teacher import load_teacher
from fairseq_plugin.training_folder import identity
from headprune import DataError, PruningPlan, UsageError
from headprune.recovery.distillation import Distillation
from headprune.recovery.variant import Variant
from headprune.results.record import Record
from tests.command import headprune
from tests.fairseq_plugin import checkpoints
from tests.fairseq_plugin.conftest import TRAIN, train
from tests.fairseq_plugin.models import SHAPE, SIZES, build, dictionary
from tests.fairseq_plugin.test_learned_gates import sample
from tests.warm_process import WarmPopen

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


def test_without_a_weight_the_teacher_is_not_needed(data: Path, teacher: Path) -> None:
    losses, gradients = [], []
    for each in (
        criterion(data, teacher, distill_weight=0.0),
        LabelSmoothedCrossEntropyCriterion(task(data), False, 0.1),
    ):
        student = build(plan=PLAN.to_json(), seed=1, dropout=0.1).train()
        loss, _, _ = each(student, batch())
        loss.backward()
        losses.append(loss.detach())
        gradients.append([parameter.grad for parameter in student.parameters()])
    assert torch.equal(*losses)
    assert all(torch.equal(one, other) for one, other in zip(*gradients, strict=True))


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
        load_teacher(path, task(data))
    for language in ("en", "de"):
        dictionary(len(SIZES)).save(str(tmp_path / f"dict.{language}.txt"))
    path = written(source_lang="en", target_lang="de", data=str(tmp_path))
    with pytest.raises(UsageError, match=r"another vocabulary \(.*dict.en.txt\)"):
        load_teacher(path, task(data))
    with pytest.raises(DataError, match="checkpoint's dictionary and width"):
        path = written(source_lang="en", target_lang="de")
        load_teacher(path, task(tmp_path))


def test_a_wrong_teacher_is_found_before_the_first_update(data: Path, tmp_path: Path) -> None:
    """fairseq saves crash.pt for an error in an update; ``train`` is called before it."""
    state = checkpoints.content()
    vars(state["args"]).update(source_lang="de", target_lang="en")
    torch.save(state, tmp_path / "other.pt")
    with pytest.raises(UsageError, match="translates de-en, the training is for en-de"):
        criterion(data, tmp_path / "other.pt").train()
    criterion(data, tmp_path / "other.pt").eval()
    criterion(data, tmp_path / "other.pt", distill_weight=0.0).train()


@pytest.mark.slow
def test_train_towards_the_unpruned_model(corpus: Path, full: Path, tmp_path: Path) -> None:
    log = train(
        *(corpus, tmp_path, "--arch=transformer_headpruned_tiny", "--es-heads=21"),
        *(f"--finetune-from-model={full}", "--dropout=0.1", "--label-smoothing=0.1"),
        *(f"--criterion={NAME}", f"--distill-from={full}", "--distill-hidden=0.1"),
    )
    for key in ("train_distill_loss", "train_hidden_loss"):
        assert re.search(rf'"{key}": "[0-9.]+"', log), key
    trained = Checkpoint.load(tmp_path / "checkpoint_last.pt")
    unpruned = Checkpoint.load(full).state
    assert trained.state.keys() == unpruned.keys()  # the teacher is not in it
    assert trained.state["model"].keys() == unpruned["model"].keys()
    stock = tmp_path / "stock.pt"
    exported = headprune("export", trained.path, "--to", "fairseq", "-o", stock)
    assert exported.status == 0, exported.err
    own = Checkpoint.load(stock).state["cfg"]["criterion"]
    assert own["_name"] == "label_smoothed_cross_entropy" and "distill_from" not in own


def test_a_training_begins_anew_when_the_file_of_its_teacher_has_changed(
    corpus: Path, full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = tmp_path / "teacher.pt"
    marks = []

    def train(job: Any, flags: list[str], *, data: Path, depends: list[Path], **_: Any) -> None:
        marks.append(identity(flags, data=data, depends=depends, precision="fp32"))

    monkeypatch.setattr(translation_model, "train", train)
    model = TranslationModel(
        path=full,
        data=corpus,
        finetuning=("--arch=transformer_headpruned_tiny", "--max-epoch=1"),
        distillation=Distillation(weight=0.25),
        teacher=teacher,
    )
    half = PLAN.part(SHAPE) or PLAN
    for content in (b"one", b"one", b"two"):
        teacher.write_bytes(content)
        model.finetuned(half, seed=1, folder=tmp_path / "it", variant=Variant(distilled=True))
    assert marks[0] == marks[1] != marks[2]


@pytest.mark.slow
def test_a_checkpoint_that_is_compared_is_its_own_teacher(
    corpus: Path, full: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    constants = {name: getattr(subprocess, name) for name in ("PIPE", "STDOUT", "DEVNULL")}
    monkeypatch.setattr(running, "subprocess", SimpleNamespace(Popen=WarmPopen, **constants))
    flags = ("--arch=transformer_headpruned_tiny", *TRAIN[1:], "--max-epoch=1")
    labels = ("--criterion", "label_smoothed_cross_entropy", "--label-smoothing=0.1")
    model = TranslationModel(
        path=full,
        data=corpus,
        finetuning=(*(f for f in flags if not f.startswith("--seed")), *labels),
        distillation=Distillation(weight=0.25),
    )
    assert model.settings["distill_weight"] == 0.25
    half = PLAN.part(SHAPE) or PLAN
    distilled = Variant(distilled=True)
    tuned = model.finetuned(half, seed=1, folder=tmp_path / "tuned", variant=distilled)
    # A model that a method has trained has the same teacher.
    assert model.opened(tmp_path / "tuned" / "model.pt").teacher == full
    facts = json.loads((tmp_path / "tuned" / "model.json").read_text())
    assert facts["distill_weight"] == 0.25 and facts["distill_temperature"] == 2.0
    assert facts["teacher_fingerprint"] == model.model.fingerprint
    criterion = tuned.model.state["cfg"]["criterion"]
    assert (criterion["_name"], criterion["label_smoothing"]) == (NAME, 0.1)
    # Its record says so.
    (tmp_path / "generation.txt").write_text("D-0\t-0.5\ta dog sees the cat\n")
    (tmp_path / "test.de").write_text("a dog sees the cat\n")
    half.save(tmp_path / "plan.json")
    done = headprune(
        *("bleu", tmp_path / "generation.txt", "--ref", tmp_path / "test.de", "--seed", 1),
        *("--plan", tmp_path / "plan.json", "--data", "toy", "--finetune", "1ep"),
        *("--training", tmp_path / "tuned" / "model.json", "-o", tmp_path / "result.json"),
    )
    name = f"distill[weight=0.25,temperature=2,from={model.model.fingerprint[:12]}]"
    assert f"|finetune:1ep|recovery:{name}|data:toy|" in done.out, done.err
    record = Record.load(tmp_path / "result.json")
    assert record.training["distill_weight"] == 0.25
    assert {"headprune", "torch", "sacrebleu"} < {*record.versions} and record.device
    assert {"fairseq", "fairseq-fixed"} & {*record.versions}
    done = headprune(
        *("bleu", tmp_path / "generation.txt", "--ref", tmp_path / "test.de", "--seed", 1),
        *("--plan", tmp_path / "plan.json", "--data", "toy", "--recovery", "a|b"),
        *("-o", tmp_path / "other.json"),
    )
    assert "--recovery 'a|b': give one word" in done.err
    for finetune, message in (
        ("--criterion=cross_entropy_x", "--criterion cross_entropy_x has no form with a teacher"),
        ("--distill-weight=1", "--distill-weight=1 is given by headprune itself"),
    ):
        with pytest.raises(UsageError, match=message):
            replace(model, finetuning=(*flags[:1], "--max-epoch=1", finetune))
    done = headprune(
        "compare", full, "--data", corpus, "--recovery", "distill", "-o", tmp_path / "o"
    )
    assert "--recovery distill: give --epochs, or --finetune for a checkpoint" in done.err
