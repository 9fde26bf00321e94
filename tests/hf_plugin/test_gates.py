"""Learned gates in Hugging Face models: training, resuming, closing, and mistakes."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
import torch
from transformers import (
    AlbertConfig,
    AlbertForSequenceClassification,
    AutoModelForImageClassification,
    AutoModelForSequenceClassification,
    TrainerCallback,
    TrainingArguments,
)

from headprune import PruningPlan, UsageError
from headprune.gates import hard_concrete
from hf_plugin import from_pretrained, plan
from hf_plugin.folders import Folder
from hf_plugin.gates import L0Trainer, add_gates, close_gates, gates_of
from tests.command import headprune
from tests.hf_plugin.models import build
from tests.hf_plugin.scores.test_scores import classifier, data
from tests.hf_plugin.small_models import SMALL, inputs_of, small


@pytest.fixture(autouse=True)
def in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Trainer without arguments makes a folder where it is run."""
    monkeypatch.chdir(tmp_path)


def logits(model: Any, family: str = "bert") -> torch.Tensor:
    with torch.no_grad():
        output: torch.Tensor = model.eval()(**data(family)).logits
    return output


@pytest.mark.parametrize(
    ("family", "components"),
    [("bert", "ES,EF"), ("bert", "EL,EF"), ("modernbert", "EF,ES"), ("bart", "ED,DF,EL")],
)
def test_closed_gates_are_folded_into_the_pruned_model(family: str, components: str) -> None:
    model = classifier(family)
    unpruned = logits(model, family)
    gates = add_gates(model, components)
    assert torch.equal(logits(model, family), unpruned)
    torch.manual_seed(1)
    for parameter in gates.scaled.values():
        parameter.data = 4 * torch.randn_like(parameter)
    expected = logits(model, family)
    assert not torch.allclose(expected, unpruned)
    before = sum(parameter.numel() for parameter in model.parameters())
    pruned = close_gates(model)
    torch.testing.assert_close(logits(pruned, family), expected, atol=1e-5, rtol=1e-5)
    assert sum(parameter.numel() for parameter in pruned.parameters()) < before
    assert gates_of(pruned) is None
    kept = {name: [sum(z > 0 for z in layer) for layer in v] for name, v in gates.values().items()}
    for name, counts in plan(pruned).counts.items():
        if name in ("EL", "DL"):
            assert list(counts) == kept[name]


def train(
    folder: Path,
    *,
    resume: str | None = None,
    model: Any = None,
    example: dict[str, torch.Tensor] | None = None,
    **options: Any,
) -> Any:
    example = example or data("bert")
    rows = [{name: tensor[row] for name, tensor in example.items()} for row in range(5)] * 4
    torch.manual_seed(0)
    arguments = TrainingArguments(
        output_dir=str(folder),
        num_train_epochs=2,
        per_device_train_batch_size=2,
        learning_rate=1e-3,
        save_strategy="epoch",
        logging_strategy="epoch",
        report_to="none",
        use_cpu=True,
        disable_tqdm=True,
        seed=3,
    )
    trainer = L0Trainer(
        model or build("bert", AutoModelForSequenceClassification),
        arguments,
        train_dataset=rows,
        gates="ES,EF",
        gates_speed=1000,
        **options,
    )
    trainer.train(resume_from_checkpoint=resume)
    return trainer


def test_train_resume_and_close(tmp_path: Path) -> None:
    whole = train(tmp_path / "whole", l0_target="50%", l0_warmup_updates=5)
    log = [entry for entry in whole.state.log_history if "loss" in entry]
    assert log[-1]["open_EF"] < log[0]["open_EF"] < 3 * 16
    assert log[-1]["l0_pruned"] > log[0]["l0_pruned"]
    example = data("bert")
    rows = [{name: tensor[row] for name, tensor in example.items()} for row in range(5)]
    metrics = whole.evaluate(rows)
    with torch.no_grad():
        closed_loss = close_gates(copy.deepcopy(whole.model)).eval()(**example).loss
    assert metrics["eval_closed_loss"] == pytest.approx(float(closed_loss), rel=1e-4)
    first = str(tmp_path / "whole" / "checkpoint-10")
    resumed = train(tmp_path / "resumed", l0_target="50%", l0_warmup_updates=5, resume=first)
    weights = resumed.model.state_dict()
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(weights[name], tensor), name

    checkpoint, pruned = tmp_path / "whole" / "checkpoint-20", tmp_path / "pruned"
    done = headprune("gates", checkpoint, "-o", tmp_path / "plan.json", "--model", pruned)
    assert done.status == 0, done.err
    expected = logits(close_gates(copy.deepcopy(whole.model)))
    torch.testing.assert_close(logits(from_pretrained(pruned)), expected, atol=1e-5, rtol=1e-5)
    saved = PruningPlan.load(tmp_path / "plan.json")
    assert saved.total_kept == saved.total // 2
    assert (checkpoint / "trainer_state.json").exists()
    assert not (pruned / "trainer_state.json").exists()
    assert saved.origin is not None
    assert (saved.origin.method, saved.origin.budget) == ("l0-gates", "50%")
    with pytest.raises(UsageError, match="has learned gates; close them first"):
        Folder.load(checkpoint).prune(saved)
    with pytest.raises(UsageError, match="has learned gates on ES,EF, which would be lost; close"):
        AutoModelForSequenceClassification.from_pretrained(checkpoint)
    shown = headprune("show", checkpoint)
    assert "learned gates of ES, EF, not closed yet: `headprune gates " in shown.out
    assert "not closed" not in headprune("show", pruned).out
    assert "which would be lost" in headprune("export", checkpoint, "--to", "onnx", "-o", "x").err
    assert "has no learned gates" in headprune("gates", pruned, "-o", tmp_path / "p.json").err


def test_resuming_where_the_files_of_a_family_have_older_names(tmp_path: Path) -> None:
    def trained(folder: str, resume: str | None = None) -> Any:
        model = small("vit", AutoModelForImageClassification)
        images = inputs_of(model)["pixel_values"].repeat(3, 1, 1, 1)[:5]
        example = {"pixel_values": images, "labels": torch.tensor([0, 1, 1, 0, 1])}
        return train(tmp_path / folder, model=model, example=example, l0_lambda=0.1, resume=resume)

    whole = trained("whole")
    checkpoint = tmp_path / "whole" / "checkpoint-10"
    weights = trained("resumed", resume=str(checkpoint)).model.state_dict()
    for name, tensor in whole.model.state_dict().items():
        assert torch.equal(weights[name], tensor), name
    done = headprune("gates", checkpoint, "-o", tmp_path / "plan.json", "--model", tmp_path / "p")
    assert done.status == 0, done.err


def test_the_target_of_an_earlier_training_closes_no_gates_of_a_later_one() -> None:
    model = classifier("bert")
    L0Trainer(model, gates="ES", l0_target="50%")
    L0Trainer(model, l0_lambda=0.0)
    assert plan(close_gates(model)).is_full  # all gates are still open


def test_gates_alone_are_trained_where_asked(tmp_path: Path) -> None:
    start = build("bert", AutoModelForSequenceClassification).state_dict()
    trainer = train(tmp_path, l0_lambda=0.05, gates_only=True)
    assert all(torch.equal(trainer.model.state_dict()[name], start[name]) for name in start)
    groups = {len(group["params"]): group for group in trainer.optimizer.param_groups}
    gates_group = groups[len(list(trainer.learned_gates.parameters()))]
    assert gates_group["initial_lr"] == pytest.approx(1.0)  # 1000 times that of the weights
    assert float(trainer.learned_gates.log_alpha("EF", 0).detach().std()) > 0
    assert all(weight.requires_grad for weight in trainer.model.parameters())


def test_frozen_weights_stay_frozen(tmp_path: Path) -> None:
    model = build("bert", AutoModelForSequenceClassification)
    embeddings = model.bert.embeddings
    embeddings.requires_grad_(False)
    start = {name: value.clone() for name, value in embeddings.state_dict().items()}
    trainer = train(tmp_path, model=model, l0_lambda=0.05)
    assert all(torch.equal(value, start[name]) for name, value in embeddings.state_dict().items())
    assert not any(weight.requires_grad for weight in embeddings.parameters())
    assert trainer.model.classifier.weight.requires_grad


def test_layers_that_share_weights_draw_their_gates_once_a_pass() -> None:
    options = {**SMALL["albert"], "num_hidden_groups": 1, "num_hidden_layers": 3}
    model = AlbertForSequenceClassification(AlbertConfig(**options))
    gates = add_gates(model, "ES")
    drawn: list[torch.Tensor] = []
    inputs = inputs_of(model)
    with mock.patch.object(hard_concrete, "sample", side_effect=hard_concrete.sample) as sample:
        model.train()
        for _ in range(2):
            model(**inputs).logits.sum().backward()
            drawn.append(gates.factors("ES", 0).detach())
    assert sample.call_count == 2
    assert not drawn[0].equal(drawn[1])
    copied = copy.deepcopy(model)
    copied(**inputs).logits.sum().backward()
    assert gates_of(copied) is not gates and gates.factors("ES", 0).equal(drawn[1])


@pytest.mark.parametrize("accepts_loss_kwargs", [True, False])
@pytest.mark.parametrize("own_loss", [True, False])
def test_accumulated_gradients_have_the_penalty_once(
    own_loss: bool, accepts_loss_kwargs: bool, tmp_path: Path
) -> None:
    rows = [
        {"input_ids": row, "attention_mask": torch.ones_like(row), "labels": torch.tensor(n % 2)}
        for n, row in enumerate(torch.randint(2, 40, (8, 5)))
    ]

    def mean_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> Any:
        losses = torch.nn.functional.cross_entropy(outputs["logits"], labels, reduction="none")
        return losses.sum() / (num_items_in_batch or len(labels))

    class Recorded(TrainerCallback):
        def on_pre_optimizer_step(self, *_: Any, model: Any = None, **__: Any) -> None:
            gradients.append(gates_of(model).scaled["ES_0"].grad.clone())

    gradients: list[torch.Tensor] = []
    for steps in (1, 4):
        model = classifier("bert")
        model.accepts_loss_kwargs = accepts_loss_kwargs
        arguments = TrainingArguments(
            output_dir=str(tmp_path),
            per_device_train_batch_size=8 // steps,
            gradient_accumulation_steps=steps,
            max_steps=1,
            max_grad_norm=0,
            save_strategy="no",
            report_to="none",
            use_cpu=True,
            disable_tqdm=True,
        )
        L0Trainer(
            model,
            arguments,
            gates="ES",
            l0_lambda=1000.0,  # the gradient is that of the penalty alone, nearly
            train_dataset=rows,
            callbacks=[Recorded()],
            compute_loss_func=mean_loss if own_loss else None,
        ).train()
    torch.testing.assert_close(gradients[0], gradients[1], rtol=1e-2, atol=1e-2)


def test_mistakes() -> None:
    model = classifier("bert")
    with pytest.raises(UsageError, match="gates: 'ED' is not one of ES, EF, EL"):
        add_gates(model, "ED")
    with pytest.raises(UsageError, match="the model has no learned gates"):
        close_gates(model)
    with pytest.raises(UsageError, match="give one of l0_lambda and l0_target"):
        L0Trainer(model)
    with pytest.raises(UsageError, match="l0_warmup_updates goes with l0_target"):
        L0Trainer(model, l0_lambda=1.0, l0_warmup_updates=5)
    add_gates(model, "ES")
    with pytest.raises(UsageError, match="gates EF: the model has gates on ES; close them first"):
        L0Trainer(model, gates="EF", l0_lambda=1.0)
    with pytest.raises(UsageError, match="has learned gates already"):
        add_gates(model, "ES")
