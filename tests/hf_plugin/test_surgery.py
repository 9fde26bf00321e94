"""Removal equals masking, and both equal the formula; what is asked of it and what is refused."""

from __future__ import annotations

import math
import pickle

import numpy as np
import pytest
import torch
from accelerate.hooks import ModelHook, add_hook_to_module
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)
from transformers.models.bert.modeling_bert import BertSelfAttention

import hf_plugin
from headprune import HeadPlan, UsageError
from tests.hf_plugin.models import (
    FAMILIES,
    HEADS,
    LAYERS,
    NONE,
    SIZE,
    SOME,
    batch,
    build,
    clone,
    first,
    plan_for,
    shape_of,
)

some_heads = st.sets(st.integers(0, HEADS - 1)).map(lambda heads: tuple(sorted(heads)))
layers = st.tuples(*[some_heads] * LAYERS)


def plans(family):
    shape = shape_of(family)
    return st.fixed_dictionaries(dict.fromkeys(shape, layers)).map(
        lambda kept: HeadPlan(kept=kept, heads=shape)
    )


families = pytest.mark.parametrize("family", FAMILIES)
implementations = pytest.mark.parametrize("attention", ["eager", "sdpa"])


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def masked_output(model, plan_or_xi):
    with torch.no_grad(), hf_plugin.masked(model, plan_or_xi):
        return first(model)


@families
@implementations
@pytest.mark.parametrize("plan", [SOME, NONE], ids=["some", "none left"])
def test_removal_equals_masking(family, attention, plan):
    plan = plan_for(family, plan)
    model = build(family, attn_implementation=attention)
    expected = masked_output(model, plan)
    full = first(model)
    assert not torch.allclose(expected, full, atol=1e-2)  # the heads matter
    pruned = hf_plugin.prune_heads(model, plan)
    assert pruned is model
    close(first(pruned), expected)
    assert hf_plugin.head_plan(pruned) == plan


@families
@settings(max_examples=8, deadline=None)
@given(data=st.data())
def test_removal_equals_masking_for_any_plan(family, data):
    plan = data.draw(plans(family))
    model = build(family)
    expected = masked_output(model, plan)
    close(first(hf_plugin.prune_heads(model, plan)), expected)
    assert hf_plugin.head_plan(model) == plan


@pytest.mark.parametrize(
    "auto",
    [
        AutoModelForMaskedLM,
        AutoModelForSequenceClassification,
        AutoModelForTokenClassification,
        AutoModelForQuestionAnswering,
    ],
)
@pytest.mark.parametrize("family", ["bert", "electra", "distilbert"])
def test_task_heads(family, auto):
    model = build(family, auto)
    expected = masked_output(model, SOME)
    close(first(hf_plugin.prune_heads(model, SOME)), expected)


def test_multiple_choice():
    model = build("bert", AutoModelForMultipleChoice)
    choices = {name: tensor.unsqueeze(1).repeat(1, 3, 1) for name, tensor in batch().items()}
    with hf_plugin.masked(model, SOME):
        expected = model(**choices).logits
    close(hf_plugin.prune_heads(model, SOME)(**choices).logits, expected)


def plain_attention(layer, x, mask, kept):
    """Equation 2 in loops, of a BERT layer's unpruned weights: the heads in ``kept`` only."""
    self_attention, out = layer.attention.self, layer.attention.output
    result = out.dense.bias.expand(*x.shape).clone()
    for sentence in range(len(x)):
        for head in kept:
            rows = slice(head * SIZE, (head + 1) * SIZE)
            q, k, v = (
                x[sentence] @ linear.weight[rows].T + linear.bias[rows]
                for linear in (self_attention.query, self_attention.key, self_attention.value)
            )
            scores = (q @ k.T / math.sqrt(SIZE))[:, mask[sentence].bool()]
            context = scores.softmax(-1) @ v[mask[sentence].bool()]
            result[sentence] += context @ out.dense.weight[:, rows].T
    return out.LayerNorm(result + x)


@implementations
def test_agrees_with_a_plain_reference(attention):
    model = build("bert", attn_implementation=attention)
    inputs = batch()
    x = model.embeddings(inputs["input_ids"])
    for layer, kept in zip(model.encoder.layer, SOME.kept["ES"], strict=True):
        attended = plain_attention(layer, x, inputs["attention_mask"], kept)
        x = layer.feed_forward_chunk(attended)
    close(first(hf_plugin.prune_heads(model, SOME)), x)


def test_padding_tokens_change_nothing():
    model = hf_plugin.prune_heads(build("bert"), SOME)
    inputs = batch()
    alone = model(input_ids=inputs["input_ids"][1:, :5])[0]
    close(model(**inputs)[0][1:, :5], alone)


def test_a_pruned_model_is_smaller_by_the_pruned_heads():
    model = build("bert")
    before = sum(parameter.numel() for parameter in model.parameters())
    hf_plugin.prune_heads(model, SOME)
    one_head = 4 * HEADS * SIZE * SIZE + 3 * SIZE
    after = sum(parameter.numel() for parameter in model.parameters())
    assert before - after == (SOME.total - SOME.total_kept) * one_head
    assert model.encoder.layer[0].attention.self.num_attention_heads == 3
    assert model.encoder.layer[0].attention.self.all_head_size == 3 * SIZE


def test_dict_as_in_transformers_4():
    model = hf_plugin.prune_heads(build("bert"), {0: [1], -1: {0, 2, 3}, 1: range(4)})
    assert hf_plugin.head_plan(model) == SOME


def test_pruning_twice_adds_up_and_numbers_stay():
    twice, once = build("bert"), build("bert")
    hf_plugin.prune_heads(twice, {0: [0], 2: [3]})
    hf_plugin.prune_heads(twice, {0: [3], 2: [0]})
    hf_plugin.prune_heads(once, {0: [0, 3], 2: [0, 3]})
    assert hf_plugin.head_plan(twice).kept["ES"] == ((1, 2), (0, 1, 2, 3), (1, 2))
    close(first(twice), first(once))
    assert twice.config.kept_heads == once.config.kept_heads


def test_a_plan_within_the_last_goes_on_from_there():
    model = hf_plugin.prune_heads(build("bert"), {0: [1]})
    hf_plugin.prune_heads(model, SOME)
    close(first(model), masked_output(build("bert"), SOME))


def test_every_head_of_a_layer_in_two_steps():
    model = hf_plugin.prune_heads(build("bert"), {1: [0, 1, 2, 3]})
    hf_plugin.prune_heads(model, {0: [1], 2: [0, 2, 3]})
    close(first(model), masked_output(build("bert"), SOME))


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        ({3: [0]}, "ES: there is no layer 3, the model has 3 (-3 to 2)"),
        ({-4: [0]}, "ES: there is no layer -4, the model has 3 (-3 to 2)"),
        ({"0": [0]}, "ES: '0' is no layer number"),
        ({0: [4]}, "ES: layer 0 has no head 4, the unpruned model has 4 (0 to 3)"),
        ({0: [-1]}, "ES: layer 0 has no head -1"),
        ({0: [True]}, "ES: layer 0 has no head True"),
        ({0: 2}, "ES: layer 0: give heads as a list, not 2"),
        ({0: torch.tensor(2)}, "ES: layer 0: give heads as a list, not tensor(2)"),
        ({0: torch.tensor([1.0])}, "ES: layer 0 has no head 1.0"),
        ({2: [0], -1: [1]}, "ES: layer 2 is given twice, as 2 and -1"),
        ([(0, [1])], "give a HeadPlan or a dict {layer: [heads]}, not list"),
        (
            HeadPlan.full({"ES": (4, 4)}),
            "ES: the plan is for 2 layers, the bert model has 3",
        ),
        (
            HeadPlan.full({"ES": (4, 8, 4)}),
            "ES: layer 1: the plan is for 8 heads, the bert model has 4",
        ),
        (
            HeadPlan.full({"ES": (4,) * 3, "DS": (4,)}),
            "DS: present in the plan but missing from the bert model",
        ),
    ],
)
def test_mistakes_are_one_clear_line_and_change_nothing(request_, message):
    model = build("bert")
    before = first(model)
    with pytest.raises(UsageError) as caught:
        hf_plugin.prune_heads(model, request_)
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)
    assert torch.equal(first(model), before) and model.config.model_type == "bert"


def test_a_head_that_is_gone_stays_gone():
    model = hf_plugin.prune_heads(build("bert"), {0: [1, 2]})
    before = first(model)
    assert torch.equal(first(hf_plugin.prune_heads(model, {0: [2]})), before)
    with pytest.raises(UsageError, match="ES: layer 0: the plan keeps head 2, which was pruned"):
        hf_plugin.prune_heads(model, SOME)
    assert torch.equal(first(model), before)
    hf_plugin.prune_heads(model, {1: [0], 0: [3, 2]})  # as transformers 4's integration test does
    assert hf_plugin.head_plan(model).kept["ES"] == ((0,), (1, 2, 3), (0, 1, 2, 3))
    once = hf_plugin.prune_heads(build("bert"), {0: [1, 2, 3], 1: [0]})
    close(first(model), first(once))


@pytest.mark.parametrize(
    "heads",
    [
        torch.tensor([1, 3]),
        np.array([1, 3]),
        np.array([1, 3], dtype=np.uint8),
        [np.int64(1), torch.tensor(3)],
        {1, 3},
        range(1, 4, 2),
        (head for head in (1, 3)),
    ],
    ids=lambda heads: type(heads).__name__,
)
def test_heads_in_every_kind_of_list(heads):
    model = hf_plugin.prune_heads(build("bert"), {np.int64(0): heads})
    assert hf_plugin.head_plan(model).kept["ES"][0] == (0, 2)


def test_gradients_reach_xi_and_equal_differences():
    model = build("bert", AutoModelForSequenceClassification).double()
    xi = torch.rand(LAYERS, HEADS, dtype=torch.double, requires_grad=True)

    def loss(gates):
        with hf_plugin.masked(model, gates):
            return model(**batch(), labels=torch.tensor([0, 1])).loss

    assert torch.autograd.gradcheck(loss, xi)
    loss(xi).backward()
    assert (xi.grad != 0).all()


@families
@implementations
def test_gradient_of_every_head(family, attention):
    model = build(family, attn_implementation=attention)
    xi = {name: torch.ones(LAYERS, HEADS, requires_grad=True) for name in shape_of(family)}
    with hf_plugin.masked(model, xi):
        output = first(model)
    assert torch.equal(output, first(model))  # ones change nothing, and nothing stays behind
    output.square().sum().backward()
    for gate in xi.values():
        assert (gate.grad != 0).all()


def test_masking_a_pruned_model_counts_heads_as_unpruned():
    model = build("bert")
    xi = torch.rand(LAYERS, HEADS)
    gone = torch.tensor([[h in kept for h in range(HEADS)] for kept in SOME.kept["ES"]])
    expected = masked_output(model, xi * gone)
    close(masked_output(hf_plugin.prune_heads(model, SOME), xi), expected)


def test_masks_nest_and_end_with_the_context_even_after_an_error():
    model = build("bert")
    before = first(model)
    half = torch.full((LAYERS, HEADS), 0.5)
    with hf_plugin.masked(model, half), hf_plugin.masked(model, half):
        quarter = first(model)
    close(quarter, masked_output(model, half * half))
    with pytest.raises(RuntimeError), hf_plugin.masked(model, SOME):
        raise RuntimeError
    assert torch.equal(first(model), before)


@pytest.mark.parametrize(
    ("xi", "message"),
    [
        (torch.ones(LAYERS, HEADS + 1), "ES: xi is (3, 5), the bert model has (layers, heads)"),
        (torch.ones(HEADS), "ES: xi is (4,), the bert model"),
        ({"ES": [1, 0]}, "ES: xi is list, the bert model"),
        ({"DS": torch.ones(3, 4)}, "xi is given for DS, the bert model has ES"),
        ([[1.0] * 4] * 3, "give a HeadPlan or xi as a tensor, not list"),
        (HeadPlan.full({"ES": (4,)}), "ES: the plan is for 1 layers, the bert model has 3"),
    ],
)
def test_mistakes_in_a_mask(xi, message):
    with pytest.raises(UsageError) as caught, hf_plugin.masked(build("bert"), xi):
        pass
    assert str(caught.value).startswith(message) and "\n" not in str(caught.value)


@families
def test_fine_tuning_after_pruning(family):
    model = build(family).train()
    hf_plugin.prune_heads(model, plan_for(family, SOME))
    before = clone(model).state_dict()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    first(model).square().mean().backward()
    optimizer.step()
    after = model.state_dict()
    changed = {name for name in before if not torch.equal(before[name], after[name])}
    # A key's bias cannot matter (softmax), and the pruned layer's projections have no row.
    assert any(".0." in name and "q" in name.lower() and "weight" in name for name in changed)
    for tensor in after.values():
        assert tensor.isfinite().all()


def test_frozen_parameters_stay_frozen_and_types_stay():
    model = build("bert").to(torch.bfloat16).requires_grad_(False)
    hf_plugin.prune_heads(model, SOME)
    assert not any(parameter.requires_grad for parameter in model.parameters())
    assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}


def test_attention_weights_are_those_of_the_heads_left():
    model = build("bert", attn_implementation="eager")
    full = model(**batch(), output_attentions=True).attentions
    pruned = hf_plugin.prune_heads(model, {0: [1]})(**batch(), output_attentions=True).attentions
    close(pruned[0], full[0][:, [0, 2, 3]])
    zero = hf_plugin.prune_heads(model, {1: range(4)})(**batch(), output_attentions=True)
    assert zero.attentions[1].shape == (2, 0, 7, 7)


def test_only_the_model_given_changes():
    config = build("bert").config
    one, other = AutoModel.from_config(config), AutoModel.from_config(config)
    hf_plugin.prune_heads(one, SOME)
    assert hf_plugin.head_plan(other).is_full
    assert config.model_type == "bert" and not hasattr(config, "kept_heads")


def test_a_decoder_generates_the_same_with_and_without_its_cache():
    model = build("bert", AutoModelForCausalLM, is_decoder=True)
    hf_plugin.prune_heads(model, {0: [1], 1: range(4), 2: [0, 3]})
    options = dict(max_new_tokens=5, do_sample=False, eos_token_id=None)
    ids = batch()["input_ids"][:1]
    with_cache = model.generate(ids, use_cache=True, **options)
    assert torch.equal(with_cache, model.generate(ids, use_cache=False, **options))


@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_a_decoder_without_heads_in_its_lowest_layer_knows_its_positions(family):
    model = build(family, AutoModelForCausalLM, is_decoder=True)
    hf_plugin.prune_heads(model, {0: range(4), 2: [1]})
    assert_generates_the_same_with_a_cache(model)


def assert_generates_the_same_with_a_cache(model, **more):
    options = dict(
        max_new_tokens=6,
        do_sample=False,
        eos_token_id=None,
        return_dict_in_generate=True,
        output_logits=True,
        **more,
    )
    expected = model.generate(**batch(), use_cache=False, **options)
    cached = model.generate(**batch(), use_cache=True, **options)
    assert torch.equal(cached.sequences, expected.sequences)
    for now, then in zip(cached.logits, expected.logits, strict=True):
        close(now, then)
    assert not torch.allclose(expected.logits[-1], expected.logits[-2])  # positions matter


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("plan", [SOME, NONE], ids=["some", "none left"])
@pytest.mark.parametrize("family", ["bart", "marian"])
def test_encoder_decoders_generate_the_same_with_and_without_their_cache(family, plan, beams):
    model = build(family, AutoModelForSeq2SeqLM)
    plan = plan_for(family, plan)
    with hf_plugin.masked(model, plan):
        expected = model.generate(**batch(), max_new_tokens=6, num_beams=beams)
    hf_plugin.prune_heads(model, plan)
    assert torch.equal(model.generate(**batch(), max_new_tokens=6, num_beams=beams), expected)
    assert_generates_the_same_with_a_cache(model, num_beams=beams)


def test_a_dict_of_layers_does_not_say_which_component():
    with pytest.raises(UsageError, match="bart model has heads in ES, ED, DS: say which"):
        hf_plugin.prune_heads(build("bart"), {0: [1]})


def test_a_decoder_alone_takes_its_part_of_a_pruned_model(tmp_path):
    plan = plan_for("bart", SOME)
    hf_plugin.prune_heads(build("bart", AutoModelForSeq2SeqLM), plan).save_pretrained(tmp_path)
    decoder = AutoModelForCausalLM.from_pretrained(tmp_path)
    kept = hf_plugin.head_plan(decoder).kept
    assert dict(kept) == {"ED": plan.kept["ED"], "DS": plan.kept["DS"]}
    assert_generates_the_same_with_a_cache(decoder)


def test_a_compiled_model_would_not_notice_a_mask():
    model = build("bert")
    model.compile()
    with pytest.raises(UsageError, match="is compiled"), hf_plugin.masked(model, SOME):
        pass


def test_pruning_and_copying_within_a_mask():
    model = build("bert")
    xi = torch.rand(LAYERS, HEADS)
    with hf_plugin.masked(model, xi):
        hf_plugin.prune_heads(model, {0: [1], 2: [0]})
        within = first(model)
        pickle.loads(pickle.dumps(model))
    close(masked_output(model, xi), within)


def test_attentions_of_a_class_of_ones_own_keep_a_head():
    class Mine(BertSelfAttention):
        pass

    model = build("bert")
    model.encoder.layer[1].attention.self.__class__ = Mine
    before = first(model)
    with pytest.raises(UsageError, match="ES: layer 1: all heads of a Mine cannot be removed"):
        hf_plugin.prune_heads(model, {0: [1], 1: range(4)})
    assert torch.equal(first(model), before)
    hf_plugin.prune_heads(model, {1: [0, 1, 2]})


@pytest.mark.parametrize("saved", [False, True])
@pytest.mark.parametrize("family", ["bert", "distilbert", "deberta-v2", "modernbert"])
def test_distributed_training_waits_for_no_parameter_of_an_empty_layer(family, saved, tmp_path):
    model = hf_plugin.prune_heads(build(family, AutoModelForSequenceClassification), SOME)
    if saved:
        model.save_pretrained(tmp_path)
        model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    model.train()(**batch(), labels=torch.tensor([0, 1])).loss.backward()
    for name, parameter in model.named_parameters():
        assert not parameter.requires_grad or parameter.grad is not None, name


def test_a_model_that_is_spread_over_devices_is_refused():
    model = build("bert")
    add_hook_to_module(model.encoder.layer[1], ModelHook())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(UsageError, match="is spread over devices .device_map.: prune it on one"):
        hf_plugin.prune_heads(model, SOME)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
