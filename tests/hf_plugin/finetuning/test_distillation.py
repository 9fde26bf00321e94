"""Distillation of classifiers: the Trainer's loss, whole runs, resuming, and mistakes."""

from __future__ import annotations

import copy
import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import cross_entropy, mse_loss
from transformers import (
    AutoModelForCausalLM,
    AutoModelForSequenceClassification,
    TrainingArguments,
)
from typer.testing import CliRunner

import hf_plugin
from headprune import PruningPlan, UsageError
from headprune.cli.compare import app as compare_app
from headprune.compare.saved import load_report
from headprune.divergences import bernoulli_divergence, divergence
from headprune.errors import DataError
from headprune.recovery.distillation import Distillation
from headprune.recovery.distillation_loss import recorded
from headprune.results.record import Record
from hf_plugin.cli.glue import app
from hf_plugin.distillation import DistillationTrainer
from hf_plugin.finetuning.run import run
from hf_plugin.finetuning.settings import Labels
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.layerdrop import add_layerdrop
from hf_plugin.scores.model import HuggingFaceModel
from tests.hf_plugin.made import settings, write_model
from tests.hf_plugin.models import SOME, batch, build

from .test_run import change_weights, killed_after_a_checkpoint, weights

DROPPED = PruningPlan(kept={"EL": [(0,), (), (0,)]}, units={"EL": (1, 1, 1)})
TYPES = {
    "single_label_classification": torch.tensor([1, 0]),
    "multi_label_classification": torch.tensor([[1.0, 0.0, 1.0], [0.0, 0.0, 1.0]]),
    "regression": torch.tensor([[0.5, 1.0, -1.0], [0.0, 2.0, 1.0]]),
}


def classifier(seed: int, **options: Any) -> Any:
    return build(
        "bert",
        AutoModelForSequenceClassification,
        seed=seed,
        num_labels=3,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        **options,
    )


def trainer(model: Any, teacher: Any, folder: Path, **weights: float) -> DistillationTrainer:
    arguments = TrainingArguments(output_dir=str(folder), use_cpu=True, report_to="none")
    return DistillationTrainer(
        model, arguments, teacher=teacher, distillation=Distillation(**weights)
    )


@pytest.mark.parametrize("kind", TYPES)
def test_the_loss_and_its_gradient(kind: str, tmp_path: Path) -> None:
    student, teacher = classifier(1, problem_type=kind), classifier(2, problem_type=kind)
    hf_plugin.prune(student, DROPPED)
    inputs = {**batch(), "labels": TYPES[kind]}
    student.train()
    loss = trainer(
        student, teacher, tmp_path, weight=0.3, temperature=3.0, hidden=0.7
    ).compute_loss(student, dict(inputs))
    own, other = (model(**inputs, output_hidden_states=True) for model in (student, teacher))
    if kind == "regression":
        expected = mse_loss(own.logits, other.logits)
    elif kind == "multi_label_classification":
        expected = bernoulli_divergence(own.logits, other.logits, temperature=3.0).mean()
    else:
        assert own.loss == cross_entropy(own.logits, inputs["labels"])
        expected = divergence(own.logits, other.logits, temperature=3.0).mean()
    real = inputs["attention_mask"].bool()
    # Hidden states 0 are the embeddings; layer 1 is dropped.
    hidden = torch.stack(
        [
            (own.hidden_states[n + 1] - other.hidden_states[n + 1])[real].square().mean()
            for n in (0, 2)
        ]
    ).mean()
    torch.testing.assert_close(loss, 0.7 * own.loss + 0.3 * expected + 0.7 * hidden)
    loss.backward()
    assert all(parameter.grad is None for parameter in teacher.parameters())
    assert student.classifier.weight.grad.any() and not teacher.training
    # The teacher alone: its own copy has nothing to learn from it.
    same = copy.deepcopy(teacher).train()
    alone = trainer(same, teacher, tmp_path, weight=1.0, hidden=1.0).compute_loss(
        same, dict(inputs)
    )
    assert float(alone.detach()) == 0
    # In evaluation the loss is that of the task.
    student.eval()
    evaluated = trainer(student, teacher, tmp_path).compute_loss(student, dict(inputs))
    assert evaluated == student(**inputs).loss


def test_outputs_of_a_language_model_are_about_the_next_token(tmp_path: Path) -> None:
    student, teacher = (build("llama", AutoModelForCausalLM, seed=seed) for seed in (1, 2))
    ids = batch()["input_ids"][:1]
    labels = ids.clone()
    labels[:, :3] = -100  # a prompt of three tokens
    inputs = {"input_ids": ids, "labels": labels}
    student.train()
    loss = trainer(student, teacher, tmp_path, weight=1.0).compute_loss(student, dict(inputs))
    each = divergence(student(ids).logits, teacher(ids).logits, temperature=2.0)
    # The third output is about the first token after the prompt, the last one about none.
    torch.testing.assert_close(loss, each[:, 2:-1].mean())


def test_layers_that_layerdrop_skips_are_not_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    student, teacher = classifier(1).train(), classifier(2)
    inputs = {**batch(), "labels": TYPES["single_label_classification"]}
    layers = HuggingFaceModel(student).layers
    with recorded(layers) as whole:
        student(**inputs)
    hooks = add_layerdrop(student, 0.5)
    draws = iter([0.9, 0.1, 0.9])
    monkeypatch.setattr(torch, "rand", lambda _: torch.tensor(next(draws)))
    with recorded(layers) as outputs:
        student(**inputs)
    assert whole.keys() - outputs.keys() == {("EL", 1)}
    draws = iter([0.1, 0.1, 0.1])
    distilling = trainer(student, teacher, tmp_path, weight=0.0, hidden=1.0)
    loss, own = distilling.compute_loss(student, dict(inputs), return_outputs=True)
    assert float(loss.detach()) == float(own.loss.detach())
    for hook in hooks:
        hook.remove()
    with recorded(layers) as outputs:
        student(**inputs)
    assert outputs.keys() == whole.keys()


def test_models_that_cannot_be_compared(tmp_path: Path) -> None:
    student = classifier(1)
    with pytest.raises(UsageError, match="the teacher is the model itself, which is trained"):
        trainer(student, student, tmp_path)
    assert all(parameter.requires_grad for parameter in student.parameters())
    with pytest.raises(UsageError, match="the teacher has 2 outputs, the model 3"):
        trainer(student, build("bert", AutoModelForSequenceClassification), tmp_path)
    other = classifier(2, num_hidden_layers=2)
    with pytest.raises(UsageError, match=r"other layers \(EL 2\) than the model \(EL 3\)"):
        trainer(student, other, tmp_path, hidden=1.0)


@pytest.fixture(scope="module")
def teacher(model: Path, glue: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a classifier for RTE."""
    folder = tmp_path_factory.mktemp("teacher")
    run(settings("rte", model, glue, epochs=1.0), Labels(), folder)
    return folder / "model"


def equal(one: Path, other: Path) -> bool:
    before, after = weights(one), weights(other)
    return before.keys() == after.keys() and all(
        torch.equal(before[name], after[name]) for name in before
    )


def test_a_run_and_its_record(model, glue, teacher, tmp_path, monkeypatch):
    common: dict[str, Any] = {"plan": SOME, "epochs": 1.0}
    plain = settings("rte", teacher, glue, **common)
    run(plain, Labels(), tmp_path / "plain")
    followed = settings("rte", teacher, glue, distill_from=str(teacher), **common)
    result = run(followed, Labels(), tmp_path / "followed")
    fingerprint = model_fingerprint(AutoModelForSequenceClassification.from_pretrained(teacher))
    name = f"recovery:distill[weight=0.5,temperature=2,from={fingerprint[:12]}]"
    assert f"|finetune:1ep|{name}|data:glue.rte,24tok|" in result.signature
    assert result.training["teacher_fingerprint"] == fingerprint
    assert result.settings["distill_from"] == str(teacher)
    assert not equal(tmp_path / "plain" / "model", tmp_path / "followed" / "model")
    # Without a weight it is the same training as without a teacher, bit by bit.
    nothing = settings(
        "rte",
        teacher,
        glue,
        distill_from=str(teacher),
        distillation=Distillation(weight=0.0),
        **common,
    )
    run(nothing, Labels(), tmp_path / "nothing")
    assert equal(tmp_path / "plain" / "model", tmp_path / "nothing" / "model")
    # A finished run is not one with other settings.
    assert run(followed, Labels(), tmp_path / "followed") == result
    for other in (plain, nothing):
        with pytest.raises(UsageError, match=r"other settings \(.*distill_weight"):
            run(other, Labels(), tmp_path / "followed")


def test_resume(model, glue, teacher, tmp_path, monkeypatch):
    wanted = settings(
        "rte",
        teacher,
        glue,
        plan=SOME,
        distill_from=str(teacher),
        distillation=Distillation(hidden=0.1),
    )
    run(wanted, Labels(), tmp_path / "whole")
    with killed_after_a_checkpoint(monkeypatch):
        run(wanted, Labels(), tmp_path / "killed")
    with pytest.raises(UsageError, match=r"other settings \(distill_from"):
        run(settings("rte", teacher, glue, plan=SOME), Labels(), tmp_path / "killed")
    resumed = run(wanted, Labels(), tmp_path / "killed")
    assert resumed.training["resumed"] is True
    assert equal(tmp_path / "whole" / "model", tmp_path / "killed" / "model")


def test_a_teacher_is_known_by_its_weights(model, glue, teacher, tmp_path, monkeypatch):
    own, out = shutil.copytree(teacher, tmp_path / "teacher"), tmp_path / "out"
    wanted = settings("rte", model, glue, distill_from=str(own))
    with killed_after_a_checkpoint(monkeypatch):
        run(wanted, Labels(), out)
    moved = own.rename(tmp_path / "moved")
    result = run(replace(wanted, distill_from=str(moved)), Labels(), out)
    assert result.training["resumed"] is True
    shutil.copytree(teacher, own)
    assert run(wanted, Labels(), out) == result
    change_weights(own)
    with pytest.raises(
        UsageError, match="out: was trained from an older version of .*/teacher; ch"
    ):
        run(wanted, Labels(), out)


def glue_command(*arguments: object) -> None:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception


def test_the_command(model, glue, teacher, tmp_path):
    common = ("--task", "rte", "--data-dir", glue, "--model", model, "--max-length", 24)
    out = tmp_path / "out"
    glue_command(
        *(*common, "--epochs", 1, "--batch-size", 8, "-o", out, "--distill-from", teacher),
        *("--distill-weight", 0.25, "--distill-temperature", 4, "--distill-hidden", 0.5),
    )
    record = Record.load(out / "result.json")
    assert "recovery:distill[weight=0.25,temperature=4,hidden=0.5,from=" in record.signature
    words = write_model(tmp_path / "words", words=["the", "other"], vocab_size=40)
    for options, problem, message in (
        (("--distill-weight", 0.5), UsageError, "--distill-weight goes with --distill-from"),
        (("--distill-from", teacher, "--distill-temperature", 0), UsageError, "above 0"),
        (("--distill-from", teacher, "--distill-weight", 2), UsageError, "from 0 to 1"),
        (("--distill-from", teacher, "--epochs", 0), UsageError, "give one epoch or more"),
        (("--distill-from", words), UsageError, r"vocabulary \(7 entries\) is not the model's"),
        (("--distill-from", tmp_path / "none"), DataError, "none"),
        (("--distill-from", teacher, "--task", "mnli"), UsageError, "its classifier is for"),
    ):
        with pytest.raises(problem, match=message):
            glue_command(*common, *options, "-o", tmp_path / "refused")
    assert not list(tmp_path.glob("refused/*.json"))


def compare(*arguments: object) -> str:
    result = CliRunner().invoke(compare_app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.stdout


@pytest.mark.slow
def test_compare_with_the_unpruned_model_as_the_teacher(glue, teacher, tmp_path):
    options = ("--task", "rte", "--data-dir", glue, "--max-length", 24, "--score", "magnitude")
    more = ("--percent", 50, "--seeds", 1, "--rounds", 0)
    out = tmp_path / "out"
    distill = ("--recovery", "distill", "--distill-hidden", 0.5)
    compare(teacher, *options, *more, *distill, "-o", out)
    found = json.loads((out / "compare.json").read_text())
    assert found["recoveries"] == ["distill"] and found["settings"]["distill_hidden"] == 0.5
    name = f"distill[weight=0.5,temperature=2,hidden=0.5,from={found['fingerprint'][:12]}]"
    text = (out / "compare.md").read_text()
    assert "accuracy after distillation:" in text and f"|recovery:{name}|" in text
    kinds = {}
    for path in (out / "records").rglob("*.json"):
        record = Record.load(path)
        kinds[record.kind] = f"|recovery:{name}|" in record.signature
    trained = {"control": True, "pruned": True}
    assert kinds == {"baseline": False, "before-finetune": False, **trained}
    _, report = load_report(out)
    assert report.markdown(title="again").count(name) == text.count(name) > 0
    # A row is what the command on one model gives, with the model as its own teacher.
    (row,) = (each for each in found["rows"] if each["score"] == "magnitude")
    plan = PruningPlan.from_json(json.dumps(row["plan"]), source="row")
    wanted = settings(
        *("rte", teacher, glue),
        plan=plan,
        epochs=1.0,
        batch_size=32,
        learning_rate=2e-5,
        hold_out=10.0,
        distill_from=str(teacher),
        distillation=Distillation(hidden=0.5),
    )
    assert run(wanted, Labels(), tmp_path / "run").value == pytest.approx(row["after"])
    for mistake, message in (
        (("--distill-weight", 0.5), "--distill-weight goes with --recovery distill"),
        (("--recovery", "distill", "--epochs", 0), "give one epoch or more"),
        ((*distill, "--distill-weight", 0.1), r"other settings \(distill_weight\)"),
    ):
        with pytest.raises(UsageError, match=message):
            compare(teacher, *options, *more, *mistake, "-o", out)
    distilled = {path: path.read_bytes() for path in (out / "after").rglob("*.json")}
    compare(teacher, *options, *more, "-o", out)  # a plain fine-tuning beside it
    assert "after fine-tuning" in (out / "compare.md").read_text()
    assert {path: path.read_bytes() for path in distilled} == distilled
