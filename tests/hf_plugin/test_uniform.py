"""The form uniform: attention scores times 0, as in the first version of the paper's code."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification

import hf_plugin
from headprune import HeadPlan, UsageError
from headprune.cost import forward_flops
from headprune.model import computed_plan_of
from headprune.speed.forward_pass import Conditions
from headprune.speed.measure import forward_pass
from hf_plugin.families import form_of
from hf_plugin.folders import Folder
from tests.command import headprune
from tests.hf_plugin.models import (
    FAMILIES,
    HEADS,
    NONE,
    SIZE,
    SOME,
    batch,
    build,
    clone,
    first,
    plan_for,
)

families = pytest.mark.parametrize("family", FAMILIES)


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def plain_layer(layer, x, mask, kept):
    """A BERT layer in loops: scores of heads that are not kept are multiplied by 0."""
    attention, out = layer.attention.self, layer.attention.output
    result = out.dense.bias.expand(*x.shape).clone()
    for sentence in range(len(x)):
        for head in range(HEADS):
            rows = slice(head * SIZE, (head + 1) * SIZE)
            q, k, v = (
                x[sentence] @ linear.weight[rows].T + linear.bias[rows]
                for linear in (attention.query, attention.key, attention.value)
            )
            scores = q @ k.T / math.sqrt(SIZE) * float(head in kept)
            scores[:, ~mask[sentence].bool()] = -math.inf
            result[sentence] += scores.softmax(-1) @ v @ out.dense.weight[:, rows].T
    return layer.feed_forward_chunk(out.LayerNorm(result + x))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_agrees_with_a_plain_reference(attention):
    model = build("bert", attn_implementation=attention)
    inputs = batch()
    x = model.embeddings(inputs["input_ids"])
    for layer, kept in zip(model.encoder.layer, SOME.kept["ES"], strict=True):
        x = plain_layer(layer, x, inputs["attention_mask"], kept)
    pruned = hf_plugin.prune_heads(model, SOME, form="uniform")
    assert pruned is model and hf_plugin.head_plan(model) == SOME
    close(first(model), x)


@families
def test_pruned_heads_attend_evenly_to_all_but_padding(family):
    plan = plan_for(family, NONE)
    model = build(family, attn_implementation="eager")
    hf_plugin.prune_heads(model, plan, form="uniform")
    kwargs = {} if family != "marian" else {"decoder_input_ids": batch()["input_ids"]}
    outputs = model(**batch(), **kwargs, output_attentions=True)
    weights = outputs.get("attentions") or outputs.encoder_attentions
    expected = batch()["attention_mask"] / batch()["attention_mask"].sum(-1, keepdim=True)
    for number, layer in enumerate(weights):
        assert layer.shape == (2, HEADS, 7, 7)
        if family == "modernbert" and number % 2:  # a layer that sees a window only
            continue
        for sentence, length in ((0, 7), (1, 5)):
            even = expected[sentence].expand(HEADS, length, 7)
            close(layer[sentence, :, :length], even)


@families
def test_it_is_neither_the_whole_model_nor_equation_2(family):
    plan = plan_for(family, SOME)
    model = build(family)
    whole = first(model)
    with hf_plugin.masked(model, plan):
        masked = first(model)
    uniform = first(hf_plugin.prune_heads(model, plan, form="uniform"))
    assert (uniform - whole).abs().max() > 5e-5  # attention is weak where weights are random
    assert (uniform - masked).abs().max() > 1e-2


@families
def test_round_trip(family, tmp_path):
    plan = plan_for(family, SOME)
    model = hf_plugin.prune_heads(build(family), plan, form="uniform")
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    close(first(loaded), first(model))
    close(first(clone(model)), first(model))
    assert hf_plugin.head_plan(loaded) == plan


def test_queries_and_keys_of_uniform_heads_get_no_gradient_and_values_do():
    model = build("bert", AutoModelForSequenceClassification)
    hf_plugin.prune_heads(model, {0: [1]}, form="uniform")
    model(**batch(), labels=torch.tensor([0, 1])).loss.backward()
    attention = model.bert.encoder.layer[0].attention.self
    rows = slice(SIZE, 2 * SIZE)
    for linear in (attention.query, attention.key):
        assert (linear.weight.grad[rows] == 0).all()
        assert (linear.weight.grad[:SIZE] != 0).any()
    assert (attention.value.weight.grad[rows] != 0).all()


def test_uniform_twice_and_then_removal_add_up(tmp_path):
    model = build("bert")
    hf_plugin.prune_heads(model, {0: [1]}, form="uniform")
    hf_plugin.prune_heads(model, {0: [3], 2: [0]}, form="uniform")
    once = hf_plugin.prune_heads(build("bert"), {0: [1, 3], 2: [0]}, form="uniform")
    close(first(model), first(once))
    xi = torch.ones(3, HEADS)
    xi[0, 0] = 0
    with hf_plugin.masked(model, xi):
        expected = first(model)
    hf_plugin.prune_heads(model, {0: [0]})
    close(first(model), expected)
    assert hf_plugin.head_plan(model).kept["ES"] == ((2,), (0, 1, 2, 3), (1, 2, 3))
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    close(first(loaded), expected)
    assert loaded.config.uniform_heads == {"ES": [[1, 3], [], [0]]}


def test_an_unknown_form_and_a_uniform_head_to_remove():
    model = hf_plugin.prune_heads(build("bert"), {0: [1]}, form="uniform")
    with pytest.raises(UsageError, match="form: 'gone' is not one of remove, uniform"):
        hf_plugin.prune_heads(model, {0: [0]}, form="gone")
    with pytest.raises(UsageError, match="ES: layer 0: head 1 is uniform; to remove"):
        hf_plugin.prune_heads(model, {0: [0, 1]})
    before = first(model)
    hf_plugin.prune_heads(model, {0: [1]}, form="uniform")
    assert torch.equal(first(model), before)


def test_a_full_plan_leaves_the_model_as_it_is():
    model = build("bert")
    hf_plugin.prune_heads(model, HeadPlan.full({"ES": (HEADS,) * 3}), form="uniform")
    assert model.config.model_type == "bert"


def test_a_plan_removes_uniform_heads_too_and_a_dict_leaves_them():
    model, whole = build("bert"), build("bert")
    hf_plugin.prune_heads(model, SOME, form="uniform")
    assert form_of(model) == "uniform"
    with hf_plugin.masked(whole, SOME):
        expected = first(whole)
    with hf_plugin.masked(model, SOME):
        close(first(model), expected)
    hf_plugin.prune_heads(model, {0: [0]})
    assert form_of(model) == "remove+uniform"
    with hf_plugin.masked(whole, hf_plugin.head_plan(model)):
        expected = first(whole)
    hf_plugin.prune_heads(model, hf_plugin.head_plan(model))
    close(first(model), expected)
    assert form_of(model) == "remove" and model.config.uniform_heads is None


def test_uniform_heads_are_computed_and_removed_ones_are_not(tmp_path):
    model = build("bert")
    hf_plugin.prune_heads(model, {0: [0]})
    hf_plugin.prune_heads(model, {0: [1], 2: [3]}, form="uniform")
    model.save_pretrained(tmp_path)
    assert form_of(model) == "remove+uniform"
    folder = Folder.load(tmp_path)
    computed = computed_plan_of(folder)
    assert computed.kept["ES"] == ((1, 2, 3), (0, 1, 2, 3), (0, 1, 2, 3))
    shown = headprune("show", tmp_path).out
    assert f"-> {forward_flops(computed, folder.sizes):,}" in shown
    assert "remove+uniform: 2 pruned heads are in the model, and are computed" in shown
    timed = forward_pass(tmp_path, Conditions(batch=2, length=8, threads=1, device="cpu"))
    assert timed.flops == 2 * forward_flops(computed, folder.sizes, source=8)
