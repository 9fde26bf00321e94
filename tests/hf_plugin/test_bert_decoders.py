"""BERT and its relatives as decoders, whose layers attend to an encoder too."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    EncoderDecoderModel,
    PreTrainedModel,
)

import hf_plugin
from hf_plugin.folders import Folder
from hf_plugin.plans import model_shape
from hf_plugin.transformers_export import export_to_transformers
from tests.hf_plugin.small_models import SMALL, inputs_of, plan_of, small, zeroed

FAMILIES = ("bert", "bert-generation", "roformer", "rembert", "megatron-bert")
MEMORY = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(3))
DECODER = {"is_decoder": True, "add_cross_attention": True, "bos_token_id": 1, "eos_token_id": 2}


def decoder(family: str) -> PreTrainedModel:
    options = {**SMALL.get(family, SMALL["ernie"]), **DECODER}
    torch.manual_seed(1)
    config = AutoConfig.for_model(family, **options)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def output_of(model: Any) -> Tensor:
    with torch.no_grad():
        return model(**inputs_of(model), encoder_hidden_states=MEMORY).logits  # type: ignore


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("second", [False, True], ids=["top", "bottom"])
def test_heads_of_its_attention_to_an_encoder(family, second, tmp_path):
    model = decoder(family)
    assert {name: model_shape(model)[name] for name in ("ES", "ED")} == {
        "ES": (4, 4),
        "ED": (4, 4),
    }
    plan = plan_of(model, "ES", "ED", second=second)
    unpruned, expected = output_of(model), output_of(zeroed(model, plan))
    assert not torch.allclose(unpruned, expected, atol=1e-3)
    with hf_plugin.masked(model, plan):
        close(output_of(model), expected)
    model.save_pretrained(tmp_path / "model")
    folder = Folder.load(tmp_path / "model")
    pruned = folder.prune(plan)
    close(output_of(pruned.model.eval()), expected)
    pruned.save(tmp_path / "pruned")
    again = Folder.load(tmp_path / "pruned")
    assert again.plan == pruned.plan and again.parameters == folder.parameters_with(plan)
    close(output_of(AutoModelForCausalLM.from_pretrained(tmp_path / "pruned")), expected)
    export_to_transformers(tmp_path / "pruned", tmp_path / "stock")
    close(output_of(type(model).from_pretrained(tmp_path / "stock")), expected)


def test_a_dropped_layer_takes_its_attention_to_the_encoder_with_it(tmp_path):
    model = decoder("bert")
    plan = plan_of(model, "EL")
    with hf_plugin.masked(model, plan):
        expected = output_of(model)
    hf_plugin.prune(model, plan)
    assert hf_plugin.plan(model).kept["ED"] == ((0, 1, 2, 3), ())
    close(output_of(model), expected)
    model.save_pretrained(tmp_path)
    close(output_of(AutoModelForCausalLM.from_pretrained(tmp_path)), expected)


@pytest.mark.parametrize("second", [False, True], ids=["top", "bottom"])
@pytest.mark.parametrize("kind", [("ES", "ED"), ("EL",)], ids=["heads", "layers"])
def test_two_pruned_berts_generate_with_and_without_a_cache(kind, second):
    torch.manual_seed(1)
    encoder, whole = small("ernie"), decoder("bert")
    hf_plugin.prune(encoder, plan_of(encoder, "ES"))
    pruned = hf_plugin.prune(copy.deepcopy(whole), plan_of(whole, *kind, second=second))
    inputs = inputs_of(encoder)
    options: dict[str, Any] = dict(
        decoder_start_token_id=1,
        pad_token_id=0,
        eos_token_id=None,
        max_new_tokens=5,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    found = []
    for part in (pruned, whole):
        together = EncoderDecoderModel(encoder=encoder, decoder=part).eval()
        for use_cache in (False, True):
            found.append(together.generate(**inputs, use_cache=use_cache, **options))
    for now, then in zip(found[0].logits, found[1].logits, strict=True):
        close(now, then)
    assert not torch.allclose(found[0].logits[0], found[2].logits[0], atol=1e-3)
