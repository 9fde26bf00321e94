"""The model: equal to stock fairseq when full, and mask equal to remove for every plan."""

from __future__ import annotations

import logging
from argparse import Namespace
from functools import partial

import pytest
import torch
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from hypothesis import given, settings
from hypothesis import strategies as st
from omegaconf import OmegaConf

from fairseq_plugin.errors import find
from fairseq_plugin.plan_transport import with_plan
from headprune import DataError, HeadPlan, UsageError, select
from tests.fairseq_plugin.models import SHAPE, batch, build, dictionary

logging.getLogger("fairseq_plugin").setLevel(logging.CRITICAL)

some_heads = st.sets(st.integers(0, 3)).map(lambda heads: tuple(sorted(heads)))
plans = st.tuples(*[some_heads] * 6).map(
    lambda k: HeadPlan(kept={"ES": k[:2], "ED": k[2:4], "DS": k[4:]}, heads=SHAPE)
)
NO_HEADS_HERE_AND_THERE = HeadPlan(
    kept={"ES": [(1, 3), ()], "ED": [(2,), ()], "DS": [(), (0, 1, 2)]}, heads=SHAPE
)
NOTHING_LEFT = HeadPlan(kept={name: [(), ()] for name in SHAPE}, heads=SHAPE)
styles = pytest.mark.parametrize(
    "style",
    [
        {},
        {"encoder_normalize_before": True, "decoder_normalize_before": True},
        {"share_all_embeddings": True},
        {"encoder_embed_dim": 24, "encoder_attention_heads": 4},  # ED's keys are narrower
        {"checkpoint_activations": True},
        {"cross_self_attention": True, "no_cross_attention": True},
    ],
    ids=["post-norm", "pre-norm", "shared", "widths", "checkpointed", "cross-self"],
)


def outputs(model, **options):
    return model(**batch(**options))[0]


def loss(model):
    logits = outputs(model)
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), torch.arange(40) % 20)


def stored(model):
    """A model's weights as fairseq loads them from its checkpoint."""
    weights = model.state_dict()
    return with_plan(weights, model.plan) if hasattr(model, "plan") else weights


def beam_search(*models):
    generator = SequenceGenerator(list(models), dictionary(), beam_size=3, max_len_b=8)
    sample = {"net_input": {k: v for k, v in batch().items() if k != "prev_output_tokens"}}
    return [
        [(hypothesis["tokens"].tolist(), hypothesis["score"].item()) for hypothesis in sentence]
        for sentence in generator.generate(list(models), sample)
    ]


def assert_same_translations(first, second):
    assert [[tokens for tokens, _ in s] for s in first] == [[t for t, _ in s] for s in second]
    scores = [torch.tensor([score for s in x for _, score in s]) for x in (first, second)]
    torch.testing.assert_close(*scores, atol=1e-5, rtol=1e-5)


@styles
def test_full_plan_is_stock_transformer(style):
    stock, mine = build("transformer", **style), build(seed=1, **style)
    mine.load_state_dict(stock.state_dict())
    for training in (True, False):
        stock.train(training), mine.train(training)
        torch.testing.assert_close(outputs(mine), outputs(stock), atol=1e-5, rtol=1e-5)
    stock.train(), mine.train()
    loss(stock).backward(), loss(mine).backward()
    gradients = {name: p.grad for name, p in stock.named_parameters()}
    for name, parameter in mine.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[name], atol=1e-5, rtol=1e-5)
    stock.eval(), mine.eval()
    assert_same_translations(beam_search(mine), beam_search(stock))


def test_from_the_same_seed_weights_start_as_those_of_stock_transformer():
    stock, mine = build("transformer").state_dict(), build().state_dict()
    assert all(torch.equal(mine[name], tensor) for name, tensor in stock.items())
    assert mine.keys() == stock.keys()


@settings(deadline=None, max_examples=15)
@given(plan=plans, before=st.booleans())
def test_mask_equals_remove(plan, before):
    style = {"encoder_normalize_before": before, "decoder_normalize_before": before}
    mask = build(head_plan=plan.to_json(), head_form="mask", **style).eval()
    remove = build(head_plan=plan.to_json(), **style).eval()
    torch.testing.assert_close(outputs(mask), outputs(remove), atol=1e-5, rtol=1e-5)
    (masked,), (removed,) = (model(**batch())[1]["attn"] for model in (mask, remove))
    assert (masked is None) == (removed is None) == (not any(plan.kept["ED"]))
    if masked is not None:
        torch.testing.assert_close(masked, removed, atol=1e-5, rtol=1e-5)
    if plan.is_full:
        return
    assert sum(p.numel() for p in remove.parameters()) < sum(p.numel() for p in mask.parameters())


@pytest.mark.parametrize("plan", [NO_HEADS_HERE_AND_THERE, NOTHING_LEFT])
def test_mask_and_remove_translate_alike(plan):
    mask = build(head_plan=plan.to_json(), head_form="mask").eval()
    remove = build(head_plan=plan.to_json()).eval()
    assert_same_translations(beam_search(mask), beam_search(remove))


def test_words_are_aligned_by_the_topmost_layer_that_has_heads():
    found = []
    for form in ("remove", "mask"):
        model = build(head_plan=NO_HEADS_HERE_AND_THERE.to_json(), head_form=form).eval()
        aligner = SequenceGeneratorWithAlignment(
            [model], dictionary(), beam_size=2, max_len_b=8, print_alignment="hard"
        )
        inputs = batch()
        target = inputs.pop("prev_output_tokens")
        hypotheses = aligner.generate([model], {"net_input": inputs, "target": target})
        found.append([each["alignment"] for sentence in hypotheses for each in sentence])
    assert found[0] == found[1] and any(len(alignment) for alignment in found[0])


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("form", ["remove", "mask"])
def test_half_precision_is_as_near_to_full_precision_as_stock_fairseq_is(form, dtype):
    """The model in half precision; fairseq's own flags for it need a GPU."""
    options = {"head_plan": NO_HEADS_HERE_AND_THERE.to_json(), "head_form": form}
    exact = outputs(build(**options).eval())
    model = build(**options).eval().to(dtype)
    output = outputs(model)
    stock = build("transformer").eval()
    expected_error = (outputs(stock) - outputs(stock.to(dtype)).float()).abs().max()
    assert output.dtype == dtype
    assert (output.float() - exact).abs().max() < 2 * expected_error
    loss(model).backward()
    gradients = {name: p.grad for name, p in model.named_parameters()}
    assert all(g is not None and g.isfinite().all() for g in gradients.values())
    assert {g.dtype for g in gradients.values()} == {dtype}
    beam_search(model)


def test_a_pruned_head_changes_the_output():
    """Else the equalities above could hold for a plugin that prunes nothing."""
    full, pruned = build().eval(), build(head_plan=NO_HEADS_HERE_AND_THERE.to_json()).eval()
    assert (outputs(full) - outputs(pruned)).abs().max() > 0.1


# Where a gradient is zero but for rounding, as that of a key's bias is, Adam with its usual eps
# scales the rounding up to full steps.
ADAM = partial(torch.optim.Adam, eps=1e-4)


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, ADAM], ids=["SGD", "Adam"])
@settings(deadline=None, max_examples=6)
@given(plan=plans)
def test_mask_and_remove_train_alike(optimizer, plan):
    # In float64: steps this long magnify what float32 rounds, differently on each processor.
    mask = build(head_plan=plan.to_json(), head_form="mask").double()
    remove = build(head_plan=plan.to_json()).double()
    for model in (mask, remove):
        steps = optimizer(model.parameters(), lr=1e-2)
        for _ in range(4):
            steps.zero_grad()
            loss(model).backward()
            steps.step()
    cut = build(head_plan=plan.to_json(), seed=1).double()
    cut.load_state_dict(mask.state_dict())
    weights = dict(remove.named_parameters())
    for name, parameter in cut.named_parameters():
        torch.testing.assert_close(parameter, weights[name], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("form", ["mask", "remove"])
@pytest.mark.parametrize("plan", [NO_HEADS_HERE_AND_THERE, NOTHING_LEFT])
@pytest.mark.parametrize("before", [False, True])
def test_every_parameter_has_a_gradient(plan, form, before):
    style = {"encoder_normalize_before": before, "decoder_normalize_before": before}
    model = build(head_plan=plan.to_json(), head_form=form, **style)
    loss(model).backward()
    assert [name for name, p in model.named_parameters() if p.grad is None] == []


def test_a_layer_without_heads_passes_on_the_bias():
    model = build(head_plan=NOTHING_LEFT.to_json())
    attention = model.encoder.layers[0].self_attn
    attention.out_proj.bias.data.normal_()
    x = torch.randn(3, 2, 32)
    out, weights = attention(x, x, x, need_weights=True)
    assert torch.equal(out, attention.out_proj.bias.expand(3, 2, 32)) and weights is None


def test_ensemble_of_different_plans():
    plans = [HeadPlan.full(SHAPE), NO_HEADS_HERE_AND_THERE, NOTHING_LEFT]
    forms = ("remove", "mask")
    ensembles = [
        [build(head_plan=p.to_json(), head_form=f, seed=i).eval() for i, p in enumerate(plans)]
        for f in forms
    ]
    assert_same_translations(*(beam_search(*models) for models in ensembles))


@settings(deadline=None, max_examples=10)
@given(plan=plans)
def test_ways_to_a_plan_give_the_same_weights(plan):
    """From scratch, from a stock checkpoint, from a masked one, and in two steps."""
    scratch = build(head_plan=plan.to_json()).state_dict()
    halfway = select.at_random(SHAPE, percent=30, seed=5)
    halfway = HeadPlan(
        kept={
            c: [sorted({*a, *b}) for a, b in zip(plan.kept[c], halfway.kept[c], strict=True)]
            for c in SHAPE
        },
        heads=SHAPE,
    )
    step = build(head_plan=halfway.to_json(), seed=1)
    step.load_state_dict(build("transformer").state_dict())
    masked = build(head_plan=plan.to_json(), head_form="mask")
    for source in (build("transformer"), build(), step, masked):
        model = build(head_plan=plan.to_json(), seed=2)
        model.load_state_dict(stored(source))
        model.load_state_dict(model.state_dict())  # what is cut already stays as it is
        for name, tensor in model.state_dict().items():
            assert torch.equal(tensor, scratch[name]), name


def test_old_checkpoints_with_one_input_projection():
    stock = build("transformer")
    state = stock.state_dict()
    prefix = "encoder.layers.0.self_attn."
    for kind in ("weight", "bias"):
        parts = [state.pop(f"{prefix}{p}_proj.{kind}") for p in "qkv"]
        state[f"{prefix}in_proj_{kind}"] = torch.cat(parts)
    model = build(head_plan=NO_HEADS_HERE_AND_THERE.to_json(), seed=1)
    model.load_state_dict(state)
    expected = build(head_plan=NO_HEADS_HERE_AND_THERE.to_json())
    torch.testing.assert_close(outputs(model.eval()), outputs(expected.eval()))


def test_heads_are_matched_by_number():
    """As many heads, but others: taking the first rows would be silently wrong."""
    one = HeadPlan(kept={c: [(0, 1), (0, 1)] for c in SHAPE}, heads=SHAPE)
    other = HeadPlan(kept={c: [(0, 1), (0, 2)] for c in SHAPE}, heads=SHAPE)
    with pytest.raises(DataError, match=r"ES: layer 1: head 2 is to be kept, .* only 2 of 4"):
        build(head_plan=other.to_json()).load_state_dict(stored(build(head_plan=one.to_json())))


def test_masking_needs_all_weights():
    plan = NO_HEADS_HERE_AND_THERE.to_json()
    masked, removed = build(head_plan=plan, head_form="mask"), build(head_plan=plan)
    with pytest.raises(DataError, match="ES: layer 0: form mask needs all 4 heads"):
        masked.load_state_dict(stored(removed))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder_embed_dim": 16}, "ES: layer 0: .* is 16 wide, 4 heads of 8 are 32"),
        ({"encoder_ffn_embed_dim": 40}, r"encoder.layers.0.fc1.* \(40,\)|\(40, 32\)"),
        ({"encoder_layers": 3}, "the checkpoint has encoder.layers.2"),
        ({"decoder_layers": 1}, "the checkpoint lacks decoder.layers.1"),
    ],
)
def test_checkpoint_of_another_architecture(options, message):
    with pytest.raises(DataError, match=message):
        build().load_state_dict(build(**options).state_dict())


def test_dictionary_that_does_not_fit():
    state = build().state_dict()
    name = "encoder.embed_tokens.weight"
    state[name] = state[name][:20]
    with pytest.raises(DataError, match=r"dictionary and width are \(20, 32\), .* \(24, 32\)"):
        build().load_state_dict(state)


def test_layers_to_keep():
    """Layers keep the numbers of the unpruned model; those that are dropped keep no head."""
    shape = dict.fromkeys(SHAPE, (4,) * 3)
    plan = select.at_random(shape, percent=40, seed=2)
    deep = {"encoder_layers": 3, "decoder_layers": 3, "head_plan": plan.to_json()}
    lists = {"encoder_layers_to_keep": "0,2", "decoder_layers_to_keep": "1,2"}
    model = build(**deep, **lists)
    assert model.plan.kept["EL"] == ((0,), (), (0,)) and model.plan.kept["DL"] == ((), (0,), (0,))
    assert model.plan.kept["ES"] == (plan.kept["ES"][0], (), plan.kept["ES"][2])
    assert model.plan.kept["ED"] == ((), *plan.kept["ED"][1:])
    assert len(model.encoder.layers) == len(model.decoder.layers) == 2
    model.load_state_dict(
        stored(build(**deep)),
        model_cfg=OmegaConf.create({"_name": "transformer_headpruned", **lists}),
    )
    assert outputs(model).shape == (5, 8, 24)


DEEP = {"encoder_layers": 3, "decoder_layers": 3}


@pytest.mark.parametrize("layers", ["1", [1], 1])
def test_one_layer_to_keep(layers):
    """In every form that it comes in: from overrides, from the command line, as a number."""
    full = build(**DEEP).state_dict()
    model = build(**DEEP, encoder_layers_to_keep=layers)
    assert str(model.plan) == "ES=040 ED=444 DS=444 EL=010"
    model.load_state_dict(dict(full))
    weight = model.encoder.layers[0].self_attn.q_proj.weight
    assert torch.equal(weight, full["encoder.layers.1.self_attn.q_proj.weight"])
    # The checkpoint of the smaller model: when it is resumed, and when it is translated with.
    build(**DEEP, encoder_layers_to_keep=layers).load_state_dict(stored(model))
    assert model.args.encoder_layers_to_keep is None and model.args.encoder_layers == 3
    build(**DEEP, head_plan=model.args.head_plan).load_state_dict(stored(model))
    # Version 0.1.0 stored the plan of a model with one layer.
    old = build(**{**DEEP, "encoder_layers": 1})
    old.load_state_dict(model.state_dict())
    build(**DEEP, encoder_layers_to_keep=layers).load_state_dict(stored(old))


@pytest.mark.parametrize(
    ("layers", "message"),
    [("x", "'x'; give numbers"), ("3", "no layer 3, the encoder has 3"), ([0, -1], "no layer -1")],
)
def test_layers_to_keep_that_are_not_there(layers, message):
    with pytest.raises(UsageError, match=f"--encoder-layers-to-keep: {message}"):
        build(**DEEP, encoder_layers_to_keep=layers)


def test_counts_and_seed():
    one = build(es_heads="42", ed_heads="0,1", head_seed=7).head_plan
    assert str(one) == "ES=42 ED=01 DS=44"
    assert one == select.at_random(SHAPE, keep={"ES": "42", "ED": "01"}, seed=7)
    seeds = {build(es_heads="11", head_seed=seed).head_plan for seed in range(8)}
    assert len(seeds) > 1


def test_counts_choose_among_the_heads_of_a_plan():
    plan = select.at_random(SHAPE, percent=50, seed=3, at_least=1)
    assert build(head_plan=plan.to_json(), es_heads="11").head_plan.is_within(plan)


def test_plan_file_is_stored_as_the_plan(tmp_path):
    file = tmp_path / "plan.json"
    NO_HEADS_HERE_AND_THERE.save(file)
    model = build(head_plan=str(file))
    assert HeadPlan.from_json(model.args.head_plan) == NO_HEADS_HERE_AND_THERE


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"es_heads": "444"}, "ES: head counts for 3 layers, the model has 2"),
        ({"ds_heads": "45"}, "DS: layer 1 asks for 5 heads, the model has 4"),
        ({"ed_heads": "4x"}, "ED: '4x' is no list of counts"),
        (
            {"head_plan": HeadPlan.full(dict.fromkeys(SHAPE, (4, 4, 4))).to_json()},
            "ES: the plan is for 3 layers, the model has 2",
        ),
        (
            {"head_plan": HeadPlan.full({"ES": (4, 4), "ED": (4, 4), "DS": (4, 8)}).to_json()},
            "DS: layer 1: the plan is for 8 heads, the model has 4",
        ),
    ],
)
def test_heads_that_do_not_fit_the_model(options, message):
    with pytest.raises(UsageError, match=message):
        build(**options)


def test_a_plan_of_one_component_leaves_the_others_whole():
    plan = HeadPlan(kept={"ES": [(0,), (1, 2)]}, heads={"ES": (4, 4)})
    model = build(head_plan=plan.to_json())
    assert model.head_plan.counts == {"ES": (1, 2), "ED": (4, 4), "DS": (4, 4)}


def test_plan_file_that_is_missing(tmp_path):
    with pytest.raises(DataError, match=r"plan.json: cannot read the plan \(No such file"):
        build(head_plan=str(tmp_path / "plan.json"))


def test_the_mistake_is_found_behind_fairseqs_own_exception():
    try:
        try:
            raise DataError("ES: layer 0: no")
        except DataError:
            raise Exception("please ensure that the architectures match") from None
    except Exception as error:
        assert str(find(error)) == "ES: layer 0: no"
    assert find(ValueError("other")) is None


@pytest.mark.parametrize(
    ("arch", "layers", "width", "feed_forward", "heads", "before"),
    [
        ("transformer_headpruned", 6, 512, 2048, 8, False),
        ("transformer_headpruned_iwslt", 6, 512, 1024, 4, False),
        ("transformer_headpruned_big", 6, 1024, 4096, 16, False),
        ("transformer_headpruned_t2t", 6, 512, 2048, 8, True),
        ("transformer_headpruned_small", 6, 128, 256, 8, True),
        ("transformer_headpruned_tiny", 2, 32, 64, 4, False),
    ],
)
def test_architectures(arch, layers, width, feed_forward, heads, before):
    from fairseq.models import ARCH_CONFIG_REGISTRY

    args = Namespace()
    ARCH_CONFIG_REGISTRY[arch](args)
    for side in ("encoder", "decoder"):
        assert getattr(args, f"{side}_layers") == layers
        assert getattr(args, f"{side}_embed_dim") == width
        assert getattr(args, f"{side}_ffn_embed_dim") == feed_forward
        assert getattr(args, f"{side}_attention_heads") == heads
        assert getattr(args, f"{side}_normalize_before") is before
