"""Folders of full size, with zeros in place of pruned heads, for transformers alone."""

from __future__ import annotations

import json

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
)

import hf_plugin
from headprune.cost import Sizes
from hf_plugin import transformers_export
from hf_plugin.folders import Folder
from tests.command import headprune
from tests.hf_plugin.models import FAMILIES, NONE, SOME, build, first, plan_for

families = pytest.mark.parametrize("family", FAMILIES)


def exported(tmp_path, model, *, form="remove", plan=SOME):
    """Prune, save and export a model; the exported model."""
    family = model.config.model_type
    hf_plugin.prune_heads(model, plan_for(family, plan), form=form).save_pretrained(tmp_path / "in")
    (tmp_path / "in" / "vocab.txt").write_text("[PAD]\n")
    outcome = headprune("export", tmp_path / "in", "--to", "transformers", "-o", tmp_path / "out")
    assert outcome.status == 0, outcome.err
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["model_type"] == family
    text = json.dumps(config)
    assert not any(word in text for word in ("headprune", "HeadPruned", "kept_heads", "auto_map"))
    names = {path.name for path in (tmp_path / "out").iterdir()}
    assert "vocab.txt" in names and not any(name.endswith(".py") for name in names)
    return outcome


@pytest.mark.parametrize("form", ["remove", "uniform"])
@families
def test_it_computes_the_same_in_the_stock_class(family, form, tmp_path):
    auto = AutoModelForSeq2SeqLM if family in ("bart", "marian") else AutoModel
    model = build(family, auto)
    stock = type(model)
    plan = NONE if family == "roberta" else SOME
    outcome = exported(tmp_path, model, form=form, plan=plan)
    loaded, info = stock.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert type(loaded) is stock
    assert not info["missing_keys"] and not info["unexpected_keys"]
    torch.testing.assert_close(first(loaded), first(model), atol=1e-5, rtol=1e-5)
    sizes = [build(family, auto), loaded]
    assert len({sum(p.numel() for p in each.parameters()) for each in sizes}) == 1
    assert f"for transformers' {stock.__name__}; outputs differ by at most" in outcome.out


@pytest.mark.parametrize(
    "auto",
    [AutoModelForSequenceClassification, AutoModelForMultipleChoice, AutoModelForQuestionAnswering],
)
def test_task_heads(auto, tmp_path):
    model = build("bert", auto).to(torch.bfloat16)
    exported(tmp_path, model)
    loaded = auto.from_pretrained(tmp_path / "out")
    assert loaded.dtype == torch.bfloat16
    assert loaded.state_dict().keys() == build("bert", auto).state_dict().keys()


def test_a_classifier_with_a_decoder(tmp_path):
    options = {"id2label": {0: "no", 1: "yes"}}
    exported(tmp_path, build("bart", AutoModelForSequenceClassification, **options))
    assert AutoConfig.from_pretrained(tmp_path / "out").id2label == {0: "no", 1: "yes"}


def test_the_settings_of_generation_stay(tmp_path):
    model = build("bart", AutoModelForSeq2SeqLM)
    model.generation_config.num_beams, model.generation_config.bad_words_ids = 5, [[7]]
    exported(tmp_path, model)
    generation = AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "out").generation_config
    assert (generation.num_beams, generation.bad_words_ids) == (5, [[7]])


def test_an_unpruned_model_and_a_plan_for_all(tmp_path):
    build("bert").save_pretrained(tmp_path / "in")
    outcome = headprune("export", tmp_path / "in", "--to", "transformers", "-o", tmp_path / "out")
    assert outcome.status == 0, outcome.err
    assert Folder.load(tmp_path / "out").plan.is_full
    assert isinstance(Folder.load(tmp_path / "out").sizes, Sizes)


def test_nothing_is_written_where_outputs_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(transformers_export, "_largest_difference", lambda *_: 0.1)
    hf_plugin.prune_heads(build("bert"), SOME).save_pretrained(tmp_path / "in")
    outcome = headprune("export", tmp_path / "in", "--to", "transformers", "-o", tmp_path / "out")
    assert outcome.status == 1 and "not exported: the outputs with zeros differ" in outcome.err
    assert {path.name for path in tmp_path.iterdir()} == {"in"}
