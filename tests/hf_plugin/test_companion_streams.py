"""Heads that write to two streams of hidden states: LiLT's text and layout.

The battery of all families has the rest: ``test_every_family``.
"""

from __future__ import annotations

import copy
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from torch import Tensor
from transformers import (
    AutoModelForSequenceClassification,
    LayoutLMv3Tokenizer,
    LayoutXLMTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

import hf_plugin
from headprune import UsageError
from headprune.gates import gated
from headprune.scores.magnitude import magnitude
from headprune.scores.movement import Movement
from headprune.scores.units import parts_of
from hf_plugin.families import attentions
from hf_plugin.gates import add_gates, close_gates, gates_of
from hf_plugin.layerdrop import add_layerdrop
from hf_plugin.scores.model import HuggingFaceModel
from hf_plugin.tokenizers import load_tokenizer
from tests.hf_plugin.small_models import HEADS, LAYERS, inputs_of, output_of, small

STREAMS = {"": 12, "layout_": 3}
"""The prefix of a stream's projections, and the width of one head in it."""


@pytest.fixture
def model() -> PreTrainedModel:
    return small("lilt", AutoModelForSequenceClassification)


def logits(model: PreTrainedModel) -> Tensor:
    with torch.no_grad():
        return output_of(model)


def close(found: Tensor, expected: Tensor) -> None:
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_a_gate_that_draws_is_one_for_both_streams(model):
    drawn: list[Tensor] = []

    def draw(_: Tensor) -> Tensor:
        drawn.append(torch.rand(HEADS))
        return drawn[-1]

    with gated([(attentions(model)["ES"][0], draw)]):
        found = logits(model)
    assert len(drawn) == 1
    with hf_plugin.masked(model, {"ES": torch.stack([drawn[0], torch.ones(HEADS)])}):
        close(found, logits(model))


def test_gates_of_layers_mix_both_streams(model):
    def mix(_: Any, inputs: Any, outputs: Any) -> Any:
        pairs = zip(inputs, outputs, strict=False)
        return tuple(0.3 * after + 0.7 * before for before, after in list(pairs)[:2])

    with hf_plugin.masked(model, {"EL": torch.tensor([[0.3], [1.0]])}):
        found = logits(model)
    hook = model.base_model.encoder.layer[0].register_forward_hook(mix)
    close(found, logits(model))
    hook.remove()
    assert not torch.allclose(found, logits(model), atol=1e-3)


def test_layerdrop_passes_on_both_streams(model):
    with hf_plugin.masked(model, {"EL": torch.zeros(LAYERS, 1)}):
        expected = logits(model)
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    add_layerdrop(model.train(), 1.0)
    close(logits(model), expected)


@pytest.mark.parametrize("reentrant", [False, True])
def test_learned_gates_train_with_checkpointing_and_close(model, reentrant):
    gates = add_gates(model, "ES,EF,EL")
    for parameter in gates.scaled.values():
        parameter.data.zero_()  # at 0 or 1 gates would have no gradient
    model.train()
    expected = _gradients(model)
    model.gradient_checkpointing_enable({"use_reentrant": reentrant})
    found = _gradients(model)
    for name, gradient in expected.items():
        close(found[name], gradient)
    assert expected["headprune_gates.scaled.ES_0"].abs().max() > 0

    model.eval()
    for number, parameter in enumerate(gates.scaled.values()):
        torch.manual_seed(number)
        parameter.data = 4 * torch.randn_like(parameter)
    gates.scaled["EL_0"].data.fill_(1.0)
    expected_logits = logits(model)
    pruned = close_gates(copy.deepcopy(model))
    assert gates_of(pruned) is None
    close(logits(pruned), expected_logits)


def _gradients(model: PreTrainedModel) -> dict[str, Tensor]:
    model.zero_grad()
    torch.manual_seed(1)
    model(**inputs_of(model), labels=torch.tensor([0, 1])).loss.backward()
    return {
        name: parameter.grad.clone()
        for name, parameter in model.named_parameters()
        if parameter.grad is not None
    }


def test_magnitude_is_that_of_the_weights_of_both_streams(model):
    found = magnitude(parts_of(HuggingFaceModel(model), ["ES"]))["ES"]
    for layer, values in zip(model.base_model.encoder.layer, found, strict=True):
        for head, value in enumerate(values):
            squares = 0.0
            for stream, size in STREAMS.items():
                place = slice(head * size, (head + 1) * size)
                for name in ("query", "key", "value"):
                    weight = layer.attention.self.get_submodule(f"{stream}{name}").weight
                    squares += float(weight[place].detach().square().sum())
                output = layer.attention.get_submodule(f"{stream}output").dense.weight
                squares += float(output[:, place].detach().square().sum())
            assert value == pytest.approx(squares**0.5)


def test_movement_is_minus_the_gradient_of_gates_on_both_streams(model):
    movement = Movement(HuggingFaceModel(model), ["ES"])
    xi = torch.ones(LAYERS, HEADS, requires_grad=True)
    with hf_plugin.masked(model, {"ES": xi}):
        model(**inputs_of(model), labels=torch.tensor([0, 1])).loss.backward()
    movement.add()
    assert xi.grad is not None
    close(torch.tensor(movement.values["ES"], dtype=torch.float32), -xi.grad)


def test_passes_in_several_threads_and_copies_after_a_broken_one(model):
    weights = torch.linspace(0, 1, HEADS, requires_grad=True)

    def factors(_: Tensor) -> Tensor:
        return weights * 2  # has a history, with which no tensor is copied

    batch = inputs_of(model)
    with gated((attention, factors) for attention in attentions(model)["ES"]):
        expected = model(**batch).logits

        def run(_: int) -> Tensor:
            return model(**batch).logits.detach()

        with ThreadPoolExecutor(4) as threads:
            for found in threads.map(run, range(40)):
                close(found, expected.detach())

        layout = attentions(model)["ES"][0].companions[0].output
        hook = layout.register_forward_pre_hook(lambda *_: 1 / 0, prepend=True)
        with pytest.raises(ZeroDivisionError):
            model(**batch)
        hook.remove()
        close(copy.deepcopy(model)(**batch).logits.detach(), expected.detach())


def test_a_tokenizer_that_needs_the_places_of_words_is_refused(tmp_path: Path) -> None:
    words = ["<s>", "<pad>", "</s>", "<unk>", "<mask>", "a"]
    vocabulary = {word: number for number, word in enumerate(words)}
    LayoutLMv3Tokenizer(vocab=vocabulary, merges=[]).save_pretrained(tmp_path / "boxes")
    LayoutXLMTokenizer(vocab=[(word, -1.0) for word in words]).save_pretrained(tmp_path / "xlm")
    for name in ("boxes", "xlm"):
        with pytest.raises(UsageError, match=f"{name}: its tokenizer takes words with their place"):
            load_tokenizer(str(tmp_path / name))
    plain = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=plain).save_pretrained(tmp_path / "texts")
    assert len(load_tokenizer(str(tmp_path / "texts"))) == len(words)
