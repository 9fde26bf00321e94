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
from accelerate import Accelerator
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForSpeechSeq2Seq,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

import hf_plugin
from headprune import PruningPlan, UsageError
from headprune.components import HEADS as ATTENTION
from headprune.components import LAYERS as STACKS
from headprune.components import NEURONS as FEED_FORWARDS
from headprune.cost import pruned_parameters
from headprune.scores.ablation import cases_of
from headprune.scores.attention_statistics import attention_statistics
from headprune.scores.gradients import gradient_scores
from headprune.scores.reuse import masked_outcomes
from hf_plugin import modeling_headpruned
from hf_plugin.cutting import rows_of
from hf_plugin.families import attentions
from hf_plugin.finetuning.models import require_length
from hf_plugin.folders import Folder
from hf_plugin.head_names import FAMILIES
from hf_plugin.plans import model_shape
from hf_plugin.random_batches import random_batch
from hf_plugin.scores.model import HuggingFaceModel
from hf_plugin.sublayers import width_of
from hf_plugin.tasks.heads import UNREAD
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
FIXED_WIDTH = {"xlm": 64, "flaubert": 64, "openai-gpt": 64, "dinov2": 16}
"""Families whose number of neurons follows from the width of the model."""
BIASED = ("beit", "t5", "mt5", "umt5", "mpnet")
GENERATES = (
    *("mbart", "pegasus", "m2m_100", "plbart", "blenderbot", "blenderbot-small", "gpt2"),
    *("t5", "mt5", "umt5", "whisper"),
    *("llama", "mistral", "qwen2", "qwen3", "gemma", "gemma2", "gemma3_text"),
    *("granite", "smollm3", "opt", "biogpt"),
)

_LAYERS_OF_ANOTHER = (
    *("data2vec-text", "markuplm", "splinter", "flaubert"),
    *("deit", "vit_mae", "audio-spectrogram-transformer"),
)
"""Families whose layers are those of ERNIE, LayoutLM, XLM or ViT under other names."""

EXPORTED = [
    family
    for family in SMALL
    # torch cannot export CANINE, pruned or not.
    if not any(component in FAMILIES[family] for component in ("DS", "DF"))
    and family not in ("canine", *_LAYERS_OF_ANOTHER)
]


def close(a: Any, b: Any, atol: float = 1e-5) -> None:
    torch.testing.assert_close(a, b, atol=atol, rtol=1e-5)


def test_no_family_is_without_these_tests():
    assert {*SMALL, *models.FAMILIES} == set(FAMILIES)


@families
def test_every_unit_is_found(family):
    model = small(family)
    shape = model_shape(model)
    for name, layers in shape.items():
        neurons = FIXED_WIDTH.get(family, NEURONS)
        units = 1 if name in STACKS else HEADS if name in ATTENTION else neurons
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
        if not set(kind) & set(model_shape(model)):
            continue
        pruned = copy.deepcopy(model)
        plan = plan_of(model, *kind, second=second)
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
    for component, name in _maps(expected, plan).items():
        lower = 1 if family == "canine" else 0  # layers that are not pruned
        both = (expected[name][lower:], found[name][lower:])
        of_layers = zip(*both, plan.kept[component], strict=lower == 0)
        for number, (before, after, kept) in enumerate(of_layers):
            assert after.shape[1] == before.shape[1] * len(kept) // HEADS
            assert after.shape[2:] == before.shape[2:]
            if number == 0 and component != "ED":
                by_head = before.unflatten(1, (plan.units[component][0], -1))
                close(after, by_head[:, list(kept)].flatten(1, 2))


def _maps(outputs: Any, plan: PruningPlan) -> dict[str, str]:
    """The entry of a model's outputs that has the attention weights of each component."""
    names = {"ES": "encoder_attentions", "ED": "cross_attentions", "DS": "decoder_attentions"}
    if "attentions" in outputs:
        return dict.fromkeys(plan.kept, "attentions")
    return {component: name for component, name in names.items() if name in outputs}


@pytest.mark.parametrize("family", BIASED)
def test_uniform_heads_would_not_attend_evenly_with_position_biases(family):
    model = small(family)
    with pytest.raises(UsageError, match=f"form: uniform is not for the {family} model"):
        hf_plugin.prune_heads(model, plan_of(model, *ATTENTION), form="uniform")
    assert hf_plugin.head_plan(model).is_full


@pytest.mark.parametrize("family", [family for family in SMALL if family not in BIASED])
def test_uniform_heads_are_those_whose_queries_are_zero(family, tmp_path):
    model = small(family)
    plan = plan_of(model, *ATTENTION)
    reference = copy.deepcopy(model)
    for component, by_layer in attentions(reference).items():
        for attention, kept in zip(by_layer, plan.kept[component], strict=True):
            pruned = [head for head in range(attention.units) if head not in kept]
            with torch.no_grad():
                for query in attention.queries:
                    for part in (rows_of(query), query.bias):
                        if part is not None:
                            queries = part.chunk(attention.names.blocks)[0]
                            queries.unflatten(0, (attention.units, -1))[pruned] = 0
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
    if set(STACKS) & set(model_shape(model)):
        hf_plugin.prune(model, plan_of(model, *STACKS, second=True))
    model.save_pretrained(tmp_path)
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
    for each in (plan, plan_of(model, *STACKS)) if set(STACKS) & set(folder.shape) else (plan,):
        saved = folder.parameters - folder.parameters_with(each)
        assert pruned_parameters(each, folder.sizes) == saved
    export_to_transformers(tmp_path / "pruned", tmp_path / "stock")
    written = type(model).from_pretrained(tmp_path / "stock")
    assert type(written) is type(model)
    close(output_of(written), output_of(pruned.model.eval()))


@families
def test_training_leaves_no_parameter_without_a_gradient(family):
    model = small(family).train()
    used = {name for name, gradient in _gradients(model).items() if gradient is not None}
    used = {name for name in used if "relative_position_bias" not in name}  # of BEiT's layers
    hf_plugin.prune(model, plan_of(model, *ATTENTION, *FEED_FORWARDS))
    gradients = _gradients(model)
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert {name for name in used & trained if gradients[name] is None} == set()
    assert all(gradients[name].isfinite().all() for name in used & trained)


def _gradients(model: Any) -> dict[str, Any]:
    model.zero_grad()
    output_of(model).square().mean().backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("family", GENERATES)
@pytest.mark.parametrize("second", [False, True], ids=["top", "bottom"])
def test_generation_with_and_without_a_cache(family, second):
    auto = AutoModelForSeq2SeqLM
    if family == "whisper":
        auto = AutoModelForSpeechSeq2Seq
    elif "decoder_input_ids" not in inspect.signature(small(family).forward).parameters:
        auto = AutoModelForCausalLM
    model = small(family, auto)
    for kind in (ATTENTION, STACKS):
        pruned = hf_plugin.prune(copy.deepcopy(model), plan_of(model, *kind, second=second))
        _assert_cached(pruned, beams=1)
        _assert_cached(pruned, beams=2)


@pytest.mark.parametrize("family", ["xlm", "flaubert"])
def test_generation_without_heads_in_the_lowest_layer(family):
    model = small(family, AutoModelForMaskedLM).eval()
    pruned = hf_plugin.prune(model, plan_of(model, "ES", second=True))
    inputs, options = inputs_of(pruned), {"max_new_tokens": 4, "do_sample": False}
    _, length = inputs["input_ids"].shape
    generated = pruned.generate(inputs["input_ids"][:1], use_cache=True, **options)
    assert generated.shape[1] > length


@pytest.mark.parametrize("family", ["t5", "mt5"])
@pytest.mark.parametrize("component", ["DS", "DL"])
def test_a_static_cache_without_heads_in_the_lowest_layer(family, component):
    """The lowest layer computes the position biases of all; a static cache counts in place."""
    model = small(family, AutoModelForSeq2SeqLM)
    pruned = hf_plugin.prune(model, plan_of(model, component, second=True))
    _assert_cached(pruned, beams=1, cache_implementation="static", disable_compile=True)


def _assert_cached(model: Any, *, beams: int, **cache: Any) -> None:
    options: dict[str, Any] = dict(
        max_new_tokens=5,
        do_sample=False,
        num_beams=beams,
        eos_token_id=None,
        return_dict_in_generate=True,
        output_scores=True,
    )
    inputs = inputs_of(model)
    inputs.pop("decoder_input_ids", None)
    expected = model.generate(**inputs, use_cache=False, **options)
    cached = model.generate(**inputs, use_cache=True, **cache, **options)
    assert torch.equal(cached.sequences, expected.sequences)
    for now, then in zip(cached.scores, expected.scores, strict=True):
        close(now, then, atol=1e-4)


def sharing_albert(auto: Any) -> PreTrainedModel:
    """An ALBERT whose three layers share their weights."""
    options = {**SMALL["albert"], "num_hidden_groups": 1, "num_hidden_layers": 3}
    torch.manual_seed(1)
    config = AutoConfig.for_model("albert", **options)
    model: PreTrainedModel = auto.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


SHARING = "albert with shared layers"


def classifier(family: str) -> PreTrainedModel:
    if family == SHARING:
        return sharing_albert(AutoModelForSequenceClassification)
    return small(family, AutoModelForSequenceClassification)


@pytest.mark.parametrize(
    "family", ["xlm", "mpnet", "roformer", "tapas", "t5", "canine", "lilt", SHARING]
)
def test_ablation_with_shared_work_gives_what_the_plain_loop_gives(family):
    model = classifier(family)
    scored = HuggingFaceModel(model)
    batch = {**inputs_of(model), "labels": torch.tensor([0, 1])}
    batch.pop("decoder_input_ids", None)
    cases = cases_of(scored, "ablation")
    _, found = masked_outcomes(scored, batch, cases, at_once=5)
    shape = hf_plugin.head_plan(model)
    for (component, layer), masks in cases.items():
        for mask, outcome in zip(masks, found[component, layer], strict=True):
            layers = [list(heads) for heads in shape.kept[component]]
            layers[layer] = sorted(mask)
            plan = PruningPlan(kept={**shape.kept, component: layers}, units=shape.units)
            with torch.no_grad(), hf_plugin.masked(model, plan):
                close(outcome.losses, HuggingFaceModel(model).outcome(batch).losses)


@pytest.mark.parametrize("family", ["canine", "lilt", SHARING])
def test_gradient_scores_are_gradients_with_respect_to_gates(family):
    model = classifier(family)
    labels = torch.tensor([0, 1])
    batch = {**inputs_of(model), "labels": labels}
    found = gradient_scores(HuggingFaceModel(model), [batch], components=["ES", "EF"])
    for component, values in found.gradient_raw.items():
        xi = torch.ones(len(values), len(values[0]), requires_grad=True)
        expected = torch.zeros_like(xi)
        for example in range(2):
            inputs = {name: tensor[example : example + 1] for name, tensor in batch.items()}
            with hf_plugin.masked(model, {component: xi}):
                (gradient,) = torch.autograd.grad(model(**inputs).loss, xi)
            expected += gradient.abs() / 2
        close(torch.tensor(values, dtype=torch.float32), expected, atol=1e-5)


def test_attention_statistics_of_shared_layers_are_means_over_layers():
    model = sharing_albert(AutoModelForSequenceClassification)
    inputs = {name: tensor[:1] for name, tensor in inputs_of(model).items()}  # without padding
    found = attention_statistics(HuggingFaceModel(model), [inputs])
    model.set_attn_implementation("eager")
    with torch.no_grad():
        weights = model(**inputs, output_attentions=True).attentions  # layers of 1 x H x T x T
    assert len(weights) == 3 and len(found["entropy"]["ES"]) == 1
    confidence = torch.stack(weights).amax(-1).mean((0, 1, 3))  # H
    close(torch.tensor(found["confidence"]["ES"][0]), confidence)
    entropy = -torch.special.xlogy(torch.stack(weights), torch.stack(weights)).sum(-1)
    close(torch.tensor(found["entropy"]["ES"][0]), entropy.mean((0, 1, 3)))


@pytest.mark.parametrize(("length", "padding"), [(20, 7), (23, 4), (7, 1)])
def test_attention_of_canine_is_of_groups_of_characters(length, padding):
    model: Any = small("canine", attention="eager")
    inputs = random_batch(model, 2, length, seed=3)
    inputs["attention_mask"][1, length - padding :] = 0
    scored = HuggingFaceModel(model)
    mask = model._downsample_attention_mask(inputs["attention_mask"], 4).bool()  # B x T'
    assert torch.equal(scored.queries("ES", inputs), mask)
    assert torch.equal(scored.keys("ES", inputs) >= 0, mask)
    confidence = attention_statistics(scored, [inputs])["confidence"]["ES"]
    with torch.no_grad():
        weights = model(**inputs, output_attentions=True).attentions[1:-1]  # of the deep encoder
    for values, of_layer in zip(confidence, weights, strict=True):
        largest = of_layer.amax(-1).transpose(1, 2)[mask]  # tokens x H
        close(torch.tensor(values), largest.mean(0))


@pytest.mark.parametrize("target", ["output", "residual"])
def test_shared_layers_are_re_fitted_over_all_passes(target):
    model = sharing_albert(AutoModel)
    units = {"ES": (4,), "EF": model_shape(model)["EF"]}
    plan = PruningPlan(kept={"ES": [(1, 3)], "EF": [range(units["EF"][0] // 2)]}, units=units)
    pruned = hf_plugin.prune(copy.deepcopy(model), plan)
    *batches, other = [random_batch(model, 16, 12, seed=seed) for seed in range(9)]

    @torch.no_grad()
    def distance() -> float:
        outputs = [each.eval()(**other).last_hidden_state for each in (pruned, model)]
        return (outputs[0] - outputs[1]).square().mean().item()

    before = distance()
    refitted = hf_plugin.refit(pruned, model, lambda: batches, target=target)
    assert [each.component for each in refitted] == ["ES", "EF"]
    tokens = sum(int(batch["attention_mask"].sum()) for batch in batches)
    assert refitted[0].tokens == 3 * tokens  # each pass counts
    assert all(each.after < each.before for each in refitted)
    assert distance() < 0.7 * before


@pytest.mark.parametrize("family", UNREAD)
def test_what_cannot_be_scored_on_data(family):
    model = small(family)
    scored = HuggingFaceModel(model)
    with pytest.raises(UsageError, match=r"cannot be scored on data: it [^;]+$"):
        scored.run(inputs_of(model))


@pytest.mark.parametrize(
    ("family", "most"), [("t5", 512), ("xmod", 63), ("mpnet", 62), ("lilt", 63)]
)
def test_the_longest_text_that_a_family_takes(family, most):
    model, reader = small(family), PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel()))
    reader.model_max_length = 512
    require_length(most, model, reader, name="it")
    with pytest.raises(UsageError, match=f"max length {most + 1}: it takes {most} tokens at most"):
        require_length(most + 1, model, reader, name="it")
    if most < 512:
        assert model(**random_batch(model, 1, most, seed=1))[0].size(1) == most


def test_a_shared_layer_has_one_set_of_heads(tmp_path):
    model = sharing_albert(AutoModel)
    assert model_shape(model)["ES"] == (HEADS,) and "EL" not in model_shape(model)
    plan = PruningPlan(kept={"ES": [(1, 2)]}, units={"ES": (HEADS,)})
    expected = output_of(zeroed(model, plan))
    hf_plugin.prune(model, plan).save_pretrained(tmp_path)
    close(output_of(model), expected)
    close(output_of(AutoModel.from_pretrained(tmp_path)), expected)


def test_groups_of_queries_go_with_their_keys_and_values():
    model = small("llama")
    hf_plugin.prune(model, plan_of(model, "DS"))
    attention = model.layers[0].self_attn
    outputs = [attention.q_proj.out_features, attention.k_proj.out_features]
    assert outputs == [2 * 2, 2]  # one group of two heads of queries, of width 2


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("family", EXPORTED)
def test_export_to_onnx(family, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from hf_plugin.onnx_export import export_to_onnx

    model = small(family)
    hf_plugin.prune(model, plan_of(model, *ATTENTION, *FEED_FORWARDS))
    model.save_pretrained(tmp_path / "model")
    assert export_to_onnx(tmp_path / "model", tmp_path / "onnx").difference < 1e-5


@families
def test_accelerate_saves_and_loads(family, tmp_path):
    model = small(family)
    hf_plugin.prune(model, plan_of(model, *ATTENTION, *FEED_FORWARDS))
    expected = output_of(model)
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(model)
    accelerator.save_state(tmp_path)
    for parameter in model.parameters():
        parameter.data.zero_()
    accelerator.load_state(tmp_path)
    assert torch.equal(output_of(model), expected)


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.filterwarnings("ignore:fan_in_fan_out is set to False")
@families
def test_adapters(family):
    """On the projections that peft adapts by default, or on those to queries."""
    peft = pytest.importorskip("peft")
    model = small(family)
    hf_plugin.prune(model, plan_of(model, *ATTENTION))
    inputs, expected = inputs_of(model), output_of(model)
    (names, *_) = FAMILIES[family].values()
    targets = None if family in ("gpt2", "llama", "t5") else [names.queries[0].split(".")[-1]]
    adapted = peft.get_peft_model(model, peft.LoraConfig(r=2, target_modules=targets)).eval()
    close(adapted(**inputs)[0], expected)
    adapted.train()(**inputs)[0].square().mean().backward()
    trained = [p for name, p in adapted.named_parameters() if "lora_B" in name and p.numel()]
    assert any(p.grad is not None and p.grad.abs().sum() > 0 for p in trained)
