"""The score movement against the sum over weights, by hand and in a fine-tuning."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForSequenceClassification
from typer.testing import CliRunner

import hf_plugin
from headprune import UsageError
from headprune.cli import app
from headprune.scores import HeadScores
from headprune.scores.movement import Movement
from hf_plugin.finetuning.models import load_classifier
from hf_plugin.finetuning.settings import Settings
from hf_plugin.finetuning.training import Schedule, encode, fine_tune
from hf_plugin.glue.data import GlueData
from hf_plugin.glue.tasks import TASKS
from hf_plugin.scores import movement as module
from hf_plugin.scores.classifier import Classifier
from hf_plugin.scores.losses import example_losses
from hf_plugin.scores.model import HuggingFaceModel
from hf_plugin.tokenizers import load_tokenizer
from tests.hf_plugin.made import write_model, write_task
from tests.hf_plugin.models import HEADS, LAYERS, SIZE, build
from tests.hf_plugin.scores.test_scores import close, data, tensor


def train(model, scored, steps):
    """Plain gradient descent; what Movement sums, summed over weights, and over gates."""
    movement = Movement(scored, ["ES", "EF"])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    by_weights = torch.zeros(LAYERS, HEADS)
    by_values = torch.zeros(LAYERS, HEADS)
    by_gates = {"ES": torch.zeros(LAYERS, HEADS), "EF": torch.zeros(LAYERS, 16)}
    batch = data("bert")
    for _ in range(steps):
        xi = {"ES": torch.ones(LAYERS, HEADS, requires_grad=True)}
        optimizer.zero_grad()
        with hf_plugin.masked(model, xi):
            example_losses(model(**batch), batch["labels"]).mean().backward()
        by_gates["ES"] -= xi["ES"].grad
        for number, layer in enumerate(model.bert.encoder.layer):
            output, value = layer.attention.output.dense.weight, layer.attention.self.value
            wide = layer.output.dense.weight
            for neuron in range(16):
                by_gates["EF"][number, neuron] -= wide[:, neuron].dot(wide.grad[:, neuron]).item()
            for head in range(HEADS):
                columns = slice(head * SIZE, (head + 1) * SIZE)
                product = output[:, columns] * output.grad[:, columns]
                by_weights[number, head] -= product.sum().item()
                product = value.weight[columns] * value.weight.grad[columns]
                bias = value.bias[columns] * value.bias.grad[columns]
                by_values[number, head] -= product.sum().item() + bias.sum().item()
        movement.add()
        optimizer.step()
    return movement, by_weights, by_values, by_gates


def test_movement_is_minus_weight_times_gradient_and_minus_the_gradient_of_gates():
    model = build("bert", AutoModelForSequenceClassification)
    movement, by_weights, by_values, by_gates = train(model, HuggingFaceModel(model), steps=3)
    close(tensor(movement.values), by_weights)
    close(tensor(movement.values), by_gates["ES"])
    close(tensor(movement.values), by_values)  # a gate may as well multiply the values
    close(tensor(movement.values, "EF"), by_gates["EF"])
    assert movement.steps == 3 and (by_weights.abs() > 1e-4).all()


@pytest.fixture(scope="module")
def classifier(tmp_path_factory):
    return write_model(tmp_path_factory.mktemp("classifier"))


@pytest.fixture(scope="module")
def glue(tmp_path_factory):
    return write_task(tmp_path_factory.mktemp("glue"), "sst2")


def run(*arguments: object):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


def test_the_command_fine_tunes_a_copy(classifier, glue, tmp_path):
    options = ("--task", "sst2", "--data-dir", glue, "--max-length", 24, "--batch-size", 4)
    both = ("--score", "movement", "--score", "gradient-raw")
    run("scores", classifier, *options, *both, "-o", tmp_path / "both")
    run("scores", classifier, *options, "--score", "gradient-raw", "-o", tmp_path / "one")
    movement, gradient, alone = (
        HeadScores.load(tmp_path / path)
        for path in ("both/movement.json", "both/gradient-raw.json", "one/gradient-raw.json")
    )
    assert gradient.values == alone.values  # the scored model itself is not trained
    assert movement.settings["steps"] == 3 and movement.settings["finetune"] == "1ep"
    assert "|seed:1|" in movement.signature and movement.data == "glue.sst2.train[12],24tok"
    assert any(value for row in movement.values["ES"] for value in row)


def test_gradients_are_not_clipped_and_the_training_is_the_same(
    classifier, glue, tmp_path, monkeypatch
):
    model = load_classifier(str(classifier), TASKS["sst2"], untrained=True)
    model.classifier.weight.data *= 300  # gradients that are clipped
    tokenizer = load_tokenizer(str(classifier))
    examples = GlueData(TASKS["sst2"], glue).load("train")
    schedule = Schedule(epochs=1, batch_size=8, learning_rate=1e-3, seed=1)
    norms, copies = [], []

    class Watched(Movement):
        def __init__(self, scored, components):
            super().__init__(scored, components)
            copies.append(scored.model)

        def add(self):
            norms.append(torch.stack([p.grad.norm() for p in copies[0].parameters()]).norm())
            super().add()

    monkeypatch.setattr(module, "Movement", Watched)
    options = {"components": ["ES"], "name": "sst2", "max_length": 24, "schedule": schedule}
    module.fine_tuned(model, tokenizer, examples, **options)
    assert len(norms) == 3 and max(norms) > 10
    torch.manual_seed(1)
    encoded = encode(examples, tokenizer, max_length=24)
    fine_tune(model, tokenizer, encoded, schedule=schedule, folder=tmp_path)
    for name, weight in model.state_dict().items():
        torch.testing.assert_close(copies[0].state_dict()[name], weight, msg=name)


def test_the_fine_tuning_of_a_comparison_is_that_after_pruning(classifier, glue):
    options = {"max_length": 24, "data_dir": glue, "hold_out": 50.0, "batch_size": 4}
    settings = Settings(
        task="sst2",
        model=str(classifier),
        epochs=2,
        learning_rate=1e-3,
        weight_decay=0.1,
        **options,
    )
    two, one = (
        Classifier(path=classifier, finetuning=each).scores(["movement"], seed=1)["movement"]
        for each in (settings, replace(settings, epochs=0))
    )
    assert "|finetune:2ep|batch_size:4|learning_rate:0.001|" in two.signature
    assert "|finetune:1ep|batch_size:4|learning_rate:0.001|" in one.signature
    assert two.settings["steps"] == 6 and one.settings["steps"] == 3
    assert two.settings["weight_decay"] == 0.1


def test_movement_needs_labels_and_a_fine_tuning(classifier, glue, tmp_path):
    options = ("--task", "sst2", "--data-dir", glue, "--max-length", 24, "-o", tmp_path / "out")
    with pytest.raises(UsageError, match="during a fine-tuning with labels"):
        run("scores", classifier, *options, "--score", "movement", "--without-labels")
    with pytest.raises(UsageError, match="are those of --score movement"):
        run("scores", classifier, *options, "--epochs", 2)
    with pytest.raises(UsageError, match="--permutations is that of --score shapley"):
        run("scores", classifier, *options, "--permutations", 5)
    with pytest.raises(UsageError, match="above 0"):
        run("scores", classifier, *options, "--score", "movement", "--epochs", 0)
