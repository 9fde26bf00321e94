"""Pruned feed-forward neurons and whole layers: mask equals remove, and weights are fitted."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator
from hypothesis import given, settings
from hypothesis import strategies as st

from fairseq_plugin.plan_transport import with_plan
from headprune import DataError, PruningPlan, UsageError, select
from tests.fairseq_plugin.models import batch, build, dictionary
from tests.fairseq_plugin.test_model import (
    assert_same_translations,
    beam_search,
    loss,
    outputs,
    stored,
)
from tests.fairseq_plugin.test_stock_interface import saved_and_loaded

logging.getLogger("fairseq_plugin").setLevel(logging.CRITICAL)

NEURONS = 6
SIZES = {
    **{f"{side}_layers": 3 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_embed_dim": NEURONS for side in ("encoder", "decoder")},
}
SHAPE = {
    **dict.fromkeys(("ES", "ED", "DS"), (4,) * 3),
    **dict.fromkeys(("EF", "DF"), (NEURONS,) * 3),
    **dict.fromkeys(("EL", "DL"), (1,) * 3),
}

build_deep = partial(build, **SIZES)


def plan_of(**kept: Any) -> PruningPlan:
    """A plan of the components that are named."""
    return PruningPlan(kept=kept, units={name: SHAPE[name] for name in kept})


def some_of(units: int) -> st.SearchStrategy[tuple[int, ...]]:
    return st.sets(st.integers(0, units - 1)).map(lambda numbers: tuple(sorted(numbers)))


plans = st.fixed_dictionaries(
    {name: st.tuples(*[some_of(units) for units in layers]) for name, layers in SHAPE.items()}
).map(lambda kept: PruningPlan(kept=kept, units=SHAPE))

RAGGED = PruningPlan(
    kept={
        "ES": [(1, 3), (), (0, 1, 2, 3)],
        "ED": [(2,), (0,), ()],
        "DS": [(), (0, 1, 2), (3,)],
        "EF": [(), (0, 5), (1, 2, 3)],
        "DF": [(4,), (0, 1, 2, 3, 4, 5), ()],
        "EL": [(0,), (0,), ()],
        "DL": [(0,), (), (0,)],
    },
    units=SHAPE,
)
NOTHING_LEFT_IN_LAYERS = plan_of(**{name: [()] * 3 for name in SHAPE if name not in ("EL", "DL")})
NO_LAYERS = plan_of(EL=[()] * 3, DL=[()] * 3)
PLANS = pytest.mark.parametrize(
    "plan",
    [RAGGED, NOTHING_LEFT_IN_LAYERS, NO_LAYERS],
    ids=["ragged", "empty layers", "no layers"],
)


def both(plan: PruningPlan, **options: Any) -> tuple[Any, Any]:
    """Models of form mask and of form remove."""
    mask = build_deep(head_plan=plan.to_json(), head_form="mask", **options)
    return mask, build_deep(head_plan=plan.to_json(), **options)


@settings(deadline=None, max_examples=8)
@given(plan=plans, before=st.booleans())
def test_mask_equals_remove(plan: PruningPlan, before: bool) -> None:
    style = {"encoder_normalize_before": before, "decoder_normalize_before": before}
    mask, remove = both(plan, **style)
    torch.testing.assert_close(outputs(mask.eval()), outputs(remove.eval()), atol=1e-5, rtol=1e-5)
    assert mask.plan == remove.plan == plan.normalised(SHAPE)


@PLANS
def test_mask_and_remove_translate_alike(plan: PruningPlan) -> None:
    mask, remove = both(plan)
    assert_same_translations(beam_search(mask.eval()), beam_search(remove.eval()))


def test_layers_are_skipped_in_training_by_layerdrop_and_never_in_evaluation() -> None:
    options = {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5}
    plan = plan_of(EL=[(0,), (), (0,)], DL=[(0,), (0,), ()]).to_json()
    plain = build_deep(head_plan=plan).eval()
    model = build_deep(head_plan=plan, gates="ES,EL", **options)
    weights = {name: tensor for name, tensor in model.state_dict().items() if "gates" not in name}
    plain.load_state_dict(weights)
    assert torch.equal(outputs(model.eval()), outputs(plain))
    model.train().gates.eval()  # so that only layerdrop is random
    torch.manual_seed(0)
    drawn = [outputs(model) for _ in range(6)]
    assert any(not torch.allclose(output, drawn[0]) for output in drawn)
    # Sometimes all four layers are kept.
    assert any(torch.allclose(outputs(model), outputs(plain), atol=1e-5) for _ in range(200))


@pytest.mark.parametrize("component", ["EF", "DF", "EL", "DL"])
def test_pruned_units_change_the_output(component: str) -> None:
    kept = [(0,), (), (0,)]
    pruned = build_deep(head_plan=plan_of(**{component: kept}).to_json())
    assert (outputs(pruned.eval()) - outputs(build_deep().eval())).abs().max() > 0.01


@PLANS
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, partial(torch.optim.Adam, eps=1e-4)])
def test_mask_and_remove_train_alike(plan: PruningPlan, optimizer: Any) -> None:
    mask, remove = (model.double() for model in both(plan))
    for model in (mask, remove):
        steps = optimizer(model.parameters(), lr=1e-2)
        for _ in range(3):
            steps.zero_grad()
            loss(model).backward()
            steps.step()
    cut = build_deep(head_plan=plan.to_json(), seed=1).double()
    cut.load_state_dict(stored(mask))
    weights = dict(remove.named_parameters())
    for name, parameter in cut.named_parameters():
        torch.testing.assert_close(parameter, weights[name], atol=1e-9, rtol=1e-9)


@PLANS
@pytest.mark.parametrize("form", ["mask", "remove"])
@pytest.mark.parametrize("before", [False, True])
def test_every_parameter_has_a_gradient(plan: PruningPlan, form: str, before: bool) -> None:
    style = {"encoder_normalize_before": before, "decoder_normalize_before": before}
    model = build_deep(head_plan=plan.to_json(), head_form=form, **style)
    loss(model).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_removed_weights_are_gone_and_the_others_start_as_in_the_full_model() -> None:
    full = build_deep().state_dict()
    model = build_deep(head_plan=plan_of(EF=[(1, 4), (), (0,)], EL=[(0,), (0,), ()]).to_json())
    weights = model.state_dict()
    assert str(model.plan) == "ES=440 ED=444 DS=444 EF=200 EL=110"
    assert torch.equal(
        weights["encoder.layers.0.fc1.weight"], full["encoder.layers.0.fc1.weight"][[1, 4]]
    )
    assert torch.equal(
        weights["encoder.layers.0.fc2.weight"], full["encoder.layers.0.fc2.weight"][:, [1, 4]]
    )
    assert "encoder.layers.1.fc1.weight" not in weights
    assert weights["encoder.layers.1.fc2.bias"].shape == (32,)
    assert not any(name.startswith("encoder.layers.2") for name in weights)
    assert torch.equal(weights["decoder.layers.2.fc1.weight"], full["decoder.layers.2.fc1.weight"])


def test_a_sublayer_without_neurons_passes_on_the_bias() -> None:
    model = build_deep(head_plan=plan_of(EF=[()] * 3).to_json())
    layer = model.encoder.layers[0]
    layer.fc2.bias.data.normal_()
    x = torch.randn(3, 2, 32)
    assert torch.equal(layer.fc2(layer.fc1(x)), layer.fc2.bias.expand(3, 2, 32))


@settings(deadline=None, max_examples=8)
@given(plan=plans)
def test_ways_to_a_plan_give_the_same_weights(plan: PruningPlan) -> None:
    """From scratch, from a stock checkpoint, from a masked one, and in two steps."""
    scratch = build_deep(head_plan=plan.to_json()).state_dict()
    halfway = select.at_random(SHAPE, percent=30, seed=5)
    halfway = PruningPlan(
        kept={
            name: [
                sorted({*a, *b}) for a, b in zip(plan.kept[name], halfway.kept[name], strict=True)
            ]
            for name in SHAPE
        },
        units=SHAPE,
    )
    stock = build_deep("transformer")
    step = build_deep(head_plan=halfway.to_json(), seed=1)
    step.load_state_dict(stock.state_dict())
    masked = build_deep(head_plan=plan.to_json(), head_form="mask")
    for source in (stock, build_deep(), step, masked):
        model = build_deep(head_plan=plan.to_json(), seed=2)
        model.load_state_dict(stored(source))
        model.load_state_dict(model.state_dict())  # what is cut already stays as it is
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, scratch[name]), name


@pytest.mark.parametrize(
    ("one", "other", "message"),
    [
        (
            {"EL": [(0,), (0,), ()]},
            {"EL": [(), (0,), (0,)]},
            "EL: layer 2 is to be kept, .* of 3",
        ),
        (
            {"EF": [(0, 1)] * 3},
            {"EF": [(0, 1), (0, 1), (0, 2)]},
            r"EF: layer 2: neuron 2 is to be kept, .* only 2 of 6 neurons \(0-1\)",
        ),
    ],
)
@pytest.mark.parametrize("form", ["mask", "remove"])
def test_units_are_matched_by_number(one: Any, other: Any, message: str, form: str) -> None:
    source = build_deep(head_plan=plan_of(**one).to_json(), head_form=form)
    with pytest.raises(DataError, match=message):
        build_deep(head_plan=plan_of(**other).to_json()).load_state_dict(stored(source))


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ({"EF": [(0, 1)] * 3}, "EF: layer 0: form mask needs all 6 neurons, the checkpoint has 2"),
        ({"DL": [(0,), (), (0,)]}, "DL: form mask needs all 3 layers, the checkpoint has 2"),
    ],
)
def test_masking_needs_all_weights(kept: Any, message: str) -> None:
    mask, remove = both(plan_of(**kept))
    with pytest.raises(DataError, match=message):
        mask.load_state_dict(stored(remove))


def test_the_plan_beside_the_weights_is_read_once() -> None:
    model = build_deep(head_plan=RAGGED.to_json())
    weights = with_plan(model.state_dict(), model.plan)
    build_deep(head_plan=RAGGED.to_json()).load_state_dict(weights)
    assert model.state_dict().keys() < weights.keys()


@pytest.mark.parametrize("form", ["mask", "remove"])
@PLANS
def test_a_scripted_model_computes_the_same(plan: PruningPlan, form: str) -> None:
    model = build_deep(head_plan=plan.to_json(), head_form=form).eval()
    inputs = batch()
    expected, _ = model(**inputs)
    scripted = saved_and_loaded(torch.jit.script(model))
    torch.testing.assert_close(scripted(**inputs)[0], expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(model(**inputs)[0], expected)


@pytest.mark.parametrize("form", ["mask", "remove"])
@pytest.mark.parametrize(
    "style",
    [
        {"checkpoint_activations": True},
        {"encoder_layerdrop": 0.5, "decoder_layerdrop": 0.5},
        {"activation_dropout": 0.5},
    ],
    ids=lambda style: next(iter(style)),
)
def test_ways_of_training(style: dict[str, Any], form: str) -> None:
    model = build_deep(head_plan=RAGGED.to_json(), head_form=form, **style)
    loss(model).backward()
    expected = build_deep(head_plan=RAGGED.to_json()).eval()
    torch.testing.assert_close(outputs(model.eval()), outputs(expected), atol=1e-5, rtol=1e-5)


def test_bfloat16() -> None:
    model = build_deep(head_plan=RAGGED.to_json(), autocast="bf16").eval()
    exact = build_deep(head_plan=RAGGED.to_json()).eval()
    torch.testing.assert_close(outputs(model), outputs(exact), atol=0.1, rtol=0.1)
    generator = SequenceGenerator([model], dictionary(), beam_size=2, max_len_b=4)
    sample = {"net_input": {k: v for k, v in batch().items() if k != "prev_output_tokens"}}
    assert len(generator.generate([model], sample)) == 5


def test_quantization_noise_needs_whole_blocks() -> None:
    noise = {"quant_noise_pq": 0.1, "quant_noise_pq_block_size": 2, "share_all_embeddings": True}
    with pytest.raises(UsageError, match="EF: layer 1: --quant-noise-pq needs a multiple of 2"):
        build_deep(ef_neurons="2,3,4", **noise)
    loss(build_deep(ef_neurons="2,4,6", **noise)).backward()


def test_options() -> None:
    model = build_deep(
        ef_neurons="3", df_neurons="1,6,2", decoder_layers_kept="0,2", es_heads="123", head_seed=4
    )
    assert str(model.plan) == "ES=123 ED=404 DS=404 EF=333 DF=102 DL=101"
    chosen = select.at_random({"EF": SHAPE["EF"]}, keep={"EF": [3, 3, 3]}, seed=4)
    assert model.plan.part(["EF"]) == chosen
    again = build_deep(plan=model.args.head_plan)
    assert again.plan == model.plan and again.args.plan is None


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ef_neurons": "7"}, "EF: layer 0 asks for 7 neurons, the model has 6"),
        ({"df_neurons": "1,2"}, "DF: neuron counts for 2 layers, the model has 3"),
        ({"encoder_layers_kept": "0,3"}, "--encoder-layers-kept: no layer 3, the encoder has 3"),
        (
            {"decoder_layers_kept": "0", "decoder_layers_to_keep": "0"},
            "--decoder-layers-kept or --decoder-layers-to-keep, not both",
        ),
        ({"plan": "a.json", "head_plan": "b.json"}, "--plan or --head-plan, not both"),
        ({"plan": 3}, "plan: 3 is not a file's path"),
    ],
)
def test_options_that_do_not_fit(options: dict[str, Any], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        build_deep(**options)
