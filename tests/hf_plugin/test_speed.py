"""`headprune speed` on Hugging Face folders and on ONNX."""

from __future__ import annotations

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path

import onnx
import pytest
import torch
from onnx import TensorProto, helper
from transformers import AutoModelForMultipleChoice, AutoModelForSeq2SeqLM
from typer.testing import CliRunner, Result

from headprune import HeadPlan
from headprune.cli.speed import app
from headprune.cost import forward_flops
from headprune.errors import HeadpruneError
from headprune.speed.forward_pass import Conditions
from headprune.speed.measure import forward_pass
from hf_plugin.folders import Folder
from hf_plugin.random_batches import random_batch
from tests.hf_plugin.made import SHAPE, write_model
from tests.hf_plugin.models import build
from tests.hf_plugin.small_models import small

CONDITIONS = Conditions(batch=2, length=8, threads=1, device="cpu")
SMALL = ("--batch", 2, "--length", 8, "--threads", 1, "--rounds", 3)


def speed(*arguments: object) -> Result:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def pruned(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    plan = HeadPlan(kept={"ES": [(0,), (1, 3), ()]}, heads=SHAPE)
    folder = tmp_path_factory.mktemp("pruned") / "model"
    Folder.load(model).prune(plan).save(folder)
    return folder


@pytest.fixture(scope="module")
def exported(pruned: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder like an export's, whose network returns its input."""
    folder = tmp_path_factory.mktemp("onnx")
    for file in pruned.iterdir():
        if file.suffix != ".safetensors":
            shutil.copy(file, folder)
    shape = ["batch", "length"]
    names = ("input_ids", "attention_mask")
    graph = helper.make_graph(
        [helper.make_node("Add", names, ["logits"])],
        "sum",
        [helper.make_tensor_value_info(name, TensorProto.INT64, shape) for name in names],
        [helper.make_tensor_value_info("logits", TensorProto.INT64, shape)],
    )
    network = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    onnx.save(network, folder / "model.onnx")
    return folder


def test_models_of_two_libraries_in_one_table(model, pruned, exported, tmp_path):
    out = speed(model, pruned, exported / "model.onnx", *SMALL, "-o", tmp_path / "speed.json")
    content = json.loads((tmp_path / "speed.json").read_text())
    assert content["conditions"] == asdict(CONDITIONS)
    whole, smaller, onnx_model = content["models"]
    assert [each["library"] for each in content["models"]] == ["torch", "torch", "onnxruntime"]
    assert whole["speedup"] == [1, 1, 1] and len(smaller["seconds"]) == 3
    folder = Folder.load(pruned)
    flops = 2 * forward_flops(folder.plan, folder.sizes, source=8, target=8)
    for each in (smaller, onnx_model):
        assert (each["parameters"], each["flops"]) == (folder.parameters, flops)
    assert whole["flops"] > flops and whole["parameters"] > folder.parameters
    weights = (pruned / "model.safetensors").stat().st_size
    assert smaller["file_bytes"] == weights < whole["file_bytes"]
    assert onnx_model["file_bytes"] == (exported / "model.onnx").stat().st_size
    assert f"{folder.parameters:,}" in out.stdout and "2 x 8 tokens, 3 rounds" in out.stdout


def test_the_pass_is_that_of_the_model_on_the_whole_batch(model, exported):
    assert forward_pass(model, CONDITIONS).run().logits.shape == (2, 2)
    (output,) = forward_pass(exported, CONDITIONS).run()
    assert output.shape == (2, 8)


@pytest.mark.parametrize(
    ("family", "inputs"),
    [
        ("vit", "2 images of 8 x 8 pixels"),
        ("whisper", "2 spectrograms of 4 x 16 with 8 tokens each"),
    ],
)
def test_inputs_that_are_no_tokens_are_named(family, inputs, tmp_path):
    small(family).save_pretrained(tmp_path / "model")
    out = speed(tmp_path / "model", *SMALL).stdout
    assert f"forward pass over {inputs}, 3 rounds" in out
    with pytest.raises(HeadpruneError, match="no encoder|the job search is timed for models of te"):
        speed(tmp_path / "model", *SMALL, "--job", "search")


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("family", ["beit", "whisper", "audio-spectrogram-transformer", "bros"])
def test_inputs_that_are_no_tokens_have_the_type_of_the_weights(family, dtype, tmp_path):
    small(family).to(dtype).save_pretrained(tmp_path / "model")
    timed = forward_pass(tmp_path / "model", CONDITIONS)
    assert timed.dtype == str(dtype).removeprefix("torch.")
    assert timed.run()[0].dtype == dtype


def test_all_choices_of_an_example_are_computed(tmp_path):
    build("bert", AutoModelForMultipleChoice).save_pretrained(tmp_path)
    folder = Folder.load(tmp_path)
    timed = forward_pass(tmp_path, CONDITIONS)
    assert timed.run().logits.shape == (2, 3)
    assert timed.flops == 2 * 3 * forward_flops(folder.plan, folder.sizes, source=8)


@pytest.fixture(scope="module")
def translator(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("translator") / "model"
    build("marian", AutoModelForSeq2SeqLM).save_pretrained(folder)
    return folder


def test_the_jobs_of_a_translation_model(translator):
    job = {
        name: forward_pass(translator, replace(CONDITIONS, job=name, beam=3))
        for name in ("forward", "encoder", "decoder", "search")
    }
    assert job["search"].run().shape == (2, 1 + 8)  # with the token that a translation begins with
    assert job["encoder"].run()[0].shape == (2, 8, 24)
    # The decoder's inputs are those of the forward pass, three times each.
    steps = job["decoder"].run().last_hidden_state  # 6 x 1 x C
    whole = Folder.load(translator).load_model().eval()
    batch = random_batch(whole, 2, 8, seed=1)
    hidden = whole.base_model(**batch).last_hidden_state[:, -1:]  # 2 x 1 x C
    torch.testing.assert_close(steps[:3], hidden[:1].expand(3, -1, -1))
    assert job["search"].flops > job["forward"].flops and job["encoder"].flops is None


@pytest.mark.parametrize("beam", [1, 3])
def test_a_search_continues_the_same_hypotheses_with_every_model(translator, tmp_path, beam):
    build("marian", AutoModelForSeq2SeqLM, seed=2).save_pretrained(tmp_path / "other")
    first, second = (
        forward_pass(folder, replace(CONDITIONS, job="search", beam=beam))
        for folder in (translator, tmp_path / "other")
    )
    outputs = first.run()
    assert outputs.shape == (2, 1 + 8)
    torch.testing.assert_close(second.run(), outputs)
    torch.testing.assert_close(first.run(), outputs)  # also in each round


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("nowhere", *SMALL), "nowhere: no such file or folder"),
        (("MODEL", *SMALL, "--length", 400), "does not run on 2 x 400 tokens"),
        (("MODEL", *SMALL, "--device", "cuda"), "--device cuda: torch finds no GPU"),
        (
            ("MODEL", *SMALL, "--job", "search"),
            "no encoder with a decoder",
        ),
        (
            ("EXPORTED", *SMALL, "--job", "search"),
            "not for exported models",
        ),
        (("BROKEN", *SMALL), "cannot read the model"),
    ],
)
def test_mistakes_are_one_line(options, message, model, exported, tmp_path, monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    shutil.copytree(exported, tmp_path / "BROKEN")
    (tmp_path / "BROKEN" / "model.onnx").write_text("no network")
    places = {"MODEL": model, "EXPORTED": exported, "BROKEN": tmp_path / "BROKEN"}
    with pytest.raises(HeadpruneError, match=message) as caught:
        speed(*(places.get(str(each), each) for each in options))
    assert "\n" not in str(caught.value)
