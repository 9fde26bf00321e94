"""Folders of full size, with zeros in place of pruned heads, for transformers alone."""

from __future__ import annotations

import json
import re

import pytest
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMultipleChoice,
    AutoModelForQuestionAnswering,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    PreTrainedModel,
    WhisperForAudioClassification,
)

import hf_plugin
from headprune import PruningPlan
from headprune.cost import Sizes
from hf_plugin import random_batches, transformers_export
from hf_plugin.folders import Folder
from tests.command import headprune
from tests.hf_plugin.models import FAMILIES, NONE, SOME, build, first, plan_for
from tests.hf_plugin.small_models import small

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


def test_a_config_that_asks_for_other_outputs(tmp_path):
    model = build("bert", attn_implementation="eager")
    model.config.output_attentions, model.config.return_dict = True, False
    exported(tmp_path, model)
    config = AutoConfig.from_pretrained(tmp_path / "out")
    assert config.output_attentions and not config.return_dict


def test_nothing_is_written_where_outputs_differ(tmp_path, monkeypatch):
    monkeypatch.setattr(transformers_export, "_largest_difference", lambda *_: 0.1)
    hf_plugin.prune_heads(build("bert"), SOME).save_pretrained(tmp_path / "in")
    outcome = headprune("export", tmp_path / "in", "--to", "transformers", "-o", tmp_path / "out")
    assert outcome.status == 1 and "not exported: the outputs with zeros differ" in outcome.err
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


def rope(theta: float, **scaling: object) -> dict[str, object]:
    return {"rope_type": "default", "rope_theta": theta, **scaling}


LLAMA3 = dict(
    rope_type="llama3",
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=16,
)
YARN = dict(rope_type="yarn", factor=4.0, original_max_position_embeddings=64)
LINEAR = dict(rope_type="linear", factor=8.0)


def decoder(family: str, layers: int = 2, **options: object) -> PreTrainedModel:
    """A small model with rotary positions."""
    config = small("llama").config.to_dict()
    for entry in ("model_type", "architectures", "rope_parameters"):
        del config[entry]
    torch.manual_seed(1)
    options = {**config, "num_hidden_layers": layers, **options}
    return AutoModel.from_config(AutoConfig.for_model(family, **options))


def exported_config(tmp_path, model):
    """The config.json of an exported model; transformers 5 reads the same config from it."""
    model.save_pretrained(tmp_path / "in")
    transformers_export.export_to_transformers(tmp_path / "in", tmp_path / "out")
    one, other = (AutoConfig.from_pretrained(tmp_path / name) for name in ("in", "out"))
    assert one.rope_parameters == other.rope_parameters
    return json.loads((tmp_path / "out" / "config.json").read_text())


@pytest.mark.parametrize(
    ("parameters", "scaling"),
    [
        (rope(500000.0), None),
        (rope(500000.0, **LLAMA3), LLAMA3),
        (rope(500000.0, **LINEAR), LINEAR),
        # Some versions of transformers 4 replace the factor by the ratio of the lengths, here 1.
        (rope(500000.0, **YARN), {"rope_type": "yarn", "factor": 4.0}),
    ],
)
def test_transformers_4_finds_the_rotary_positions(parameters, scaling, tmp_path, capsys):
    config = exported_config(tmp_path, decoder("llama", rope_parameters=parameters))
    assert config["rope_theta"] == 500000.0 and config["rope_scaling"] == scaling
    assert "warning" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("family", "entries"),
    [
        ("gemma3_text", {"rope_theta": 3e5, "rope_local_base_freq": 7.0, "rope_scaling": LINEAR}),
        ("modernbert", {"global_rope_theta": 3e5, "local_rope_theta": 7.0}),
    ],
)
def test_transformers_4_finds_those_of_each_kind_of_attention(family, entries, tmp_path, capsys):
    scaling = LINEAR if family == "gemma3_text" else {}
    parameters = {"full_attention": rope(3e5, **scaling), "sliding_attention": rope(7.0)}
    if family == "modernbert":
        model = build(family, rope_parameters=parameters)
    else:
        model = decoder(family, rope_parameters=parameters)
    config = exported_config(tmp_path, model)
    assert {entry: config[entry] for entry in entries} == entries
    assert "warning" not in capsys.readouterr().err


BY_NUMBER = "warning: .*: transformers {}computes other outputs: it does not read which layers of"


@pytest.mark.parametrize(
    ("family", "kept", "entry", "warned"),
    [
        ("gemma2", (0, 1, 4, 5), {}, None),
        ("gemma2", (0, 2, 3), {}, "before 4.53 "),
        ("gemma3_text", (0, 1, 5), {"sliding_window_pattern": 3}, None),
        ("gemma3_text", (0, 1, 2), {"sliding_window_pattern": 6}, None),
        ("modernbert", (0, 2, 4), {"global_attn_every_n_layers": 1}, None),
        ("modernbert", (0, 2, 3), {}, "4 "),
        ("qwen2", (0, 3), {}, "before 4.53 "),
        ("qwen2", (0, 1), {}, None),
        ("mistral", (0, 3), {}, None),
    ],
)
def test_kinds_of_attention_without_some_layers(family, kept, entry, warned, tmp_path, capsys):
    """Versions of transformers 4 derive a layer's kind of attention from its number."""
    if family == "modernbert":
        model, component = build(family, num_hidden_layers=6), "EL"
    else:
        options = {"use_sliding_window": True, "max_window_layers": 3} if family == "qwen2" else {}
        model, component = decoder(family, 6, sliding_window=3, **options), "DL"
    layers = [(0,) if number in kept else () for number in range(6)]
    hf_plugin.prune(model, PruningPlan(kept={component: layers}, units={component: (1,) * 6}))
    config = exported_config(tmp_path, model)
    assert {name: config[name] for name in entry} == entry
    errors = capsys.readouterr().err
    assert re.search(BY_NUMBER.format(warned), errors) if warned else "warning" not in errors


@pytest.mark.parametrize(
    ("kept", "units", "said"),
    [
        ({"ES": [(0,), (0, 1, 2, 3), (1, 2)]}, 4, "zeros in place of pruned heads"),
        ({"EF": [tuple(range(8))] * 2 + [(3,)]}, 16, "zeros in place of pruned neurons"),
        ({"EF": [tuple(range(8))] * 3}, 16, "intermediate_size=8"),
        ({"EL": [(0,), (), (0,)]}, 1, "num_hidden_layers=2"),
        ({"ES": [(0, 1, 2, 3)] * 3}, 4, "all weights"),
    ],
)
def test_the_written_model_is_described(kept, units, said, tmp_path):
    plan = PruningPlan(kept=kept, units=dict.fromkeys(kept, (units,) * 3))
    model = build("bert", num_hidden_layers=3, intermediate_size=16)
    hf_plugin.prune(model, plan).save_pretrained(tmp_path / "in")
    done = transformers_export.export_to_transformers(tmp_path / "in", tmp_path / "out")
    assert done.contents == f"{said}, for transformers' BertModel"


def without_layer(model: PreTrainedModel, number: int, *, component: str = "DL") -> PreTrainedModel:
    """Drop a layer of a stack."""
    shape = hf_plugin.plans.model_shape(model)
    layers = [() if layer == number else (0,) for layer in range(len(shape[component]))]
    return hf_plugin.prune(
        model, PruningPlan(kept={component: layers}, units={component: shape[component]})
    )


def test_lists_by_layer_follow_the_layers(tmp_path):
    model = decoder("smollm3", 4, no_rope_layer_interval=2)
    assert model.config.no_rope_layers == [1, 0, 1, 0]
    config = exported_config(tmp_path, without_layer(model, 0))
    assert config["no_rope_layers"] == [0, 1, 0] and config["num_hidden_layers"] == 3


def test_layers_that_a_stock_model_tells_apart_are_refused(tmp_path):
    config = small("gpt2").config.to_dict() | {"scale_attn_by_inverse_layer_idx": True}
    scaled = AutoModel.from_config(AutoConfig.for_model(**config))
    without_layer(scaled, 0).save_pretrained(tmp_path / "scaled")
    config = small("whisper").config.to_dict() | {"use_weighted_layer_sum": True}
    summed = WhisperForAudioClassification(AutoConfig.for_model(**config))
    without_layer(summed, 0, component="EL").save_pretrained(tmp_path / "summed")
    config = small("yolos").config.to_dict() | {"use_mid_position_embeddings": True}
    positioned = AutoModel.from_config(AutoConfig.for_model(**config))
    without_layer(positioned, 0, component="EL").save_pretrained(tmp_path / "positioned")
    for name, reason in (
        ("scaled", "scaled by the number of the layer"),
        ("summed", "weighted sum"),
        ("positioned", "positions are added between its layers"),
    ):
        done = headprune("export", tmp_path / name, "--to", "transformers", "-o", tmp_path / "out")
        assert done.status == 2 and reason in done.err and "Traceback" not in done.err
        assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("family", "options"),
    [("dinov2", {}), ("dinov2", {"use_swiglu_ffn": True}), ("beit", {}), ("esm", {}), ("vit", {})],
)
def test_a_stock_model_without_a_layer(family, options, tmp_path):
    config = small(family).config.to_dict() | options
    model = AutoModel.from_config(AutoConfig.for_model(**config)).eval()
    pruned = without_layer(model, 0, component="EL")
    pruned.save_pretrained(tmp_path / "in")
    transformers_export.export_to_transformers(tmp_path / "in", tmp_path / "out")
    written = json.loads((tmp_path / "out" / "config.json").read_text())
    assert written["num_hidden_layers"] == 1
    batch = random_batches.random_batch(pruned, 2, 7, seed=3)
    with torch.no_grad():
        expected = pruned(**batch)[0]
        found = AutoModel.from_pretrained(tmp_path / "out")(**batch)[0]
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "options", [{"max_position_embeddings": 16}, {"chunk_size_feed_forward": 2}]
)
def test_models_of_short_texts_or_in_chunks_are_compared_on_such_texts(options, tmp_path):
    build("bert", **options).save_pretrained(tmp_path / "in")
    done = headprune("export", tmp_path / "in", "--to", "transformers", "-o", tmp_path / "out")
    assert done.status == 0, done.err


def test_weights_that_transformers_4_does_not_find(tmp_path, capsys):
    small("clip_text_model").save_pretrained(tmp_path / "in")
    transformers_export.export_to_transformers(tmp_path / "in", tmp_path / "out")
    assert "transformers 4 does not find all weights" in capsys.readouterr().err
