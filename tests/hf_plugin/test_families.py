"""The table of families: what it finds in a model, and what it refuses."""

from __future__ import annotations

import pytest
import torch
import torch.nn.utils.prune
from torch import nn
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSequenceClassification,
    EncoderDecoderModel,
)

from headprune import UsageError
from hf_plugin.families import attentions
from tests.hf_plugin.models import FAMILIES, HEADS, LAYERS, SIZE, build, shape_of


@pytest.mark.parametrize("family", FAMILIES)
def test_finds_every_layer_and_reads_the_head_size_from_it(family):
    found = attentions(build(family))
    assert tuple(found) == tuple(shape_of(family))
    for layers in found.values():
        assert len(layers) == LAYERS
        for attention in layers:
            assert attention.unit_size == SIZE
            assert (attention.units, attention.kept) == (HEADS, tuple(range(HEADS)))
            assert attention.output.in_features == HEADS * SIZE


@pytest.mark.parametrize("auto", [AutoModelForMaskedLM, AutoModelForSequenceClassification])
def test_looks_below_a_task_head(auto):
    model = build("roberta", auto)
    (layers,) = attentions(model).values()
    assert layers[-1].output is model.roberta.encoder.layer[-1].attention.output.dense


def refused(model) -> str:
    with pytest.raises(UsageError) as caught:
        attentions(model)
    (line,) = str(caught.value).splitlines()
    return line


SMALL = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2, "num_landmarks": 2}


def build_stock(family, sizes=None):
    small = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model(
        family, vocab_size=20, **(sizes or {**small, "intermediate_size": 8})
    )
    return AutoModel.from_config(config)


def test_refuses_two_towers_at_once():
    tower = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = AutoConfig.for_model(
        "clip",
        text_config={**tower, "vocab_size": 20, "intermediate_size": 8},
        vision_config={**tower, "image_size": 8, "patch_size": 4, "intermediate_size": 8},
    )
    line = refused(AutoModel.from_config(config))
    assert "clip: prune its towers, CLIPTextModel and CLIPVisionModel" in line


def test_groups_of_several_albert_layers_are_refused():
    config = {**SMALL, "intermediate_size": 8, "embedding_size": 8, "inner_group_num": 2}
    config.pop("num_landmarks")
    assert "inner_group_num above 1" in refused(build_stock("albert", config))


def test_refuses_an_unknown_family_and_says_where_the_known_are():
    line = refused(build_stock("nystromformer", SMALL))
    assert "nystromformer is not a known family; docs/guides/families.md lists all" in line


def test_refuses_what_is_no_transformers_model():
    assert "Linear is no transformers model" in refused(nn.Linear(2, 2))


def test_refuses_linears_that_are_not_plain():
    class Quantised(nn.Linear):
        pass

    model = build("bert")
    model.encoder.layer[1].attention.self.key = Quantised(24, 24)
    line = refused(model)
    assert "ES: layer 1: attention.self.key" in line and "Quantised" in line


def test_a_width_that_is_not_64_times_heads_is_read_not_guessed():
    model = build("bert", hidden_size=32, num_attention_heads=2)
    (layers,) = attentions(model).values()
    assert {(a.units, a.unit_size) for a in layers} == {(2, 16)}


def test_a_composite_says_what_to_do():
    encoder, decoder = build("bert"), build("bert", AutoModelForCausalLM, is_decoder=True)
    model = EncoderDecoderModel(encoder=encoder, decoder=decoder)
    assert "prune its encoder and decoder, then put them together" in refused(model)


def test_weights_that_torch_prunes_itself_are_refused():
    model = build("bert")
    torch.nn.utils.prune.l1_unstructured(model.encoder.layer[0].attention.self.query, "weight", 3)
    assert "ES: layer 0: attention.self.query" in refused(model)
