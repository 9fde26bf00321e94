"""Pruned models in the tools that people use models with."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from accelerate import Accelerator
from huggingface_hub import ModelCard
from torch.nn.modules.linear import NonDynamicallyQuantizableLinear
from transformers import (
    AutoModel,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    TorchAoConfig,
)

import hf_plugin
from headprune import UsageError
from hf_plugin.headless import Weightless
from tests.hf_plugin.models import (
    FAMILIES,
    SOME,
    batch,
    build,
    clone,
    first,
    plan_for,
    require_prefixes,
)

families = pytest.mark.parametrize("family", FAMILIES)
forms = pytest.mark.parametrize("form", ["remove", "uniform"])


def close(a, b, atol=1e-5):
    torch.testing.assert_close(a, b, atol=atol, rtol=1e-5)


def pruned(family="bert", auto=AutoModelForSequenceClassification, form="remove"):
    return hf_plugin.prune_heads(build(family, auto), plan_for(family, SOME), form=form)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("family", "form", "backend"),
    [
        # aot_eager stops before C++ is compiled, which takes a minute.
        ("bert", "remove", "aot_eager"),
        ("bert", "uniform", "aot_eager"),
        ("modernbert", "remove", "aot_eager"),
        ("modernbert", "uniform", "aot_eager"),
    ],
)
def test_torch_compile(family, form, backend):
    model = pruned(family, form=form)
    expected = first(model)
    # One call for outputs and gradients: each kind of call is compiled anew.
    outputs = torch.compile(model, backend=backend)(**batch(), labels=torch.tensor([0, 1]))
    close(outputs.logits, expected)
    outputs.loss.backward()
    gradients = {name: p.grad.clone() for name, p in model.named_parameters() if p.grad is not None}
    model.zero_grad()
    model(**batch(), labels=torch.tensor([0, 1])).loss.backward()
    for name, parameter in model.named_parameters():
        if parameter.grad is not None and parameter.numel():
            close(gradients[name], parameter.grad)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_onnx_with_batch_and_length_of_any_size(tmp_path):
    onnxruntime = pytest.importorskip("onnxruntime")
    pytest.importorskip("onnxscript")
    model = pruned("distilbert", form="uniform")
    model.config.return_dict = False
    path = tmp_path / "model.onnx"
    sizes = {0: torch.export.Dim("batch"), 1: torch.export.Dim("length", max=32)}
    torch.onnx.export(
        model,
        kwargs=batch(),
        f=str(path),
        dynamo=True,
        dynamic_shapes=dict.fromkeys(batch(), sizes),
        input_names=list(batch()),
        output_names=["logits"],
    )
    session = onnxruntime.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    generator = torch.Generator().manual_seed(1)
    for size, length in ((2, 7), (1, 3), (5, 20)):
        ids = torch.randint(2, 40, (size, length), generator=generator)
        mask = torch.ones_like(ids)
        mask[-1, length - 1 :] = 0
        inputs = {"input_ids": ids, "attention_mask": mask}
        (logits,) = session.run(None, {name: tensor.numpy() for name, tensor in inputs.items()})
        with torch.no_grad():
            np.testing.assert_allclose(logits, model(**inputs)[0].numpy(), atol=1e-4)


@pytest.mark.filterwarnings("ignore")
@families
def test_dynamic_quantisation_to_8_bits(family):
    auto = AutoModelForSeq2SeqLM if family in ("bart", "marian") else AutoModel
    model = pruned(family, auto)
    with torch.no_grad():
        expected = first(model)
        quantised = torch.ao.quantization.quantize_dynamic(
            clone(model), {torch.nn.Linear}, dtype=torch.qint8
        )
        result = first(quantised)
    kinds = {type(module).__module__ for module in quantised.modules()}
    assert any("quantized.dynamic" in kind for kind in kinds)
    error = (result - expected).square().mean().sqrt() / expected.std()
    assert 0 < error < 0.25
    assert not torch.equal(result, expected)


@families
def test_gradient_checkpointing(family):
    auto = AutoModelForSeq2SeqLM if family in ("bart", "marian") else AutoModel
    model = pruned(family, auto).train()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    model.config.use_cache = False
    for module in model.modules():
        for attribute in ("dropout", "attention_dropout", "activation_dropout"):
            if isinstance(getattr(module, attribute, None), float):
                setattr(module, attribute, 0.0)

    def gradients() -> dict[str, torch.Tensor]:
        model.zero_grad()
        first(model).square().mean().backward()
        return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}

    expected = gradients()
    model.gradient_checkpointing_enable()
    assert any(getattr(module, "gradient_checkpointing", False) for module in model.modules())
    found = gradients()
    assert set(found) == set(expected)
    for name in expected:
        close(found[name], expected[name])


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    ("form", "targets"), [("remove", ["query", "value"]), ("uniform", ["value", "dense"])]
)
def test_lora(form, targets, tmp_path: Path):
    peft = pytest.importorskip("peft")
    model = pruned(form=form)
    base = clone(model)
    config = peft.LoraConfig(
        task_type="SEQ_CLS", r=2, target_modules=targets, init_lora_weights=False
    )
    adapted = peft.get_peft_model(model, config).eval()
    with torch.no_grad():
        expected = adapted(**batch()).logits
        assert not torch.allclose(expected, first(base), atol=1e-3)
    adapted.train()(**batch(), labels=torch.tensor([0, 1])).loss.backward()
    trained = {n: p for n, p in adapted.named_parameters() if p.requires_grad}
    without = {name for name, parameter in trained.items() if parameter.grad is None}
    headless = {name for name in trained if ".layer.1.attention.self." in name}
    assert without == (headless if form == "remove" else set())
    assert headless
    adapted.eval().save_pretrained(tmp_path)
    again = peft.PeftModel.from_pretrained(clone(base), tmp_path).eval()
    with torch.no_grad():
        close(again(**batch()).logits, expected)
        close(again.merge_and_unload()(**batch()).logits, expected)


def adapted(model, kind: str, **options):
    peft = pytest.importorskip("peft")
    config = getattr(peft, kind)(task_type="SEQ_CLS", **options)
    return peft.get_peft_model(model, config).eval()


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("kind", ["LoraConfig", "IA3Config"])
def test_peft_finds_the_defaults_of_the_family(kind):
    one, stock = (
        adapted(pruned(), kind),
        adapted(build("bert", AutoModelForSequenceClassification), kind),
    )
    targets = one.peft_config["default"].target_modules
    assert targets and targets == stock.peft_config["default"].target_modules
    one(**batch(), labels=torch.tensor([0, 1])).loss.backward()


def test_dora_of_a_layer_without_heads_is_refused():
    with pytest.raises(UsageError, match="use_dora=True divides by the norm"):
        adapted(pruned(), "LoraConfig", use_dora=True, target_modules=["dense"])
    options = {"use_dora": True, "target_modules": ["dense"]}
    left_out = {"exclude_modules": r".*layer\.1\.attention\.output\.dense"}
    model = adapted(pruned(), "LoraConfig", **options, **left_out)
    close(model(**batch()).logits, first(pruned()))
    full = adapted(build("bert", AutoModelForSequenceClassification), "LoraConfig", **options)
    close(full(**batch()).logits, first(build("bert", AutoModelForSequenceClassification)))


@forms
@pytest.mark.parametrize("family", ["bert", "roberta", "electra"])
def test_prefix_tuning(family, form):
    whole = build(family, AutoModelForSequenceClassification)
    options = {"num_virtual_tokens": 3}
    prefixed = adapted(clone(whole), "PrefixTuningConfig", **options)
    require_prefixes(prefixed)
    model = hf_plugin.prune_heads(clone(whole), SOME, form=form)
    plain = first(model)
    model = adapted(model, "PrefixTuningConfig", **options)
    with torch.no_grad():
        weight = prefixed.prompt_encoder["default"].embedding.weight.normal_()
        model.prompt_encoder["default"].embedding.weight.copy_(weight)
    assert not torch.allclose(model(**batch()).logits, plain, atol=1e-3)
    if form == "remove":
        with hf_plugin.masked(prefixed.get_base_model(), SOME):
            expected = prefixed(**batch()).logits
        close(model(**batch()).logits, expected)
    model(**batch(), labels=torch.tensor([0, 1])).loss.backward()
    gradient = model.prompt_encoder["default"].embedding.weight.grad
    assert gradient.isfinite().all() and (gradient != 0).any()


def test_accelerator_saves_and_loads_layers_without_heads(tmp_path):
    model = Accelerator(cpu=True).prepare(pruned())
    expected = first(model)
    accelerator = Accelerator(cpu=True)
    model = accelerator.prepare(model)
    accelerator.save_state(tmp_path)
    for parameter in model.parameters():
        parameter.data.zero_()
    accelerator.load_state(tmp_path)
    assert torch.equal(first(model), expected)


def test_linears_without_weights_are_marked_as_not_to_be_quantised():
    """torchao's ``quantize_`` and its config for transformers leave this class out."""
    empty = [module for module in pruned().modules() if isinstance(module, Weightless)]
    assert len(empty) == 4
    assert all(isinstance(module, NonDynamicallyQuantizableLinear) for module in empty)


def test_torchao(tmp_path):
    quantization = pytest.importorskip("torchao.quantization")
    config = quantization.Int8WeightOnlyConfig()
    model = pruned()
    expected = first(model)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, quantization_config=TorchAoConfig(config)
    )
    quantization.quantize_(model, config)
    for quantised in (model, loaded):
        assert 0 < (first(quantised) - expected).abs().max() < 0.1


def test_push_to_hub_sends_the_files_that_from_pretrained_reads(tmp_path, monkeypatch):
    """What would be uploaded is taken where it leaves the library, and read back."""
    hub = SimpleNamespace(create_repo=lambda name, **_: SimpleNamespace(repo_id=name))
    monkeypatch.setattr("transformers.utils.hub.hf_api", lambda: hub)
    monkeypatch.setattr(
        "transformers.utils.hub.create_and_tag_model_card",
        lambda *_, **__: ModelCard("pruned"),
    )
    sent = tmp_path / "sent"
    monkeypatch.setattr(
        PreTrainedModel,
        "_upload_modified_files",
        lambda self, folder, *_, **__: shutil.copytree(folder, sent),
    )
    model = pruned()
    model.push_to_hub("someone/pruned")
    assert {path.name for path in sent.iterdir()} >= {"config.json", "model.safetensors"}
    loaded = AutoModelForSequenceClassification.from_pretrained(sent)
    close(first(loaded), first(model))
