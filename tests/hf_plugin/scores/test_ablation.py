"""Ablations with shared work against the plain loop over heads, for every family."""

from __future__ import annotations

import math

import pytest
import torch
from transformers import (
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
)

import hf_plugin
from headprune import DataError, HeadPlan, UsageError
from headprune.results.predictions import mcnemar
from headprune.scores.ablation import ablation, cases_of
from headprune.scores.reuse import masked_outcomes
from hf_plugin.scores.model import HuggingFaceModel
from tests.hf_plugin.models import FAMILIES, SOME, build, plan_for, shape_of
from tests.hf_plugin.scores.test_scores import cut_up, data


def model_of(family: str):
    classifier = len(shape_of(family)) == 1
    return build(
        family, AutoModelForSequenceClassification if classifier else AutoModelForSeq2SeqLM
    )


def naive(model, batch, component, layer, kept):
    """The outcome with the heads of one layer masked, by the gates of ``masked``."""
    plan = hf_plugin.head_plan(model)
    layers = list(plan.kept[component])
    layers[layer] = tuple(sorted(kept))
    with (
        hf_plugin.masked(model, HeadPlan(kept={**plan.kept, component: layers}, heads=plan.heads)),
        torch.no_grad(),
    ):
        return HuggingFaceModel(model).outcome(batch)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("pruned", [False, True], ids=["whole", "pruned"])
def test_every_mask_gives_what_the_plain_loop_gives(family, pruned):
    model = model_of(family)
    if pruned:
        hf_plugin.prune_heads(model, plan_for(family, SOME))
    scored = HuggingFaceModel(model)
    for kind in ("ablation", "alone"):
        cases = cases_of(scored, kind)
        assert sum(map(len, cases.values())) == hf_plugin.head_plan(model).total_kept
        base, found = masked_outcomes(scored, data(family), cases, at_once=15)
        torch.testing.assert_close(base.losses, scored.outcome(data(family)).losses)
        differing = 0
        for (component, layer), masks in cases.items():
            for mask, outcome in zip(masks, found[component, layer], strict=True):
                expected = naive(model, data(family), component, layer, mask)
                torch.testing.assert_close(outcome.losses, expected.losses, atol=1e-5, rtol=1e-5)
                if expected.correct is not None:
                    assert outcome.correct.equal(expected.correct)
                differing += not torch.allclose(outcome.losses, base.losses, atol=1e-3)
        assert differing  # masks do something


def test_a_convolution_beside_the_lowest_layer_is_no_obstacle():
    model = build("deberta-v2", AutoModelForSequenceClassification, conv_kernel_size=3)
    scored = HuggingFaceModel(model)
    cases = cases_of(scored, "ablation")
    _, found = masked_outcomes(scored, data("deberta-v2"), cases, at_once=4)
    for (component, layer), masks in cases.items():
        for mask, outcome in zip(masks, found[component, layer], strict=True):
            expected = naive(model, data("deberta-v2"), component, layer, mask)
            torch.testing.assert_close(outcome.losses, expected.losses, atol=1e-5, rtol=1e-5)


def test_the_first_token_goes_on_alone_only_where_nothing_else_is_looked_at():
    seen = []
    for family, auto, alone in (
        ("bert", AutoModelForSequenceClassification, True),
        ("distilbert", AutoModelForSequenceClassification, True),
        ("deberta-v2", AutoModelForSequenceClassification, True),
        ("bert", AutoModelForTokenClassification, False),
    ):
        model = build(family, auto)
        batch = data(family)
        if not alone:
            batch["labels"] = torch.where(batch["attention_mask"].bool(), 1, -100)
        scored = HuggingFaceModel(model)
        lengths = []
        last = scored.last_mixing()
        watch = list(model.base_model.modules())
        watch = watch[watch.index(last) + 1 :]  # what comes after it
        dense = next(m for m in watch if isinstance(m, torch.nn.Linear) and m.out_features == 16)
        hook = dense.register_forward_pre_hook(
            lambda _, inputs, lengths=lengths: lengths.append(inputs[0].size(1))
        )
        masked_outcomes(scored, batch, cases_of(scored, "ablation"))
        hook.remove()
        assert lengths[0] == batch["input_ids"].size(1)
        assert {1} == set(lengths[1:]) if alone else 1 not in lengths[2:]
        seen.append(family)
    assert len(seen) == 4


def test_uniform_heads_stay_as_they_are():
    model = model_of("bert")
    hf_plugin.prune_heads(model, SOME, form="uniform")
    scored = HuggingFaceModel(model)
    cases = cases_of(scored, "ablation")
    _, found = masked_outcomes(scored, data("bert"), cases)
    for (component, layer), masks in cases.items():
        for mask, outcome in zip(masks, found[component, layer], strict=True):
            gates = {"ES": torch.ones(3, 4)}
            gone = set(SOME.kept["ES"][layer]) - mask
            gates["ES"][layer, list(gone)] = 0
            with hf_plugin.masked(model, gates), torch.no_grad():
                expected = scored.outcome(data("bert"))
            torch.testing.assert_close(outcome.losses, expected.losses, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("metric", ["accuracy", "loss"])
def test_drops_and_their_p_values(metric):
    model = model_of("bert")
    scored = HuggingFaceModel(model)
    found = ablation(scored, cut_up(data("bert"), 2), metric=metric)
    base = scored.outcome(data("bert"))
    for kind, each in found.items():
        for (component, layer), masks in cases_of(scored, kind).items():
            for head, mask in enumerate(masks):
                expected = naive(model, data("bert"), component, layer, mask)
                drop, p = each.drops["ES"][layer][head], each.p_values["ES"][layer][head]
                if metric == "loss":
                    rise = (expected.losses - base.losses).mean().item()
                    assert drop == pytest.approx(rise, abs=1e-5)
                    assert 0 <= p <= 1
                else:
                    lost = base.correct.float().mean() - expected.correct.float().mean()
                    assert drop == pytest.approx(100 * lost.item(), abs=1e-4)
                    assert p == mcnemar(base.correct.tolist(), expected.correct.tolist())


def test_how_the_data_are_cut_does_not_matter_and_the_model_is_left_as_it_was():
    model = model_of("bert").train()
    scored = HuggingFaceModel(model)
    one = ablation(scored, [data("bert")], metric="loss", at_once=1)
    two = ablation(scored, cut_up(data("bert"), 2), metric="loss", at_once=1000)
    for kind in one:
        for a, b in zip(one[kind].drops["ES"], two[kind].drops["ES"], strict=True):
            assert a == pytest.approx(b, abs=1e-5)
    assert model.training
    for module in model.modules():
        assert not module._forward_hooks and "forward" not in module.__dict__


def test_masks_that_do_nothing_have_a_p_value_of_one():
    model = model_of("bert")
    for layer in model.bert.encoder.layer:
        layer.attention.output.dense.weight.data.zero_()
    found = ablation(HuggingFaceModel(model), [data("bert")], metric="loss")
    for each in found.values():
        assert all(abs(v) < 1e-6 for row in each.drops["ES"] for v in row)
        assert all(p == 1 for row in each.p_values["ES"] for p in row)


def test_what_cannot_be_ablated():
    scored = HuggingFaceModel(model_of("bert"))
    with pytest.raises(DataError, match="no example"):
        ablation(scored, [], metric="loss")
    one = {name: tensor[:1] for name, tensor in data("bert").items()}
    with pytest.raises(DataError, match="1 example is too few"):
        ablation(scored, [one], metric="loss")
    with pytest.raises(UsageError, match="metric bleu"):
        ablation(scored, [data("bert")], metric="bleu")
    with pytest.raises(UsageError, match="accuracy is of models that predict a class"):
        ablation(HuggingFaceModel(model_of("bart")), [data("bart")], metric="accuracy")
    model = model_of("bert")
    model.classifier.bias.data.fill_(math.nan)
    with pytest.raises(DataError, match="not finite|no finite"):
        ablation(HuggingFaceModel(model), [data("bert")], metric="loss")
