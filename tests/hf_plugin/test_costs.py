"""Parameters and FLOPs of plans, against the models themselves."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    PreTrainedModel,
    ViTMAEForPreTraining,
)
from typer.testing import CliRunner

import hf_plugin
from headprune import PruningPlan, UsageError
from headprune.cli.plan import app as plan_app
from headprune.cost import (
    forward_flops,
    head_parameters,
    known_flops,
    neuron_parameters,
    pruned_parameters,
    unit_cost,
)
from hf_plugin.folders import Folder
from hf_plugin.plans import model_shape, without_units_of_dropped_layers
from hf_plugin.random_batches import random_batch
from tests.command import headprune
from tests.hf_plugin.models import build
from tests.hf_plugin.small_models import SMALL, plan_of, small

TOKENS = 30


def counted_flops(model: PreTrainedModel) -> int:
    """The operations of torch's matrix products in one forward pass."""
    if model.main_input_name == "input_ids":
        inputs = {"input_ids": torch.ones(1, TOKENS, dtype=torch.long), "use_cache": False}
    else:
        inputs = random_batch(model, 1, TOKENS, seed=1)
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        model(**inputs)
    return int(counter.get_total_flops())


@pytest.mark.parametrize("family", ["gpt2", "opt", "llama", "qwen2", "gemma2", "granite"])
def test_flops_are_those_that_torch_counts(family):
    model = small(family, AutoModelForCausalLM, attention="eager")
    sizes = Folder(Path(), model).sizes
    full = PruningPlan.full(model_shape(model)).part(["DS", "DF"])
    rotations = counted_flops(model) - forward_flops(full, sizes, target=TOKENS)
    assert 0 <= rotations < 1000  # of rotary positions, which no plan prunes
    for second in (False, True):
        plan = plan_of(model, "DS", "DF", second=second)
        pruned = hf_plugin.prune(copy.deepcopy(model), plan)
        assert counted_flops(pruned) - rotations == forward_flops(plan, sizes, target=TOKENS)


@pytest.mark.parametrize("family", ["ernie", "llama", "mbart"])
def test_a_dropped_layer_takes_all_of_its_operations_with_it(family):
    """Also where the plan decides on layers and names not all of the sub-layers in them."""
    model = small(family, attention="eager")
    sizes, shape = Folder(Path(), model).sizes, model_shape(model)
    for components in (("EL",), ("DL",), ("ES", "EL"), ("EF", "DL"), ("ES", "EL", "DL")):
        named = [name for name in components if name in shape]
        if named:
            plan = plan_of(model, *named)
            lost = counted_flops(model) - counted_flops(hf_plugin.prune(copy.deepcopy(model), plan))
            cost = unit_cost("flops", sizes=sizes, shape=plan.units)
            assert cost(PruningPlan.full(plan.units)) - cost(plan) == lost


@pytest.mark.parametrize("family", ["vit", "dinov2", "yolos", "audio-spectrogram-transformer"])
def test_flops_are_those_of_all_patches(family):
    model = small(family, attention="eager")
    sizes = Folder(Path(), model).sizes
    full = PruningPlan.full(model_shape(model)).part(["ES", "EF"])
    patches = counted_flops(model) - forward_flops(full, sizes)
    assert 0 <= patches < 10_000  # of the embeddings, which no plan prunes
    plan = plan_of(model, "ES", "EF")
    pruned = hf_plugin.prune(copy.deepcopy(model), plan)
    assert counted_flops(pruned) - patches == forward_flops(plan, sizes)


@pytest.mark.parametrize("pos_att_type", [["c2p", "p2c"], ["p2c"], []])
@pytest.mark.parametrize("share_att_key", [True, False])
def test_flops_of_relative_positions(pos_att_type, share_att_key):
    """DeBERTa projects a table of relative positions in each layer, for each kind of product."""
    options = {"pos_att_type": pos_att_type, "share_att_key": share_att_key}
    model = build("deberta-v2", num_hidden_layers=2, **options).requires_grad_(False)
    sizes = Folder(Path(), model).sizes
    assert sizes.encoder_relative_products == len(pos_att_type)
    full = PruningPlan.full(model_shape(model)).part(["ES", "EF"])
    assert counted_flops(model) == forward_flops(full, sizes)
    for second in (False, True):
        plan = plan_of(model, "ES", "EF", second=second)
        pruned = hf_plugin.prune(copy.deepcopy(model), plan)
        assert counted_flops(pruned) == forward_flops(plan, sizes)


def test_flops_are_those_of_all_passes_through_shared_layers():
    # Three layers of two groups: the first two share their weights.
    options = {**SMALL["albert"], "num_hidden_layers": 3, "num_hidden_groups": 2}
    config = AutoConfig.for_model("albert", **options, attn_implementation="eager")
    model = AutoModel.from_config(config)
    sizes = Folder(Path(), model).sizes
    assert sizes.encoder_passes == (2, 1)
    with pytest.raises(UsageError, match="layers that share weights run 2, 1 times"):
        unit_cost("flops", sizes=sizes, shape=model_shape(model))
    full = PruningPlan.full(model_shape(model)).part(["ES", "EF"])
    rest = counted_flops(model) - forward_flops(full, sizes)
    assert 0 < rest < 10_000  # of the embeddings' projection and the pooler
    for second in (False, True):
        plan = plan_of(model, "ES", "EF", second=second)
        pruned = hf_plugin.prune(copy.deepcopy(model), plan)
        assert counted_flops(pruned) - forward_flops(plan, sizes) == rest
    # A plan of heads alone computes all neurons.
    heads = plan.part(["ES"])
    pruned = hf_plugin.prune(copy.deepcopy(model), heads)
    assert counted_flops(pruned) - forward_flops(heads, sizes) == rest


@pytest.mark.parametrize("family", ["ernie", "xmod", "mpnet", "albert", "xlm"])
def test_flops_of_a_masked_language_model_are_those_of_its_predictions_too(family):
    model = small(family, AutoModelForMaskedLM, attention="eager")
    sizes = Folder(Path(), model).sizes
    full = PruningPlan.full(model_shape(model))
    rest = counted_flops(model) - forward_flops(full, sizes)
    # ALBERT projects its embeddings from 8 to 16, which no plan prunes.
    assert rest == (2 * TOKENS * 8 * 16 if family == "albert" else 0)
    for component in full.units:
        plan = full.replaced_by(plan_of(model, component)).without_units_of_dropped_layers()
        pruned = hf_plugin.prune(copy.deepcopy(model), plan_of(model, component))
        assert counted_flops(pruned) - rest == forward_flops(plan, sizes)
        assert Folder(Path(), pruned).sizes == sizes


def test_flops_of_embeddings_of_another_width_are_not_known():
    config = AutoConfig.for_model("opt", **{**SMALL["opt"], "word_embed_proj_dim": 8})
    folder = Folder(Path(), AutoModelForCausalLM.from_config(config))
    assert known_flops(folder.plan, folder.sizes) is None
    folder = Folder(Path(), small("opt", AutoModelForCausalLM))
    assert known_flops(folder.plan, folder.sizes) is not None


def unusual(family: str) -> PreTrainedModel:
    """A model whose FLOPs are not known."""
    config = small(family).config.to_dict()
    if family == "vit_mae":
        sizes = {"decoder_hidden_size": 8, "decoder_num_hidden_layers": 1}
        sizes |= {"decoder_num_attention_heads": 2, "decoder_intermediate_size": 8}
        return ViTMAEForPreTraining(AutoConfig.for_model(**{**config, **sizes}))
    options = {"use_swiglu_ffn": True} if family == "dinov2" else {}
    return AutoModel.from_config(AutoConfig.for_model(**{**config, **options}))


def test_parameters_of_feed_forward_layers_of_another_kind_are_those_of_their_layers():
    model = unusual("dinov2")
    plan = plan_of(model, "ES", "EL")
    sizes = Folder(Path(), model).sizes
    before = sum(parameter.numel() for parameter in model.parameters())
    hf_plugin.prune(model, plan)
    left = sum(parameter.numel() for parameter in model.parameters())
    assert before - left == pruned_parameters(plan, sizes)


@pytest.mark.parametrize("family", ["mobilebert", "canine", "dinov2", "vit_mae"])
def test_flops_that_are_not_all_counted_are_refused_and_not_shown(family, tmp_path):
    unusual(family).save_pretrained(tmp_path)
    folder = Folder.load(tmp_path)
    assert known_flops(folder.plan, folder.sizes) is None
    options = ("--components", "ES", "--seed", 1, "-o", tmp_path / "plan.json")
    refused = headprune("plan", "--model", tmp_path, "--budget", "50% of flops", *options)
    assert refused.status == 2 and refused.err.startswith("error: budget of FLOPs: the ")
    assert refused.err.endswith(" are not counted; give a budget of parameters\n")
    planned = headprune("plan", "--model", tmp_path, "--budget", "50% of parameters", *options)
    assert planned.status == 0, planned.err
    assert "FLOPs       not known: the " in headprune("show", tmp_path).out


def test_flops_of_a_companion_stream():
    model = small("lilt", attention="eager")
    sizes = Folder(Path(), model).sizes
    full = PruningPlan.full(model_shape(model))
    others = counted_flops(model) - forward_flops(full, sizes)
    assert others == 2 * (TOKENS * 48 * 12 + 48 * 48)  # places to the layout; the pooler
    for components in (("ES", "EF"), ("EL",)):
        plan = full.replaced_by(plan_of(model, *components)).without_units_of_dropped_layers()
        pruned = hf_plugin.prune(copy.deepcopy(model), plan)
        assert counted_flops(pruned) - others == forward_flops(plan, sizes)


def test_the_parameters_of_a_group_and_of_a_gated_neuron():
    sizes = Folder(Path(), small("llama")).sizes
    # Two heads of queries of width 2, and one of keys and one of values: 16 x (4 + 2 + 2 + 4).
    assert head_parameters("DS", sizes) == 192
    assert neuron_parameters("DF", sizes) == 48  # 16 x 3, without biases
    with_biases = Folder(Path(), small("qwen2")).sizes
    assert head_parameters("DS", with_biases) == 200  # 8 biases of queries, keys and values


def test_a_budget_of_parameters_is_what_a_pruned_model_loses(tmp_path):
    small("llama").save_pretrained(tmp_path / "model")
    # Of 8 groups (192 each) and 24 neurons (48 each), 2688 parameters: half are 1344.
    options = ["--components", "DS,DF", "--budget", "50% of parameters", "--seed", "1"]
    arguments = ["--model", tmp_path / "model", *options, "-o", tmp_path / "plan.json"]
    result = CliRunner().invoke(plan_app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    folder = Folder.load(tmp_path / "model")
    lost = folder.parameters - folder.parameters_with(PruningPlan.load(tmp_path / "plan.json"))
    assert abs(lost - 1344) < 192  # up to one unit


def test_a_dropped_layer_of_a_bert_with_cross_attention_counts_once(tmp_path):
    options = {"is_decoder": True, "add_cross_attention": True}
    build("bert", AutoModelForCausalLM, **options).save_pretrained(tmp_path)
    folder = Folder.load(tmp_path)
    full = PruningPlan.full(model_shape(folder.model))
    layers = full.kept["EL"]
    plan = without_units_of_dropped_layers(
        replace(full, kept={**full.kept, "EL": [*layers[:-1], ()]}), "bert"
    )
    lost = folder.parameters - folder.parameters_with(plan)
    assert lost == pruned_parameters(plan, folder.sizes)
