"""Behaviour of transformers 4 with pruned heads, and checkpoints that it wrote."""

from __future__ import annotations

import json

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel, AutoModelForMaskedLM, AutoModelForSequenceClassification

import hf_plugin
from headprune import DataError
from tests.hf_plugin.models import HEADS, LAYERS, batch, build, first

WITH_ES_ALONE = ("bert", "roberta", "xlm-roberta", "camembert", "electra", "distilbert")
PRUNED = {0: list(range(1, HEADS)), -1: [0]}
families = pytest.mark.parametrize("family", WITH_ES_ALONE)


def heads_by_layer(model) -> list[int]:
    attentions = model(**batch(), output_attentions=True).attentions
    return [layer.shape[1] for layer in attentions]


@families
def test_attention_weights_have_one_map_for_each_head_left(family):
    model = build(family, attn_implementation="eager")
    hf_plugin.prune_heads(model, PRUNED)
    assert heads_by_layer(model) == [1, HEADS, HEADS - 1]


@families
def test_the_same_after_saving_and_loading(family, tmp_path):
    hf_plugin.prune_heads(build(family), PRUNED).save_pretrained(tmp_path)
    model = AutoModel.from_pretrained(tmp_path, attn_implementation="eager")
    assert heads_by_layer(model) == [1, HEADS, HEADS - 1]


@families
def test_the_same_in_a_model_made_from_the_config(family):
    config = hf_plugin.prune_heads(build(family), PRUNED).config
    model = AutoModel.from_config(config, attn_implementation="eager").eval()
    assert heads_by_layer(model) == [1, HEADS, HEADS - 1]


@families
def test_pruning_goes_on_through_saving_and_loading(family, tmp_path):
    model = hf_plugin.prune_heads(build(family), {0: [1], 1: [1, 2]})
    for step, more in enumerate(({0: [2]}, {2: [1], 1: [3]})):
        model.save_pretrained(tmp_path / str(step))
        model = AutoModel.from_pretrained(tmp_path / str(step), attn_implementation="eager")
        hf_plugin.prune_heads(model, more)
    assert heads_by_layer(model) == [2, 1, 3]
    assert hf_plugin.head_plan(model).kept["ES"] == ((0, 3), (0,), (0, 2, 3))


@families
def test_a_head_mask_has_gradients_and_silences_its_heads(family):
    model = build(family)
    mask = torch.ones(LAYERS, HEADS)
    mask[0, 0] = mask[-1, :-1] = 0
    mask.requires_grad_()
    with hf_plugin.masked(model, mask):
        output = first(model)
    output.sum().backward()
    assert mask.grad.isfinite().all() and (mask.grad != 0).any()
    assert not torch.allclose(output, first(model), atol=1e-3)
    name = "transformer.layer" if family == "distilbert" else "encoder.layer"
    part = "attention.v_lin" if family == "distilbert" else "attention.self.value"
    values = model.get_submodule(f"{name}.0.{part}")
    rows = values.weight.grad.view(HEADS, -1)
    assert (rows[0] == 0).all() and (rows[1:] != 0).any(1).all()


def as_transformers_4_wrote(folder, model, heads) -> None:
    """Convert a saved folder to that of transformers 4: a BERT with `pruned_heads`."""
    hf_plugin.prune_heads(model, heads).save_pretrained(folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    for key in ("kept_heads", "uniform_heads", "auto_map", "headprune", "transformers_weights"):
        config.pop(key, None)
    config["model_type"] = config["model_type"].removeprefix("headpruned-")
    config["architectures"] = [name.removeprefix("HeadPruned") for name in config["architectures"]]
    config["pruned_heads"] = {str(layer): [*numbers] for layer, numbers in heads.items()}
    path.write_text(json.dumps(config))


def edit_config(folder, **changes) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


@pytest.mark.parametrize("auto", [AutoModelForSequenceClassification, None])
@families
def test_a_checkpoint_of_transformers_4(family, auto, tmp_path):
    model = build(family, AutoModelForSequenceClassification)
    as_transformers_4_wrote(tmp_path / "old", model, {0: [1, 2], 2: [0]})
    with pytest.raises(RuntimeError, match="size"):  # as transformers 5 alone reads it
        AutoModelForSequenceClassification.from_pretrained(tmp_path / "old")
    loaded = hf_plugin.from_pretrained(tmp_path / "old", auto)
    assert torch.equal(first(loaded), first(model))
    assert hf_plugin.head_plan(loaded).kept["ES"] == ((0, 3), (0, 1, 2, 3), (1, 2, 3))
    loaded.save_pretrained(tmp_path / "new")
    again = AutoModelForSequenceClassification.from_pretrained(tmp_path / "new")
    assert torch.equal(first(again), first(model))


@pytest.mark.parametrize(
    ("written", "heads"),
    [
        ({"-1": [0, 2]}, {2: [0, 2]}),
        ({"-1": [0], "2": [1]}, {2: [0, 1]}),
        ({"2": [1, 0], "-1": [0, 3], "-3": [2]}, {2: [0, 1, 3], 0: [2]}),
        ({"-2": [0, 1, 2, 3], "0": []}, {1: range(4)}),
    ],
)
@families
def test_layers_that_were_counted_from_the_top(family, written, heads, tmp_path):
    model = build(family)
    as_transformers_4_wrote(tmp_path, model, heads)
    edit_config(tmp_path, pruned_heads=written)
    assert torch.equal(first(hf_plugin.from_pretrained(tmp_path)), first(model))


def test_its_names_for_weights_of_long_ago(tmp_path):
    """BERT's first checkpoints call the LayerNorm's parameters gamma and beta."""
    model = build("bert", AutoModelForMaskedLM)
    as_transformers_4_wrote(tmp_path, model, {1: [0]})
    weights = load_file(tmp_path / "model.safetensors")
    renamed = {
        name.replace("LayerNorm.weight", "LayerNorm.gamma").replace(
            "LayerNorm.bias", "LayerNorm.beta"
        ): tensor
        for name, tensor in weights.items()
    }
    assert set(renamed) != set(weights)
    save_file(renamed, tmp_path / "model.safetensors", metadata={"format": "pt"})
    assert torch.equal(first(hf_plugin.from_pretrained(tmp_path)), first(model))


def test_from_pretrained_reads_every_other_folder_as_transformers_does(tmp_path):
    stock, pruned = build("bert"), hf_plugin.prune_heads(build("bert"), PRUNED)
    for name, model in (("stock", stock), ("pruned", pruned)):
        model.save_pretrained(tmp_path / name)
        loaded = hf_plugin.from_pretrained(tmp_path / name)
        assert type(loaded) is type(model)
        assert torch.equal(first(loaded), first(model))


@pytest.mark.parametrize(
    ("heads", "message"),
    [
        ({"-4": [0]}, "ES: there is no layer -4, the model has 3"),
        ({"7": [0]}, "ES: there is no layer 7, the model has 3"),
        ({"0": [4]}, "ES: layer 0 has no head 4, the unpruned model has 4"),
        ({"first": [0]}, "ES: 'first' is no layer number"),
        ([0, 1], "give a HeadPlan or a dict"),
    ],
)
def test_a_config_that_makes_no_sense(heads, message, tmp_path):
    as_transformers_4_wrote(tmp_path, build("bert"), {0: [1]})
    edit_config(tmp_path, pruned_heads=heads)
    with pytest.raises(DataError) as caught:
        hf_plugin.from_pretrained(tmp_path)
    line = str(caught.value)
    assert line.startswith(f"{tmp_path}: pruned_heads of its config: {message}")
