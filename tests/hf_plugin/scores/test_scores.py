"""Each score against a plain loop, for models of one and of three components."""

from __future__ import annotations

import math

import pytest
import torch
from datasets import Dataset
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoTokenizer,
)

import hf_plugin
from headprune import DataError, PruningPlan, UsageError
from headprune.components import HEADS as HEAD_COMPONENTS
from headprune.scores import HeadScores
from headprune.scores import attention_statistics as core_statistics
from headprune.scores import gradients as core_gradients
from headprune.scores import magnitude as core_magnitude
from headprune.scores.ablation import ablation
from headprune.scores.attention_statistics import THRESHOLD
from headprune.scores.names import STATISTICS
from headprune.scores.units import parts_of
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.scores.losses import example_losses
from hf_plugin.scores.model import HuggingFaceModel
from hf_plugin.scores.run import batches_of, words_of
from tests.hf_plugin.made import write_model
from tests.hf_plugin.models import HEADS, LAYERS, SIZE, SOME, build, plan_for, shape_of


def gradient_scores(model, batches):
    return core_gradients.gradient_scores(HuggingFaceModel(model), batches)


def attention_statistics(model, batches):
    return core_statistics.attention_statistics(HuggingFaceModel(model), batches)


def magnitude(model):
    return core_magnitude.magnitude(parts_of(HuggingFaceModel(model), HEAD_COMPONENTS))


def data(family: str) -> dict[str, torch.Tensor]:
    """Five examples of uneven length with labels."""
    generator = torch.Generator().manual_seed(3)
    ids = torch.randint(3, 40, (5, 8), generator=generator)
    mask = torch.ones_like(ids)
    for row, length in enumerate((8, 3, 6, 8, 5)):
        ids[row, length:], mask[row, length:] = 0, 0
    batch = {"input_ids": ids, "attention_mask": mask}
    if len(shape_of(family)) == 1:
        return {**batch, "labels": torch.tensor([0, 1, 1, 0, 1])}
    labels = torch.randint(3, 40, (5, 6), generator=generator)
    labels[1, 4:] = labels[3, 2:] = -100
    return {**batch, "labels": labels}


def cut_up(batch, size):
    return [
        {name: tensor[i : i + size] for name, tensor in batch.items()} for i in range(0, 5, size)
    ]


def classifier(family: str, **options):
    auto = (
        AutoModelForSequenceClassification if len(shape_of(family)) == 1 else AutoModelForSeq2SeqLM
    )
    return build(family, auto, **options)


def tensor(values, component="ES"):
    return torch.tensor([[math.nan if v is None else v for v in row] for row in values[component]])


def close(a, b, atol=1e-5):
    torch.testing.assert_close(a, b, atol=atol, rtol=1e-4, equal_nan=True)


families = pytest.mark.parametrize("family", ["bert", "distilbert", "deberta-v2", "bart"])


@families
def test_gradient_is_the_mean_over_examples_of_the_gates_gradient(family):
    model = classifier(family)
    batch = data(family)
    expected = {name: torch.zeros(LAYERS, HEADS) for name in shape_of(family)}
    squares = {name: torch.zeros(LAYERS, HEADS) for name in expected}
    for example in cut_up(batch, 1):
        xi = {name: torch.ones(LAYERS, HEADS, requires_grad=True) for name in expected}
        with hf_plugin.masked(model, xi):
            example_losses(model(**example), example["labels"]).sum().backward()
        for name, gate in xi.items():
            expected[name] += gate.grad.abs() / 5
            squares[name] += gate.grad.square() / 5
    found = gradient_scores(model, [batch])
    for name in expected:
        assert (expected[name] > 0).all()
        close(tensor(found.gradient_raw, name), expected[name])
        norms = expected[name].norm(dim=1, keepdim=True)
        close(tensor(found.gradient, name), expected[name] / norms)
        close(tensor(found.fisher, name), squares[name])
    assert found.examples == 5


def test_an_encoder_that_the_decoder_does_not_attend_to_has_gradients_of_zero():
    model = classifier("bart")
    none = PruningPlan(kept={"ED": [()] * LAYERS}, units={"ED": (HEADS,) * LAYERS})
    hf_plugin.prune(model, none)
    found = gradient_scores(model, [data("bart")])
    assert not tensor(found.gradient_raw, "ES").any()
    assert (tensor(found.gradient_raw, "DS") > 0).all()


@families
def test_how_the_data_are_cut_into_batches_does_not_matter(family):
    model = classifier(family)
    one, two = (gradient_scores(model, cut_up(data(family), size)) for size in (5, 2))
    stats = [attention_statistics(model, cut_up(data(family), size)) for size in (5, 2)]
    for name in shape_of(family):
        close(tensor(one.gradient, name), tensor(two.gradient, name))
        close(tensor(one.taylor, name), tensor(two.taylor, name))
        close(tensor(one.taylor_molchanov, name), tensor(two.taylor_molchanov, name))
        for kind in STATISTICS:
            close(tensor(stats[0][kind], name), tensor(stats[1][kind], name))


def test_taylor_is_the_mean_over_tokens_of_output_times_its_gradient():
    model = classifier("bert")
    batch = data("bert")
    expected, by_molchanov = torch.zeros(LAYERS, HEADS), torch.zeros(LAYERS, HEADS)
    for layer in range(LAYERS):
        kept = {}

        def keep(module, inputs, kept=kept):
            inputs[0].retain_grad()
            kept["c"] = inputs[0]

        dense = model.bert.encoder.layer[layer].attention.output.dense
        hook = dense.register_forward_pre_hook(keep)
        example_losses(model(**batch), batch["labels"]).sum().backward()
        hook.remove()
        dots = (kept["c"] * kept["c"].grad).unflatten(-1, (HEADS, SIZE)).sum(-1)  # B x T x H
        expected[layer] = dots.abs().sum((0, 1)) / batch["attention_mask"].sum()
        lengths = batch["attention_mask"].sum(1, keepdim=True)
        by_molchanov[layer] = (dots.sum(1) / lengths).abs().mean(0)
    found = gradient_scores(model, cut_up(batch, 2))
    close(tensor(found.taylor), expected)
    close(tensor(found.taylor_molchanov), by_molchanov)
    assert not torch.allclose(expected, by_molchanov)


def test_sequence_losses_are_means_over_an_examples_own_tokens():
    batch = data("bart")
    model = classifier("bart")
    losses = example_losses(model(**batch), batch["labels"])
    for number, example in enumerate(cut_up(batch, 1)):
        close(losses[number], model(**example).loss)


def test_a_number_to_predict_has_a_squared_error():
    model = build("bert", AutoModelForSequenceClassification, num_labels=1)
    batch = {**data("bert"), "labels": torch.tensor([0.5, 1, 2, 0, 4])}
    close(example_losses(model(**batch), batch["labels"]).mean(), model(**batch).loss)


@families
def test_statistics_are_those_of_the_attention_weights(family):
    model = classifier(family, attn_implementation="eager")
    batch = data(family)
    outputs = model(**batch, output_attentions=True)
    separators = frozenset(batch["input_ids"][0, :2].tolist())
    scored = HuggingFaceModel(model, special_tokens=separators)
    found = core_statistics.attention_statistics(scored, cut_up(batch, 2))
    for name in shape_of(family):
        maps = outputs.get(
            {"ES": "attentions", "ED": "cross_attentions", "DS": "decoder_attentions"}[name]
        )
        maps = outputs.encoder_attentions if maps is None else maps
        queries = batch["attention_mask"].bool() if name == "ES" else batch["labels"].ne(-100)
        keys = batch["labels"].ne(-100) if name == "DS" else batch["attention_mask"].bool()
        text = ~torch.isin(scored.keys(name, batch), torch.tensor(sorted(separators)))
        for layer, weights in enumerate(maps):
            for head in range(HEADS):
                expected = dict.fromkeys(STATISTICS, 0.0)
                for b, t in queries.nonzero().tolist():
                    allowed = keys[b].clone()
                    if name == "DS":
                        allowed[t + 1 :] = False
                    p, mean = weights[b, head, t][allowed], weights[b, :, t].mean(0)[allowed]
                    n = len(p)
                    expected["confidence"] += (p * text[b][allowed]).max().item()
                    expected["entropy"] -= torch.special.xlogy(p, p).sum().item()
                    expected["sparsity"] += (p < THRESHOLD).float().mean().item()
                    norm = p.square().sum().sqrt().item()
                    root = math.sqrt(n)
                    expected["hoyer"] += (root - 1 / norm) / (root - 1) if n > 1 else 1.0
                    expected["distribution"] += (p * (p / mean).log()).sum().item()
                for kind, total in expected.items():
                    value = found[kind][name][layer][head]
                    assert value == pytest.approx(total / int(queries.sum()), abs=1e-4), kind


def test_magnitude_is_the_norm_of_a_heads_weights():
    model = build("bert")
    found = magnitude(model)["ES"]
    for layer in range(LAYERS):
        attention = model.encoder.layer[layer].attention
        for head in range(HEADS):
            rows = slice(head * SIZE, (head + 1) * SIZE)
            parts = [
                *(getattr(attention.self, n).weight[rows] for n in ("query", "key", "value")),
                attention.output.dense.weight[:, rows],
            ]
            norm = torch.cat([part.flatten() for part in parts]).norm().item()
            assert found[layer][head] == pytest.approx(norm, rel=1e-5)


@pytest.mark.parametrize("family", ["bert", "modernbert", "bart"])
def test_heads_that_are_gone_have_no_number(family):
    plan = plan_for(family, SOME)
    if family == "modernbert":
        model = build(family, AutoModelForSequenceClassification)
    else:
        model = classifier(family)
    hf_plugin.prune_heads(model, plan)
    gradients = gradient_scores(model, cut_up(data(family), 2))
    scores = [gradients.gradient, gradients.taylor, magnitude(model)]
    statistics = attention_statistics(model, cut_up(data(family), 2))
    scores += [statistics[kind] for kind in STATISTICS]
    for values in scores:
        assert HeadScores(name="any", values=values).scored == plan


def test_the_model_is_left_as_it_was():
    model = classifier("bert").train()
    state = {name: t.clone() for name, t in model.state_dict().items()}
    gradient_scores(model, [data("bert")])
    attention_statistics(model, [data("bert")])
    assert model.training and model.config._attn_implementation == "sdpa"
    assert all(p.grad is None for p in model.parameters())
    assert all(torch.equal(state[name], t) for name, t in model.state_dict().items())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_frozen_models_can_be_scored():
    model = classifier("bert").requires_grad_(False)
    frozen = gradient_scores(model, [data("bert")])
    close(
        tensor(frozen.gradient),
        tensor(gradient_scores(classifier("bert"), [data("bert")]).gradient),
    )


def test_what_cannot_be_scored():
    model = classifier("bert")
    unlabelled = {name: t for name, t in data("bert").items() if name != "labels"}
    with pytest.raises(DataError, match="needs labels"):
        gradient_scores(model, [unlabelled])
    for score in (gradient_scores, attention_statistics):
        with pytest.raises(DataError, match="no example"):
            score(model, [])
    with pytest.raises(UsageError, match="no logits"):
        gradient_scores(build("bert", AutoModel), [data("bert")])
    model.bert.encoder.layer[1].attention.self.query.weight.data.fill_(math.nan)
    with pytest.raises(DataError, match="ES: layer . a gradient is not finite|not finite"):
        gradient_scores(model, [data("bert")])


@pytest.mark.parametrize(
    ("family", "auto", "options"),
    [
        ("bert", AutoModelForCausalLM, {}),  # sees all tokens, but its labels are shifted
        ("bart", AutoModelForCausalLM, {}),
    ],
)
def test_causal_models_are_refused(family, auto, options):
    model = build(family, auto, **options)
    with pytest.raises(UsageError, match=f"{type(model).__name__} is a causal language model or"):
        HuggingFaceModel(model)


@pytest.mark.parametrize("family", ["bert", "bart"])
def test_batches_go_where_the_model_is(family):
    scored = HuggingFaceModel(classifier(family).to("meta"))  # not where the batch is
    batch = {name: tensor for name, tensor in data(family).items() if name != "attention_mask"}
    found = []
    with torch.no_grad(), scored.attending():
        found.append(scored.outcome(batch).losses)
        scored.attend(batch, lambda _, __, weights: found.append(weights))
    for name in shape_of(family):
        found += [scored.keys(name, data(family)), scored.queries(name, data(family))]
    assert {tensor.device.type for tensor in found} == {"meta"}


def test_masked_and_uniform_heads_do_not_count_for_the_others():
    removed, uniform = classifier("bert"), classifier("bert")
    for layer in range(LAYERS):  # the same outputs: a uniform head's values are zeros
        value = uniform.bert.encoder.layer[layer].attention.self.value
        other = removed.bert.encoder.layer[layer].attention.self.value
        gone = [h for h in range(HEADS) if h not in SOME.kept["ES"][layer]]
        for head in gone:
            rows = slice(head * SIZE, (head + 1) * SIZE)
            for linear in (value, other):
                linear.weight.data[rows] = linear.bias.data[rows] = 0
    hf_plugin.prune_heads(removed, SOME)
    hf_plugin.prune_heads(uniform, SOME, form="uniform")
    one, two = (attention_statistics(model, [data("bert")]) for model in (removed, uniform))
    for kind in STATISTICS:
        close(tensor(one[kind]), tensor(two[kind]))


@pytest.mark.parametrize(
    ("spans", "expected"),
    [
        ([(0, 0), (0, 3), (4, 6), (6, 7), (8, 12), (0, 0)], [-1, 0, 1, 1, 2, -1]),
        ([(0, 0), (0, 3), (3, 6), (6, 7), (7, 12), (0, 0)], [-1, 0, 1, 1, 2, -1]),  # with spaces
    ],
)
def test_tokens_belong_to_the_words_that_they_cover(spans, expected):
    assert words_of(("the", "dog", "sees"), spans) == expected


def test_a_fingerprint_tells_uniform_heads_and_not_the_precision():
    model, uniform = classifier("bert"), classifier("bert")
    hf_plugin.prune_heads(uniform, SOME, form="uniform")
    assert model_fingerprint(model) != model_fingerprint(uniform)
    half = classifier("bert").bfloat16()
    assert model_fingerprint(half) == model_fingerprint(classifier("bert").bfloat16().float())


@families
def test_masked_heads_count_as_pruned_ones(family):
    plan = plan_for(family, SOME)
    model = classifier(family, attn_implementation="eager")
    batches = cut_up(data(family), 2)
    with hf_plugin.masked(model, plan):
        masked = all_scores(model, batches)
    whole = all_scores(model, batches)
    pruned = all_scores(hf_plugin.prune_heads(model, plan), batches)
    assert set(masked) == set(pruned)
    for name, values in pruned.items():
        for component in values:
            close(tensor(masked[name], component), tensor(values, component))
            assert not tensor(whole[name], component).isnan().any()


def all_scores(model, batches):
    found = gradient_scores(model, batches)
    by_loss = ablation(HuggingFaceModel(model), batches, metric="loss")
    return {
        **attention_statistics(model, batches),
        "gradient": found.gradient,
        "taylor": found.taylor,
        "magnitude": magnitude(model),
        **{kind: each.drops for kind, each in by_loss.items()},
    }


@pytest.mark.parametrize("column", ["label", "labels"])
def test_batches_of_a_data_set_with_one_label_a_text(column, tmp_path):
    folder = write_model(tmp_path / "model", num_labels=2)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = ["the dog hears", "the man", "the old cat sees a dog"]
    encoded = Dataset.from_dict({**tokenizer(texts), column: [0, 1, 1]})
    (batch,) = batches_of(encoded, tokenizer, size=3)
    assert batch["labels"].tolist() == [1, 0, 1]  # by length
