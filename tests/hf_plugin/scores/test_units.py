"""Scores of neurons and whole layers, against plain loops and single gates, for every family."""

from __future__ import annotations

import pytest
import torch

import hf_plugin
from headprune import PruningPlan
from headprune.gates import gated, gated_layers
from headprune.scores.ablation import ablation, cases_of
from headprune.scores.compute import Origin, compute_scores
from headprune.scores.fisher import fisher_blocks
from headprune.scores.gradients import gradient_scores
from headprune.scores.layer_similarity import layer_similarities
from headprune.scores.reuse import masked_outcomes
from headprune.select import by_score
from hf_plugin.scores.model import HuggingFaceModel
from tests.hf_plugin.models import FAMILIES
from tests.hf_plugin.scores.test_ablation import model_of
from tests.hf_plugin.scores.test_scores import cut_up, data

NEURONS = ("EF", "DF")
LAYERS = ("EL", "DL")


def masked_outcome(model, batch, plan):
    with hf_plugin.masked(model, plan), torch.no_grad():
        return HuggingFaceModel(model).outcome(batch)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_mask_of_neurons_gives_what_the_plain_loop_gives(family):
    model = model_of(family)
    scored = HuggingFaceModel(model)
    cases = {
        (component, layer): masks[:3]
        for (component, layer), masks in cases_of(scored, "ablation", NEURONS).items()
    }
    assert cases
    _, outcomes = masked_outcomes(scored, data(family), cases, at_once=15)
    for (component, layer), masks in cases.items():
        units = [part.units for part in scored.sublayers[component]]
        for mask, outcome in zip(masks, outcomes[component, layer], strict=True):
            kept = [range(number) for number in units]
            kept[layer] = sorted(mask)
            plan = PruningPlan(kept={component: kept}, units={component: units})
            expected = masked_outcome(model, data(family), plan)
            torch.testing.assert_close(outcome.losses, expected.losses, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", FAMILIES)
def test_ablation_of_layers_is_the_rise_of_the_loss_without_them(family):
    model = model_of(family)
    scored = HuggingFaceModel(model)
    result = ablation(
        scored, cut_up(data(family), 3), metric="loss", kinds=["ablation"], components=LAYERS
    )["ablation"]
    assert set(result.drops) == set(scored.layers)
    for component, layers in scored.layers.items():
        for number in range(len(layers)):
            kept = [(0,)] * len(layers)
            kept[number] = ()
            plan = PruningPlan(kept={component: kept}, units={component: (1,) * len(layers)})
            rise = masked_outcome(model, data(family), plan).losses.mean().item() - result.base
            assert result.drops[component][number] == [pytest.approx(rise, abs=1e-5)]


@pytest.mark.parametrize("family", ["bert", "bart"])
def test_similarities_of_layers_are_those_of_their_hidden_states(family):
    model, batch = model_of(family), data(family)
    scored = HuggingFaceModel(model)
    scores = layer_similarities(scored, cut_up(batch, 2), components=LAYERS)
    with scored.evaluating(), torch.no_grad():
        outputs = model(**batch, output_hidden_states=True)
    for component in scored.layers:
        if component == "EL":
            states = getattr(outputs, "encoder_hidden_states", None) or outputs.hidden_states
        else:
            states = outputs.decoder_hidden_states
        real = scored.queries(component, batch)
        for layer in range(len(scored.layers[component])):
            pairs = [
                (states[layer][row][real[row]], states[layer + 1][row][real[row]])
                for row in range(len(real))
            ]
            cosines = [
                float(torch.cosine_similarity(a, b, dim=0))
                for x, y in pairs
                for a, b in zip(x, y, strict=True)
            ]
            assert scores["layer-contribution"][component][layer] == [
                pytest.approx(sum(cosines) / len(cosines), abs=1e-5)
            ]
            similarities = []
            for _, y in pairs:
                if len(y) > 1:
                    table = torch.cosine_similarity(y[:, None], y[None], dim=-1)
                    similarities.append(table[~torch.eye(len(y), dtype=torch.bool)].mean().item())
            assert scores["layer-output-similarity"][component][layer] == [
                pytest.approx(sum(similarities) / len(similarities), abs=1e-5)
            ]


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_are_those_of_single_gates(family):
    model = model_of(family)
    scored = HuggingFaceModel(model)
    components = [*NEURONS, *LAYERS]
    found = gradient_scores(scored, cut_up(data(family), 3), components=components)
    scores = found.gradient_raw
    examples = cut_up(data(family), 1)
    with scored.evaluating():
        for component in scores:
            if component in LAYERS:
                xi = torch.ones((), requires_grad=True)
                nu = torch.ones((), requires_grad=True)  # of the whole sub-layer
                gate = gated_layers([(scored.layers[component][1], xi * nu)])
            else:
                xi = torch.ones(scored.sublayers[component][1].units, requires_grad=True)
                nu = torch.ones((), requires_grad=True)
                gate = gated([(scored.sublayers[component][1], xi * nu)])
            total, squares, whole = torch.zeros_like(xi), torch.zeros_like(xi), 0.0
            with gate:
                for example in examples:
                    loss = scored.outcome(example).losses.sum()
                    gradient, of_sublayer = torch.autograd.grad(loss, (xi, nu), retain_graph=True)
                    total += gradient.abs()
                    squares += gradient.square()
                    whole += of_sublayer.abs().item() / len(examples)
            expected = [whole] * xi.numel()
            assert found.sublayer[component][1] == pytest.approx(expected, rel=1e-3, abs=1e-6)
            expected = (squares / len(examples)).flatten().tolist()
            assert found.fisher[component][1] == pytest.approx(expected, rel=1e-3, abs=1e-6)
            expected = (total / len(examples)).flatten().tolist()
            assert scores[component][1] == pytest.approx(expected, rel=1e-3, abs=1e-6)


@pytest.mark.parametrize("family", ["bert", "bart"])
def test_fisher_information_is_that_of_each_example(family):
    model = model_of(family)
    scored = HuggingFaceModel(model)
    components = [name for name in ("ES", "ED", "DF") if name in scored.sublayers]
    blocks = fisher_blocks(scored, cut_up(data(family), 3), components=components)
    scores = gradient_scores(scored, cut_up(data(family), 2), components=components).fisher
    assert {name for name, _ in blocks} == {*components}
    examples = cut_up(data(family), 1)
    with scored.evaluating():
        for (component, layer), block in blocks.items():
            xi = torch.ones(scored.sublayers[component][layer].units, requires_grad=True)
            total = torch.zeros_like(block)
            with gated([(scored.sublayers[component][layer], xi)]):
                for example in examples:
                    (gradient,) = torch.autograd.grad(scored.outcome(example).losses.sum(), xi)
                    total += gradient.outer(gradient) / len(examples)
            torch.testing.assert_close(block, total, atol=1e-6, rtol=1e-3)
            assert scores[component][layer] == pytest.approx(block.diagonal().tolist(), rel=1e-3)


def test_a_score_has_numbers_for_the_units_that_it_scores_alone():
    scores = compute_scores(
        HuggingFaceModel(model_of("bert")),
        ["gradient", "gradient-raw", "shapley", "entropy"],
        batches=lambda purpose: cut_up(data("bert"), 3),
        origin=Origin(model="bert", fingerprint="f"),
        metric="loss",
        seed=1,
        components=["ES", "EF", "EL"],
        permutations=2,
    )
    components = {name: [*each.values] for name, each in scores.items()}
    # `gradient` is divided by the norm of a layer, which is its number if it is one unit.
    assert components == {
        "gradient": ["ES", "EF"],
        "gradient-raw": ["ES", "EF", "EL"],
        "shapley": ["ES"],
        "entropy": ["ES"],
    }


def test_scores_of_all_kinds_of_units_choose_plans():
    model = model_of("bert")
    scored = HuggingFaceModel(model)
    for components, names in (
        (["EF"], ["gradient", "taylor", "magnitude", "random"]),
        (["EL"], ["gradient-raw", "taylor-molchanov", "magnitude", "random", "ablation"]),
    ):
        scores = compute_scores(
            scored,
            names,
            batches=lambda purpose: cut_up(data("bert"), 3),
            origin=Origin(model="bert", fingerprint="f"),
            metric="loss",
            seed=1,
            components=components,
        )
        for name in names:
            plan = by_score(scores[name], percent=50)
            assert list(plan.units) == components
            assert 0 < plan.total_kept < plan.total
            pruned = hf_plugin.prune(model_of("bert"), plan)
            assert hf_plugin.plan(pruned).part(components) == plan
