"""The battery of properties that every family has, on two small layers each.

Tests beside this one have the same properties, and many more, for the families of
``tests.hf_plugin.models``.
"""

from __future__ import annotations

import copy
import inspect
import pickle
from typing import Any

import pytest
import torch
from transformers import AutoModel, AutoModelForCausalLM, AutoModelForSeq2SeqLM

import hf_plugin
from headprune.components import HEADS as ATTENTION
from headprune.components import LAYERS as STACKS
from headprune.components import NEURONS as FEED_FORWARDS
from hf_plugin import modeling_headpruned
from hf_plugin.families import attentions
from hf_plugin.folders import Folder
from hf_plugin.head_names import FAMILIES
from hf_plugin.plans import model_shape
from hf_plugin.sublayers import width_of
from hf_plugin.transformers_export import export_to_transformers
from tests.hf_plugin import models
from tests.hf_plugin.small_models import (
    HEADS,
    LAYERS,
    NEURONS,
    SMALL,
    inputs_of,
    output_of,
    plan_of,
    small,
    zeroed,
)

families = pytest.mark.parametrize("family", SMALL)
GENERATES = ("mbart", "pegasus", "m2m_100", "plbart", "blenderbot", "blenderbot-small")


def close(a: Any, b: Any, atol: float = 1e-5) -> None:
    torch.testing.assert_close(a, b, atol=atol, rtol=1e-5)


def test_no_family_is_without_these_tests():
    assert {*SMALL, *models.FAMILIES} == set(FAMILIES)


@families
def test_every_unit_is_found(family):
    model = small(family)
    shape = model_shape(model)
    for name, layers in shape.items():
        units = 1 if name in STACKS else HEADS if name in ATTENTION else NEURONS
        assert layers == (units,) * LAYERS, name
    for by_layer in attentions(model).values():
        for attention in by_layer:
            assert attention.unit_size * HEADS == width_of(attention.output)


@families
@pytest.mark.parametrize("second", [False, True], ids=["top", "bottom"])
def test_removed_heads_equal_masked_ones_and_zeros_in_a_stock_model(family, second):
    for attention in ("eager", "") if small(family)._supports_sdpa else ("eager",):
        model = small(family, attention=attention)
        plan = plan_of(model, *ATTENTION, second=second)
        with torch.no_grad():
            unpruned, expected = output_of(model), output_of(zeroed(model, plan))
            with hf_plugin.masked(model, plan):
                close(output_of(model), expected)
            assert not torch.allclose(expected, unpruned, atol=1e-3)  # the heads matter
            close(output_of(hf_plugin.prune(model, plan)), expected)
        assert hf_plugin.head_plan(model) == plan


@families
@pytest.mark.parametrize("second", [False, True], ids=["top", "bottom"])
def test_removed_neurons_and_layers_equal_masked_ones(family, second):
    model = small(family)
    for kind in (FEED_FORWARDS, STACKS):
        pruned = copy.deepcopy(model)
        plan = plan_of(model, *kind, second=second)
        if not plan.units:
            continue
        with torch.no_grad(), hf_plugin.masked(model, plan):
            expected = output_of(model)
        if kind == FEED_FORWARDS:
            close(expected, output_of(zeroed(model, plan)))
        assert not torch.allclose(expected, output_of(model), atol=1e-3)
        close(output_of(hf_plugin.prune(pruned, plan)), expected)


@families
def test_attention_weights_are_those_of_the_heads_left(family):
    model = small(family, attention="eager")
    plan = plan_of(model, *ATTENTION)
    with torch.no_grad():
        expected = model(**inputs_of(model), output_attentions=True)
        found = hf_plugin.prune(model, plan)(**inputs_of(model), output_attentions=True)
    for component, name in _maps(expected).items():
        lower = 1 if family == "canine" else 0  # layers that are not pruned
        both = (expected[name][lower:], found[name][lower:])
        of_layers = zip(*both, plan.kept[component], strict=lower == 0)
        for number, (before, after, kept) in enumerate(of_layers):
            assert after.shape[1] == before.shape[1] * len(kept) // HEADS
            assert after.shape[2:] == before.shape[2:]
            if number == 0 and component != "ED":
                by_head = before.unflatten(1, (plan.units[component][0], -1))
                close(after, by_head[:, list(kept)].flatten(1, 2))


def _maps(outputs: Any) -> dict[str, str]:
    """The entry of a model's outputs that has the attention weights of each component."""
    names = {"ES": "encoder_attentions", "ED": "cross_attentions", "DS": "decoder_attentions"}
    if "attentions" in outputs:
        return {"ES": "attentions"}
    return {component: name for component, name in names.items() if name in outputs}


@families
def test_uniform_heads_are_those_whose_queries_are_zero(family, tmp_path):
    model = small(family)
    plan = plan_of(model, *ATTENTION)
    reference = copy.deepcopy(model)
    for component, by_layer in attentions(reference).items():
        for attention, kept in zip(by_layer, plan.kept[component], strict=True):
            (query,) = attention.queries
            with torch.no_grad():
                for part in (query.weight, query.bias):
                    if part is not None:
                        rows = part.unflatten(0, (attention.units, -1))
                        rows[[head for head in range(attention.units) if head not in kept]] = 0
    hf_plugin.prune_heads(model, plan, form="uniform")
    close(output_of(model), output_of(reference))
    model.save_pretrained(tmp_path)
    close(output_of(AutoModel.from_pretrained(tmp_path)), output_of(reference))


@families
def test_round_trip(family, tmp_path):
    """All units, through the Auto classes and through the code in the folder."""
    model = small(family)
    plan = plan_of(model, *ATTENTION, *FEED_FORWARDS)
    hf_plugin.prune(model, plan)
    hf_plugin.prune(model, plan_of(model, *STACKS, second=True)).save_pretrained(tmp_path)
    expected = output_of(model)
    remote = getattr(modeling_headpruned, type(model).__name__)
    for made in (AutoModel, remote):
        loaded, info = made.from_pretrained(tmp_path, output_loading_info=True)
        assert not info["missing_keys"] and not info["unexpected_keys"]
        close(output_of(loaded), expected)
    assert hf_plugin.plan(AutoModel.from_pretrained(tmp_path)) == hf_plugin.plan(model)
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert hf_plugin.plan(other) == hf_plugin.plan(model)
        close(output_of(other), expected)


@families
def test_a_folder_and_its_export_to_a_stock_model(family, tmp_path):
    model = small(family)
    model.save_pretrained(tmp_path / "model")
    folder = Folder.load(tmp_path / "model")
    plan = plan_of(model, *ATTENTION, *FEED_FORWARDS)
    pruned = folder.prune(plan)
    pruned.save(tmp_path / "pruned")
    again = Folder.load(tmp_path / "pruned")
    assert again.plan == pruned.plan and again.sizes == folder.sizes
    assert again.parameters == folder.parameters_with(plan) < folder.parameters
    assert again.unpruned_parameters == folder.parameters
    export_to_transformers(tmp_path / "pruned", tmp_path / "stock")
    written = type(model).from_pretrained(tmp_path / "stock")
    assert type(written) is type(model)
    close(output_of(written), output_of(pruned.model.eval()))


@families
def test_training_leaves_no_parameter_without_a_gradient(family):
    model = small(family).train()
    used = {name for name, gradient in _gradients(model).items() if gradient is not None}
    hf_plugin.prune(model, plan_of(model, *ATTENTION, *FEED_FORWARDS))
    gradients = _gradients(model)
    assert {name for name in used & set(gradients) if gradients[name] is None} == set()
    assert all(gradients[name].isfinite().all() for name in used & set(gradients))


def _gradients(model: Any) -> dict[str, Any]:
    model.zero_grad()
    output_of(model).square().mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("family", GENERATES)
@pytest.mark.parametrize("second", [False, True], ids=["top", "bottom"])
def test_generation_with_and_without_a_cache(family, second):
    auto = AutoModelForSeq2SeqLM
    if "decoder_input_ids" not in inspect.signature(small(family).forward).parameters:
        auto = AutoModelForCausalLM
    model = small(family, auto)
    for kind in (ATTENTION, STACKS):
        pruned = hf_plugin.prune(copy.deepcopy(model), plan_of(model, *kind, second=second))
        _assert_cached(pruned, beams=1)
        _assert_cached(pruned, beams=2)


def _assert_cached(model: Any, *, beams: int) -> None:
    options: dict[str, Any] = dict(
        max_new_tokens=5,
        do_sample=False,
        num_beams=beams,
        eos_token_id=None,
        return_dict_in_generate=True,
        output_logits=True,
    )
    inputs = inputs_of(model)
    inputs.pop("decoder_input_ids", None)
    expected = model.generate(**inputs, use_cache=False, **options)
    cached = model.generate(**inputs, use_cache=True, **options)
    assert torch.equal(cached.sequences, expected.sequences)
    for now, then in zip(cached.logits, expected.logits, strict=True):
        close(now, then, atol=1e-4)
