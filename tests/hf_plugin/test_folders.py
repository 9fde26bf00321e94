"""`headprune plan`, `show` and `prune` on Hugging Face folders."""

from __future__ import annotations

import json
import re
import shutil

import pytest
import torch
from transformers import (
    AutoModel,
    AutoModelForCausalLM,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    PreTrainedModel,
)
from typer.testing import CliRunner

import hf_plugin
from headprune import HeadPlan, UsageError
from headprune.cli import app
from headprune.errors import HeadpruneError
from hf_plugin.folders import Folder
from tests.hf_plugin.models import FAMILIES, SOME, build, first, plan_for
from tests.prunable_models import check_prunable_model

families = pytest.mark.parametrize("family", FAMILIES)


def saved(tmp_path, family="bert", auto=AutoModel):
    model = build(family, auto)
    model.save_pretrained(tmp_path / "model")
    (tmp_path / "model" / "vocab.txt").write_text("[PAD]\n[UNK]\n")
    (tmp_path / "model" / "pytorch_model.bin").write_bytes(b"old weights")
    return model, tmp_path / "model"


def headprune(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None:
        raise result.exception
    return result.output


@families
def test_prune_writes_what_the_auto_classes_read(family, tmp_path):
    model, folder = saved(tmp_path, family)
    plan = plan_for(family, SOME)
    plan.save(tmp_path / "plan.json")
    with hf_plugin.masked(model, plan):
        expected = first(model)
    printed = headprune("prune", folder, "--plan", tmp_path / "plan.json", "-o", tmp_path / "out")
    loaded = AutoModel.from_pretrained(tmp_path / "out")
    torch.testing.assert_close(first(loaded), expected, atol=1e-5, rtol=1e-5)
    assert (tmp_path / "out" / "vocab.txt").read_text() == "[PAD]\n[UNK]\n"
    assert not (tmp_path / "out" / "pytorch_model.bin").exists()
    before, after = (sum(p.numel() for p in m.parameters()) for m in (model, loaded))
    assert f"{before:,} -> {after:,} parameters" in printed


@families
def test_what_a_folder_says_of_its_model(family, tmp_path):
    model, path = saved(tmp_path, family)
    plan = plan_for(family, SOME)
    unpruned = Folder.load(path)
    assert unpruned.plan == hf_plugin.head_plan(model) and unpruned.plan.is_full
    hf_plugin.prune_heads(model, plan).save_pretrained(tmp_path / "pruned")
    pruned = Folder.load(tmp_path / "pruned")
    assert (pruned.plan, pruned.form) == (plan, "remove")
    assert pruned.parameters == sum(p.numel() for p in model.parameters())
    assert pruned.unpruned_parameters == unpruned.parameters
    assert pruned.sizes == unpruned.sizes
    assert pruned.sizes.encoder_width == 24 and pruned.sizes.encoder_head_dim == 6
    gated = family == "modernbert"  # three matrices where others have two
    assert pruned.sizes.encoder_feed_forward == 16
    assert pruned.sizes.encoder_projections == (3 if gated else 2)


def test_the_output_projection_counts_where_there_is_a_decoder(tmp_path):
    _, folder = saved(tmp_path, "marian", AutoModelForSeq2SeqLM)
    assert Folder.load(folder).sizes.vocabulary == 40
    build("bert", AutoModelForMaskedLM).save_pretrained(tmp_path / "bert")
    assert Folder.load(tmp_path / "bert").sizes.vocabulary == 0


def test_a_decoder_alone_attends_to_an_encoder_as_wide_as_itself(tmp_path):
    build("bart", AutoModelForCausalLM).save_pretrained(tmp_path)
    sizes = Folder.load(tmp_path).sizes
    assert (sizes.encoder_width, sizes.decoder_width, sizes.decoder_feed_forward) == (24, 24, 16)


def test_the_cross_attention_of_a_bert_is_no_feed_forward_layer(tmp_path):
    options = {"is_decoder": True, "add_cross_attention": True}
    build("bert", AutoModelForCausalLM, **options).save_pretrained(tmp_path)
    assert Folder.load(tmp_path).sizes.encoder_feed_forward == 16


def test_show_and_the_form_uniform(tmp_path):
    model, folder = saved(tmp_path)
    assert "12 of 12 kept" in headprune("show", folder)
    SOME.save(tmp_path / "plan.json")
    options = ("--plan", tmp_path / "plan.json", "--form", "uniform", "-o", tmp_path / "uniform")
    headprune("prune", folder, *options)
    shown = headprune("show", tmp_path / "uniform")
    assert "ES=301" in shown and "form        uniform" in shown
    hf_plugin.prune_heads(model, SOME, form="uniform")
    loaded = AutoModel.from_pretrained(tmp_path / "uniform")
    torch.testing.assert_close(first(loaded), first(model))


def test_plan_takes_the_shape_and_prunes_on_from_what_is_left(tmp_path):
    model, folder = saved(tmp_path)
    once, twice = tmp_path / "25.json", tmp_path / "75.json"
    headprune("plan", "--model", folder, "--percent", 25, "--seed", 3, "-o", once)
    headprune("prune", folder, "--plan", once, "-o", tmp_path / "pruned")
    headprune("plan", "--model", tmp_path / "pruned", "--percent", 75, "-o", twice)
    plan = HeadPlan.load(twice)
    assert plan.heads == {"ES": (4, 4, 4)} and plan.percent_pruned == 75
    assert plan.is_within(HeadPlan.load(once))
    headprune("prune", tmp_path / "pruned", "--plan", twice, "-o", tmp_path / "again")
    loaded = AutoModel.from_pretrained(tmp_path / "again")
    with hf_plugin.masked(model, plan):
        torch.testing.assert_close(first(loaded), first(model), atol=1e-5, rtol=1e-5)


def test_a_checkpoint_of_transformers_4_is_read_too(tmp_path):
    model, folder = saved(tmp_path)
    hf_plugin.prune_heads(model, {0: [1]}).save_pretrained(folder)
    config = json.loads((folder / "config.json").read_text())
    config |= {"model_type": "bert", "architectures": ["BertModel"], "pruned_heads": {"0": [1]}}
    for key in ("kept_heads", "auto_map", "headprune", "transformers_weights"):
        del config[key]
    (folder / "config.json").write_text(json.dumps(config))
    assert Folder.load(folder).plan.kept["ES"][0] == (0, 2, 3)
    SOME.save(tmp_path / "plan.json")
    headprune("prune", folder, "--plan", tmp_path / "plan.json", "-o", tmp_path / "out")
    assert hf_plugin.head_plan(AutoModel.from_pretrained(tmp_path / "out")) == SOME


def without_weights(folder):
    for path in (*folder.glob("*.safetensors"), *folder.glob("*.bin")):
        path.unlink()


def with_config(**changes):
    def damage(folder):
        config = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(config | changes))

    return damage


def with_index(text):
    def damage(folder):
        (folder / "model.safetensors").rename(folder / "model-1.safetensors")
        (folder / "model.safetensors.index.json").write_text(text)

    return damage


def truncated(folder):
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without_weights, "cannot read the weights"),
        (with_config(model_type="convbert"), "convbert is not a known family"),
        (truncated, "cannot read the weights"),
        (with_index("{"), r"model/model\.safetensors\.index\.json: not JSON"),
        (with_index("{}"), "index.json: has no weight_map, the files of the weights"),
        (
            with_index('{"weight_map": {"a": "model-2.safetensors"}}'),
            "index.json: names model-2.safetensors, which is not there",
        ),
        (with_config(intermediate_size=20), "size|shape|hold"),
        (
            lambda folder: (folder / "config.json").unlink(),
            "not the folder of a model; give a Hugging Face folder",
        ),
        (lambda folder: (folder / "config.json").write_text("{"), "cannot read the model"),
        (with_config(num_attention_heads="x"), "num_attention_heads is 'x', it has to be a whole"),
        (with_config(hidden_act="foo"), "cannot read the model"),
        (with_config(dtype="floatx"), "cannot read the model"),
        (with_config(architectures=["pipeline"]), "does not say which model class"),
    ],
)
def test_a_damaged_folder_is_one_clear_line_and_nothing_is_written(damage, message, tmp_path):
    _, folder = saved(tmp_path)
    damage(folder)
    SOME.save(tmp_path / "plan.json")
    with pytest.raises(HeadpruneError, match=message) as caught:
        headprune("prune", folder, "--plan", tmp_path / "plan.json", "-o", tmp_path / "out")
    assert "\n" not in str(caught.value)
    assert {path.name for path in tmp_path.iterdir()} == {"model", "plan.json"}


def test_what_cannot_be_asked_of_a_folder(tmp_path):
    _, folder = saved(tmp_path)
    SOME.save(tmp_path / "plan.json")
    HeadPlan.full({"ES": (4, 4)}).save(tmp_path / "short.json")
    options = ("--plan", tmp_path / "plan.json", "-o", tmp_path / "out")
    with pytest.raises(UsageError, match="mask is not written to a Hugging Face folder"):
        headprune("prune", folder, *options, "--form", "mask")
    message = re.escape(f"ES: the plan is for 2 layers, {folder} has 3")
    with pytest.raises(UsageError, match=message):
        headprune("prune", folder, "--plan", tmp_path / "short.json", "-o", tmp_path / "out")
    shutil.copytree(folder, tmp_path / "out")
    with pytest.raises(HeadpruneError, match="exists already; choose another folder"):
        headprune("prune", folder, *options)
    assert AutoModel.from_pretrained(tmp_path / "out").config.model_type == "bert"


def test_an_interrupted_save_leaves_nothing_behind(tmp_path, monkeypatch):
    _, folder = saved(tmp_path)
    SOME.save(tmp_path / "plan.json")

    def full_disk(self, path, **_):
        (path / "model.safetensors").write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(PreTrainedModel, "save_pretrained", full_disk)
    with pytest.raises(HeadpruneError, match="cannot write .No space left on device"):
        headprune("prune", folder, "--plan", tmp_path / "plan.json", "-o", tmp_path / "out")
    assert {path.name for path in tmp_path.iterdir()} == {"model", "plan.json"}


def test_a_folder_that_does_not_say_its_class_and_uniform_heads_that_go(tmp_path):
    model, folder = saved(tmp_path)
    with_config(architectures=None)(folder)
    SOME.save(tmp_path / "plan.json")
    plan = ("--plan", tmp_path / "plan.json")
    headprune("prune", folder, *plan, "--form", "uniform", "-o", tmp_path / "uniform")
    headprune("prune", tmp_path / "uniform", *plan, "-o", tmp_path / "removed")
    assert Folder.load(tmp_path / "removed").form == "remove"
    with hf_plugin.masked(model, SOME):
        expected = first(model)
    loaded = AutoModel.from_pretrained(tmp_path / "removed")
    torch.testing.assert_close(first(loaded), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("family", ["bert", "bart"])
def test_a_folder_is_a_prunable_model(family, tmp_path):
    _, folder = saved(tmp_path, family)
    check_prunable_model(folder, tmp_path)
