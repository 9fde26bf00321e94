"""Heads, neurons and layers together: removal equals masking, and files keep it."""

from __future__ import annotations

import json
import pickle
import subprocess
import sys

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
)
from transformers.models.bert.modeling_bert import BertLayer

import hf_plugin
from headprune import DataError, UsageError
from headprune.components import HEADS as ATTENTION
from headprune.components import LAYERS as STACKS
from headprune.plan import PruningPlan
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.folders import Folder
from hf_plugin.plans import full_plan
from hf_plugin.transformers_export import export_to_transformers
from tests.hf_plugin.models import (
    FAMILIES,
    HEADS,
    LAYERS,
    batch,
    build,
    clone,
    first,
    require_prefixes,
    shape_of,
)
from tests.hf_plugin.small_models import small
from tests.hf_plugin.test_surgery import assert_generates_the_same_with_a_cache

NEURONS = 16
families = pytest.mark.parametrize("family", FAMILIES)


def full_shape(family: str) -> dict[str, tuple[int, ...]]:
    with_decoder = len(shape_of(family)) > 1
    neurons, layers = (("EF", "DF"), ("EL", "DL")) if with_decoder else (("EF",), ("EL",))
    return {
        **shape_of(family),
        **dict.fromkeys(neurons, (NEURONS,) * LAYERS),
        **dict.fromkeys(layers, (1,) * LAYERS),
    }


RAGGED = {
    "ES": [(0, 2, 3), (), (1,)],
    "ED": [(1,), (0, 1, 2, 3), ()],
    "DS": [(), (1, 2), (0, 3)],
    "EF": [(), (0, 3, 5, 15), tuple(range(NEURONS))],
    "DF": [(2,), (), tuple(range(1, NEURONS))],
    "EL": [(0,), (), (0,)],
    "DL": [(), (0,), (0,)],
}


def plan_of(family: str, *components: str) -> PruningPlan:
    """The ragged plan of these components, of all where none is named."""
    shape = {
        name: layers
        for name, layers in full_shape(family).items()
        if not components or name in components
    }
    return PruningPlan(kept={name: RAGGED[name] for name in shape}, units=shape)


def plans(family: str) -> st.SearchStrategy[PruningPlan]:
    shape = full_shape(family)
    kept = {
        name: st.tuples(*[st.sets(st.integers(0, units - 1)).map(sorted) for units in layers])
        for name, layers in shape.items()
    }
    return st.fixed_dictionaries(kept).map(lambda kept: PruningPlan(kept=kept, units=shape))


def auto_of(family: str):
    return AutoModelForSeq2SeqLM if len(shape_of(family)) > 1 else AutoModel


def close(a, b):
    torch.testing.assert_close(a, b, atol=1e-5, rtol=1e-5)


def masked_output(model, plan, **options):
    with torch.no_grad(), hf_plugin.masked(model, plan):
        return first(model, **options)


COMPONENTS = pytest.mark.parametrize(
    "components", [(), ("EF", "DF"), ("EL", "DL")], ids=["all", "neurons", "layers"]
)


@families
@COMPONENTS
def test_removal_equals_masking(family, components):
    plan = plan_of(family, *components)
    model = build(family)
    expected = masked_output(model, plan)
    assert not torch.allclose(expected, first(model), atol=1e-2)  # the units matter
    assert hf_plugin.prune(model, plan) is model
    close(first(model), expected)
    whole = plan.completed(full_shape(family)).without_units_of_dropped_layers()
    assert full_plan(model) == whole
    assert hf_plugin.plan(model) == plan.normalised(full_shape(family))
    assert hf_plugin.head_plan(model) == whole.part(ATTENTION)


@families
@settings(max_examples=3, deadline=None)
@given(data=st.data())
def test_removal_equals_masking_for_any_plan(family, data):
    plan = data.draw(plans(family))
    model = build(family)
    expected = masked_output(model, plan)
    close(first(hf_plugin.prune(model, plan)), expected)
    assert full_plan(model) == plan.without_units_of_dropped_layers()


def trained(model, *, steps=3):
    """The output after steps of plain gradient descent, and the last gradients."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for _ in range(steps):
        optimizer.zero_grad()
        first(model).square().mean().backward()
        optimizer.step()
    return first(model).detach()


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert", "bart"])
def test_masked_and_removed_units_train_alike(family):
    plan = plan_of(family)
    model = build(family)
    pruned = hf_plugin.prune(clone(model), plan)
    with hf_plugin.masked(model, plan):
        first(model).square().mean().backward()
        gradients = {name: p.grad for name, p in model.named_parameters() if p.grad is not None}
        masked = trained(model)
    first(pruned).square().mean().backward()
    same_shape = [
        (gradients[name], p.grad)
        for name, p in pruned.named_parameters()
        if p.grad is not None and p.shape == gradients[name].shape
    ]
    assert len(same_shape) > 5
    for expected, gradient in same_shape:
        close(gradient, expected)
    close(trained(pruned), masked)


def test_sizes_of_a_pruned_model():
    model = build("bert")
    before = sum(p.numel() for p in model.parameters())
    layer = sum(p.numel() for p in model.encoder.layer[1].parameters())
    width = model.config.hidden_size
    hf_plugin.prune(model, plan_of("bert", "EF", "EL"))
    after = sum(p.numel() for p in model.parameters())
    assert before - after == layer + NEURONS * (2 * width + 1)
    assert not list(model.encoder.layer[1].parameters())
    assert model.config.num_hidden_layers == LAYERS
    assert not any(not p.numel() for p in model.parameters())


def test_pruning_twice_adds_up_and_numbers_stay():
    twice, once = build("bart"), build("bart")
    hf_plugin.prune(twice, plan_of("bart", "EL", "DL"))
    hf_plugin.prune(twice, plan_of("bart", "EF", "DF", "ES"))
    hf_plugin.prune(once, plan_of("bart", "EL", "DL", "EF", "DF", "ES"))
    assert full_plan(twice) == full_plan(once)
    close(first(twice), first(once))
    hf_plugin.prune_heads(twice, plan_of("bart", *ATTENTION))
    close(first(twice), first(hf_plugin.prune(build("bart"), plan_of("bart"))))


def test_hidden_states_keep_their_places():
    model, plan = build("bert"), plan_of("bert")
    first(model, output_hidden_states=True)
    with torch.no_grad(), hf_plugin.masked(model, plan):
        expected = model(**batch(), output_hidden_states=True).hidden_states
    found = hf_plugin.prune(model, plan)(**batch(), output_hidden_states=True).hidden_states
    assert len(found) == len(expected) == LAYERS + 1
    for one, other in zip(found, expected, strict=True):
        close(one, other)


def test_gradients_reach_the_gates_of_neurons_and_layers():
    model = build("bert")
    xi = {
        "EF": torch.ones(LAYERS, NEURONS, requires_grad=True),
        "EL": torch.ones(LAYERS, 1, requires_grad=True),
    }
    with hf_plugin.masked(model, xi):
        output = first(model)
    assert torch.equal(output, first(model))
    output.square().sum().backward()
    for gate in xi.values():
        assert (gate.grad != 0).all()
    half = {"EL": torch.full((LAYERS, 1), 0.5)}
    assert not torch.allclose(masked_output(model, half), first(model), atol=1e-2)


@pytest.mark.parametrize("beams", [1, 3])
@pytest.mark.parametrize("family", ["bart", "marian"])
def test_encoder_decoders_generate_the_same_with_and_without_their_cache(family, beams):
    model = build(family, AutoModelForSeq2SeqLM)
    plan = plan_of(family)
    with hf_plugin.masked(model, plan):
        expected = model.generate(**batch(), max_new_tokens=6, num_beams=beams)
    hf_plugin.prune(model, plan)
    assert torch.equal(model.generate(**batch(), max_new_tokens=6, num_beams=beams), expected)
    assert_generates_the_same_with_a_cache(model, num_beams=beams)


def test_all_layers_dropped():
    model = build("bart", AutoModelForSeq2SeqLM)
    none = PruningPlan(
        kept={"EL": [()] * LAYERS, "DL": [()] * LAYERS},
        units={"EL": (1,) * LAYERS, "DL": (1,) * LAYERS},
    )
    expected = masked_output(model, none)
    close(first(hf_plugin.prune(model, none)), expected)
    assert_generates_the_same_with_a_cache(model)


def test_a_decoder_without_its_lowest_layer_knows_its_positions():
    model = build("bert", AutoModelForCausalLM, is_decoder=True)
    hf_plugin.prune(model, PruningPlan(kept={"EL": [(), (0,), (0,)]}, units={"EL": (1,) * LAYERS}))
    assert_generates_the_same_with_a_cache(model)


@families
def test_gradient_checkpointing(family):
    model = hf_plugin.prune(build(family), plan_of(family)).train()
    model.config.use_cache = False
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
        for attribute in ("dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)

    def gradients():
        model.zero_grad()
        first(model).square().mean().backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    expected = gradients()
    model.gradient_checkpointing_enable()
    for name, gradient in gradients().items():
        close(gradient, expected[name])


@families
@COMPONENTS
def test_round_trip(family, components, tmp_path):
    auto = auto_of(family)
    model = hf_plugin.prune(build(family, auto), plan_of(family, *components))
    model.save_pretrained(tmp_path)
    loaded, info = auto.from_pretrained(tmp_path, output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"]
    assert type(loaded) is type(model)
    assert hf_plugin.plan(loaded) == hf_plugin.plan(model)
    assert torch.equal(first(clone(loaded)), first(clone(model)))


def test_the_config_says_what_is_kept(tmp_path):
    hf_plugin.prune(build("bert"), plan_of("bert")).save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["kept_heads"] == {"ES": [[0, 2, 3], [], [1]]}
    assert config["kept_neurons"] == {"EF": ["", "", "0-15"]}
    assert config["kept_layers"] == {"EL": [0, 2]}
    assert config["num_hidden_layers"] == LAYERS
    names = load_file(tmp_path / "model.safetensors")
    assert not any(".layer.1." in name for name in names)
    assert any(".layer.2." in name for name in names)


def test_copies_pickles_and_models_made_from_the_config():
    model = hf_plugin.prune(build("bert"), plan_of("bert"))
    for other in (clone(model), pickle.loads(pickle.dumps(model))):
        assert hf_plugin.plan(other) == hf_plugin.plan(model)
        assert torch.equal(first(other), first(model))
    made = AutoModel.from_config(model.config)
    assert hf_plugin.plan(made) == hf_plugin.plan(model)
    made.load_state_dict(model.state_dict())
    close(first(made.eval()), first(model))


def test_save_load_prune_save_load(tmp_path):
    model = hf_plugin.prune(build("bert"), plan_of("bert", "EL", "ES"))
    model.save_pretrained(tmp_path / "once")
    again = AutoModel.from_pretrained(tmp_path / "once")
    hf_plugin.prune(again, plan_of("bert", "EF")).save_pretrained(tmp_path / "twice")
    loaded = AutoModel.from_pretrained(tmp_path / "twice")
    close(first(loaded), first(hf_plugin.prune(build("bert"), plan_of("bert"))))


def test_a_decoder_alone_takes_its_part_of_a_pruned_model(tmp_path):
    plan = plan_of("bart")
    hf_plugin.prune(build("bart", AutoModelForSeq2SeqLM), plan).save_pretrained(tmp_path)
    decoder = AutoModelForCausalLM.from_pretrained(tmp_path)
    expected = plan.without_units_of_dropped_layers().part(("ED", "DS", "DF", "DL"))
    assert hf_plugin.plan(decoder) == expected
    assert_generates_the_same_with_a_cache(decoder)


@COMPONENTS
def test_stock_classes_read_pruned_folders(components, tmp_path):
    model = build("bert", AutoModelForSequenceClassification)
    hf_plugin.prune(model, plan_of("bert", *components)).save_pretrained(tmp_path)
    loaded = BertForSequenceClassification.from_pretrained(tmp_path)
    assert type(loaded) is type(model)
    close(first(loaded), first(model))
    close(first(BertModel.from_pretrained(tmp_path)), first(model.bert))


_ALONE = """
import sys
sys.modules["headprune"] = sys.modules["hf_plugin"] = None
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoModelForSequenceClassification
from transformers import BertModel, logging
logging.set_verbosity_error()
"""


@pytest.mark.slow
def test_transformers_alone_reads_them_with_the_code_beside_them(tmp_path):
    code = _ALONE + "from safetensors.torch import load_file, save_file\n"
    inputs = batch()
    torch.save(inputs, tmp_path / "inputs.pt")
    for family in FAMILIES:
        model: PreTrainedModel = hf_plugin.prune(build(family, auto_of(family)), plan_of(family))
        model.save_pretrained(tmp_path / family)
        torch.save(first(clone(model)), tmp_path / f"{family}.pt")
    # It builds the model inside it by the config's class.
    classifier = small("llama", AutoModelForSequenceClassification)
    plan = hf_plugin.plan(classifier)
    first_heads = {name: [heads[:1] for heads in layers] for name, layers in plan.kept.items()}
    model = hf_plugin.prune(classifier, PruningPlan(kept=first_heads, units=plan.units))
    model.save_pretrained(tmp_path / "classifier")
    torch.save(first(clone(model)), tmp_path / "classifier.pt")
    code += f"""
from pathlib import Path
folder = Path({str(tmp_path)!r})
batch = torch.load(folder / "inputs.pt")
for family in {[*FAMILIES, "classifier"]!r}:
    auto = AutoModelForSeq2SeqLM if family in ("bart", "marian") else AutoModel
    auto = AutoModelForSequenceClassification if family == "classifier" else auto
    model = auto.from_pretrained(folder / family, trust_remote_code=True)
    more = {{"decoder_input_ids": batch["input_ids"][:, :4]}} if family == "marian" else {{}}
    with torch.no_grad():
        output = model(**batch, **more)[0]
    torch.testing.assert_close(output, torch.load(folder / f"{{family}}.pt"), atol=1e-5, rtol=1e-5)
    model.save_pretrained(folder / "again")
    again = auto.from_pretrained(folder / "again", trust_remote_code=True)
    with torch.no_grad():
        torch.testing.assert_close(again(**batch, **more)[0], output, atol=1e-5, rtol=1e-5)
"""
    environment = {"HF_MODULES_CACHE": str(tmp_path / "cache"), "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize("components", [("EF",), ("EL",)])
def test_transformers_alone_refuses_them_without_that_code(components, tmp_path):
    hf_plugin.prune(build("bert"), plan_of("bert", *components)).save_pretrained(tmp_path)
    code = _ALONE + f"BertModel.from_pretrained({str(tmp_path)!r})"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "pruned with headprune" in done.stderr


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kept_neurons": {"EF": ["0-3"]}}, "kept_neurons of the configuration: EF: kept neurons"),
        ({"kept_neurons": {"EF": ["0-16", "", ""]}}, "EF: layer 0 has no neuron 16"),
        ({"kept_neurons": {"EF": ["3-0", "", ""]}}, "kept_neurons of the configuration"),
        ({"kept_neurons": {"EF": [3, "", ""]}}, "kept_neurons of the configuration"),
        ({"kept_neurons": ["0"]}, "kept_neurons of the configuration"),
        ({"kept_layers": {"EL": [3]}}, "EL: there is no layer 3, the model has 3"),
        ({"kept_layers": {"EL": "0"}}, "EL: '0' is no list of layers"),
        ({"kept_layers": {"XL": [0]}}, "kept_layers of the configuration: XL"),
    ],
)
def test_a_broken_config_is_one_clear_line(change, message, tmp_path):
    hf_plugin.prune(build("bert"), plan_of("bert")).save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError) as caught:
        AutoModel.from_pretrained(tmp_path)
    line = str(caught.value)
    assert str(tmp_path) in line and message in line and "\n" not in line


def refused(model, plan, **options) -> str:
    before = first(model)
    with pytest.raises(UsageError) as caught:
        hf_plugin.prune(model, plan, **options)
    assert torch.equal(first(model), before)
    (line,) = str(caught.value).splitlines()
    return line


def test_what_was_pruned_does_not_come_back():
    model = hf_plugin.prune(build("bert"), plan_of("bert"))
    shape = full_shape("bert")
    for name, message in (
        ("EF", "EF: layer 0: the plan keeps neuron 0, which was pruned before"),
        ("EL", "EL: the plan keeps layer 1, which was dropped before"),
    ):
        assert refused(model, PruningPlan.full({name: shape[name]})).startswith(message)


def test_what_is_refused():
    shape = full_shape("bert")
    assert refused(build("bert"), {0: [1]}) == "give a PruningPlan, not dict"
    message = refused(build("bert"), plan_of("bert", "ES", "EF"), form="uniform")
    assert message == "form: uniform is for heads, and the plan prunes EF; take form remove"
    assert "layer 0: the plan is for 8 neurons, the bert model has 16" in refused(
        build("bert"), PruningPlan.full({"EF": (8,) * LAYERS})
    )
    assert "DL: present in the plan but missing from the bert model" in refused(
        build("bert"), PruningPlan.full({"DL": (1,)})
    )
    own = build("bert")
    own.encoder.layer[1].__class__ = type("Own", (BertLayer,), {})
    assert refused(own, plan_of("bert", "EL")) == "EL: layer 1 is a Own, which cannot be dropped"
    quantised = build("bert")
    quantised.encoder.layer[1].output.dense.__class__ = type("Int8", (torch.nn.Linear,), {})
    line = refused(quantised, plan_of("bert", "EF"))
    assert line.startswith("EF: layer 1: output.dense is a") and "before quantising" in line
    hf_plugin.prune_heads(quantised, {0: [1]})
    assert hf_plugin.plan(quantised).kept.keys() == {"ES"}
    assert shape["EL"] == (1,) * LAYERS


def test_uniform_heads_in_layers_that_are_dropped_later(tmp_path):
    model = hf_plugin.prune(build("bert"), plan_of("bert", "ES"), form="uniform")
    hf_plugin.prune(model, plan_of("bert", "EL", "EF"))
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert hf_plugin.plan(loaded) == hf_plugin.plan(model)
    close(first(loaded), first(model))


@pytest.mark.parametrize("family", ["bert", "distilbert", "modernbert"])
def test_distributed_training_waits_for_no_parameter(family, tmp_path):
    model = build(family, AutoModelForSequenceClassification)
    hf_plugin.prune(model, plan_of(family)).save_pretrained(tmp_path)
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    model.train()(**batch(), labels=torch.tensor([0, 1])).loss.backward()
    for name, parameter in model.named_parameters():
        assert not parameter.requires_grad or parameter.grad is not None, name


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_adapters(tmp_path):
    peft = pytest.importorskip("peft")
    model = hf_plugin.prune(build("bert", AutoModelForSequenceClassification), plan_of("bert"))
    expected = first(model)
    config = peft.LoraConfig(task_type="SEQ_CLS", r=2, target_modules=["query", "dense"])
    adapted = peft.get_peft_model(clone(model), config).eval()
    close(adapted(**batch()).logits, expected)
    adapted.train()(**batch(), labels=torch.tensor([0, 1])).loss.backward()
    adapted.eval().save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(clone(model), tmp_path).eval()
    close(again.merge_and_unload()(**batch()).logits, expected)


def test_prefix_tuning():
    peft = pytest.importorskip("peft")
    whole = build("bert", AutoModelForSequenceClassification)
    plan = plan_of("bert", "EL", "EF")
    model = hf_plugin.prune(clone(whole), plan)
    config = peft.PrefixTuningConfig(task_type="SEQ_CLS", num_virtual_tokens=3)
    prefixed = [peft.get_peft_model(each, config).eval() for each in (whole, model)]
    require_prefixes(prefixed[0])
    with torch.no_grad():
        weight = prefixed[0].prompt_encoder["default"].embedding.weight.normal_()
        prefixed[1].prompt_encoder["default"].embedding.weight.copy_(weight)
        with hf_plugin.masked(prefixed[0].get_base_model(), plan):
            expected = prefixed[0](**batch()).logits
        close(prefixed[1](**batch()).logits, expected)


@pytest.mark.parametrize("components", [("EF",), ("EL",)])
def test_the_fingerprint_of_a_folder_is_that_of_the_model(components, tmp_path):
    model = hf_plugin.prune(build("bert"), plan_of("bert", *components))
    assert model_fingerprint(model) != model_fingerprint(build("bert"))
    model.save_pretrained(tmp_path)
    assert model_fingerprint(AutoModel.from_pretrained(tmp_path)) == model_fingerprint(model)


def test_components_that_are_not_pruned_are_not_named():
    model = hf_plugin.prune(build("bert"), plan_of("bert", "EL"))
    assert str(hf_plugin.plan(model)) == f"ES={HEADS}0{HEADS} EL=101"
    assert all(name in STACKS or name in ATTENTION for name in hf_plugin.plan(model).units)


@families
def test_what_a_folder_says_of_its_model(family, tmp_path):
    model = build(family)
    model.save_pretrained(tmp_path / "model")
    unpruned = Folder.load(tmp_path / "model")
    assert unpruned.shape == full_shape(family) and unpruned.plan.units == shape_of(family)
    assert unpruned.unpruned_parameters == unpruned.parameters
    plan = plan_of(family)
    pruned = unpruned.prune(plan)
    pruned.save(tmp_path / "pruned")
    folder = Folder.load(tmp_path / "pruned")
    assert folder.plan == pruned.plan == plan.normalised(full_shape(family))
    assert (folder.shape, folder.form) == (unpruned.shape, "remove")
    assert folder.parameters == pruned.parameters < unpruned.parameters
    assert folder.unpruned_parameters == unpruned.parameters and folder.sizes == unpruned.sizes
    assert unpruned.parameters_with(plan) == folder.parameters_with(plan) == pruned.parameters
    hf_plugin.prune(model, plan)
    close(first(AutoModel.from_pretrained(tmp_path / "pruned")), first(model))


def exported(tmp_path, model, plan):
    """Prune, save and export a model; what the export says, and the folder that it wrote."""
    hf_plugin.prune(model, plan).save_pretrained(tmp_path / "in")
    said = str(export_to_transformers(tmp_path / "in", tmp_path / "out"))
    text = (tmp_path / "out" / "config.json").read_text()
    assert not any(word in text for word in ("headprune", "HeadPruned", "kept_", "auto_map"))
    return said, tmp_path / "out"


@families
def test_export_to_transformers_with_zeros(family, tmp_path):
    heads_and_neurons = [name for name in full_shape(family) if name not in STACKS]
    model = build(family, auto_of(family))
    stock = type(model)
    said, folder = exported(tmp_path, model, plan_of(family, *heads_and_neurons))
    assert "zeros in place of pruned heads and neurons, for transformers'" in said
    loaded, info = stock.from_pretrained(folder, output_loading_info=True)
    assert type(loaded) is stock
    assert not info["missing_keys"] and not info["unexpected_keys"]
    close(first(loaded), first(model))


@families
def test_export_as_a_smaller_stock_model(family, tmp_path):
    """Without one layer, and with equally many, but other, neurons in the layers that are left."""
    model = build(family, auto_of(family))
    stock = type(model)
    kept = {
        name: [(0,), (), (0,)] if name in STACKS else [range(3, 8), (), (0, 1, 5, 14, 15)]
        for name in full_shape(family)
        if name not in ATTENTION
    }
    shape = {name: full_shape(family)[name] for name in kept}
    said, folder = exported(tmp_path, model, PruningPlan(kept=kept, units=shape))
    loaded = stock.from_pretrained(folder)
    assert type(loaded) is stock
    close(first(loaded), first(model))
    config = loaded.config
    assert (config.num_hidden_layers, sum(p.numel() for p in loaded.parameters())) == (
        2,
        sum(p.numel() for p in model.parameters()),
    )
    assert "=2, " in said and "=5, for" in said


@pytest.mark.parametrize(
    ("family", "layers", "message"),
    [
        ("bert", [(), (), ()], "no layer of a stack is left"),
        ("modernbert", [(), (0,), (0,)], "layer 0 is dropped, which a stock modernbert treats"),
    ],
)
def test_what_no_stock_model_computes(family, layers, message, tmp_path):
    plan = PruningPlan(kept={"EL": layers}, units={"EL": (1,) * LAYERS})
    with pytest.raises(UsageError, match=message):
        exported(tmp_path, build(family), plan)
    assert not (tmp_path / "out").exists()


def test_a_stock_t5_with_fewer_layers_in_the_encoder_does_not_generate(tmp_path):
    all_layers, one_layer = [(0,), (0,)], [(0,), ()]

    def plan(**kept):
        return PruningPlan(kept=kept, units=dict.fromkeys(kept, (1, 1)))

    with pytest.raises(UsageError, match="fewer in the encoder does not generate .* Drop as many"):
        exported(tmp_path, small("t5", AutoModelForSeq2SeqLM), plan(EL=one_layer, DL=all_layers))
    assert not (tmp_path / "out").exists()
    model = small("t5", AutoModelForSeq2SeqLM)
    _, folder = exported(tmp_path, model, plan(EL=one_layer, DL=one_layer))
    stock = AutoModelForSeq2SeqLM.from_pretrained(folder)
    tokens = torch.full((1, 4), 3)
    texts = [each.eval().generate(tokens, max_new_tokens=4) for each in (stock, model)]
    assert texts[0].equal(texts[1])


@pytest.mark.slow
@pytest.mark.parametrize("family", ["distilbert", "deberta-v2", "modernbert"])
def test_export_to_onnx(family, tmp_path):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    from hf_plugin.onnx_export import export_to_onnx

    model = build(family, AutoModelForSequenceClassification)
    hf_plugin.prune(model, plan_of(family)).save_pretrained(tmp_path / "model")
    done = export_to_onnx(tmp_path / "model", tmp_path / "onnx")
    assert done.difference < 1e-5 and done.outputs == ("logits",)
    assert done.inputs == ("input_ids", "attention_mask")
