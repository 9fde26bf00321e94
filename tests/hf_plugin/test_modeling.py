"""Pruned models are saved and loaded as transformers' own are, and stock ones stay stock."""

from __future__ import annotations

import copy
import json
import pickle
import subprocess
import sys

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForMaskedLM,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    BertPreTrainedModel,
    BertTokenizer,
    PreTrainedTokenizerFast,
    pipeline,
)

import hf_plugin
from headprune import DataError
from tests.hf_plugin.models import (
    FAMILIES,
    NONE,
    SOME,
    batch,
    build,
    clone,
    config_of,
    first,
    plan_for,
    shape_of,
)

families = pytest.mark.parametrize("family", FAMILIES)
plans = pytest.mark.parametrize("plan", [SOME, NONE], ids=["some", "none left"])


def pruned(family="bert", auto=AutoModelForSequenceClassification, plan=SOME):
    return hf_plugin.prune_heads(build(family, auto), plan_for(family, plan))


@families
@plans
@pytest.mark.parametrize("auto", [AutoModel, None], ids=["base", "task head"])
def test_round_trip(family, plan, auto, tmp_path):
    if auto is None:
        generates = len(shape_of(family)) > 1
        auto = AutoModelForSeq2SeqLM if generates else AutoModelForSequenceClassification
    model = pruned(family, auto, plan)
    model.save_pretrained(tmp_path)
    loaded = auto.from_pretrained(tmp_path)
    assert type(loaded) is type(model)
    assert type(loaded.config).model_type == f"headpruned-{family}"
    assert hf_plugin.head_plan(loaded) == plan_for(family, plan)
    # Weights that lie in memory as they do in a file may be multiplied in another order.
    assert torch.equal(first(clone(loaded)), first(model))


def test_save_load_prune_save_load(tmp_path):
    pruned(plan=SOME).save_pretrained(tmp_path / "once")
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "once")
    hf_plugin.prune_heads(model, {0: [2]}).save_pretrained(tmp_path / "twice")
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path / "twice")
    assert hf_plugin.head_plan(loaded).kept["ES"] == ((0, 3), (), (1,))
    assert torch.equal(first(loaded), first(model))


def test_sharded_files(tmp_path):
    model = pruned()
    model.save_pretrained(tmp_path, max_shard_size="5KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 1
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert torch.equal(first(loaded), first(model))


def test_the_encoder_alone_and_another_task_head(tmp_path):
    model = pruned()
    model.save_pretrained(tmp_path)
    encoder = AutoModel.from_pretrained(tmp_path)
    assert torch.equal(first(encoder), first(model.bert))
    classifier = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, num_labels=3, ignore_mismatched_sizes=True
    )
    assert first(classifier).shape == (2, 3) and hf_plugin.head_plan(classifier) == SOME


def test_a_model_made_from_the_config_is_pruned():
    config = pruned().config
    made = AutoModelForMaskedLM.from_config(config)
    assert hf_plugin.head_plan(made) == SOME
    made(**batch()).logits.sum().backward()


def test_state_dict_goes_into_a_model_made_from_the_config(tmp_path):
    model = pruned()
    torch.save(model.state_dict(), tmp_path / "weights.pt")
    made = AutoModelForSequenceClassification.from_config(model.config).eval()
    made.load_state_dict(torch.load(tmp_path / "weights.pt"))
    assert torch.equal(first(made), first(model))


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_attention_implementation_can_be_chosen(attention, tmp_path):
    model = pruned()
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(
        tmp_path, attn_implementation=attention
    )
    assert loaded.config._attn_implementation == attention
    torch.testing.assert_close(first(loaded), first(model), atol=1e-5, rtol=1e-5)
    model.set_attn_implementation(attention)
    assert model.bert.config._attn_implementation == attention
    assert model.bert.encoder.layer[0].attention.self.config._attn_implementation == attention


def test_copies_and_pickles():
    model = pruned()
    for other in (clone(model), pickle.loads(pickle.dumps(model))):
        assert hf_plugin.head_plan(other) == SOME
        assert torch.equal(first(other), first(model))


def test_config_round_trip(tmp_path):
    config = pruned().config
    config.save_pretrained(tmp_path)
    loaded = AutoConfig.from_pretrained(tmp_path)
    assert type(loaded) is type(config) and isinstance(loaded, BertConfig)
    assert loaded.kept_heads == {"ES": [[0, 2, 3], [], [1]]}
    assert loaded.num_attention_heads == 4  # of the unpruned model


@families
def test_configs_have_the_stock_type_and_write_that_of_pruned_models(family, tmp_path):
    build(family).save_pretrained(tmp_path / "stock")
    model = AutoModel.from_pretrained(tmp_path / "stock")
    hf_plugin.prune_heads(model, plan_for(family, SOME)).save_pretrained(tmp_path / "pruned")
    loaded = AutoModel.from_pretrained(tmp_path / "pruned")
    hf_plugin.prune_heads(loaded, plan_for(family, NONE))
    for config in (model.config, loaded.config, copy.deepcopy(loaded.config)):
        assert config.model_type == family
        assert config.to_dict()["model_type"] == f"headpruned-{family}"


def test_nothing_pruned_stays_stock(tmp_path):
    model = hf_plugin.prune_heads(build("bert"), {})
    assert type(model) is BertModel
    model.save_pretrained(tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == "bert"
    assert torch.equal(first(AutoModel.from_pretrained(tmp_path)), first(model))


def test_stock_models_stay_stock(tmp_path):
    model = build("bert", AutoModelForSequenceClassification)
    assert type(model) is BertForSequenceClassification and type(model.config) is BertConfig
    model.save_pretrained(tmp_path)
    assert type(AutoModelForSequenceClassification.from_pretrained(tmp_path)) is type(model)


def test_pipeline(tmp_path, caplog):
    words = {"[PAD]": 0, "[UNK]": 1, "[CLS]": 2, "[SEP]": 3, "heads": 4, "pruned": 5}
    backend = Tokenizer(WordLevel(words, unk_token="[UNK]"))
    backend.pre_tokenizer = Whitespace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="[PAD]", unk_token="[UNK]"
    )
    model = pruned()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    classify = pipeline("text-classification", model=str(tmp_path), device="cpu")
    (result,) = classify("pruned heads")
    with torch.no_grad():
        logits = model(**tokenizer("pruned heads", return_tensors="pt")).logits
    assert result["score"] == pytest.approx(logits.softmax(-1).max().item(), abs=1e-5)
    assert "not supported" not in caplog.text


def test_a_family_keeps_its_tokenizer():
    from transformers.models.auto.tokenization_auto import TOKENIZER_MAPPING

    assert TOKENIZER_MAPPING[type(pruned().config)] is BertTokenizer


@pytest.mark.parametrize(
    ("kept", "message"),
    [
        ({"ES": [[0], [1]]}, "ES: kept heads for 2 layers, the model has 3"),
        ({"ES": [[0], [9], []]}, "ES: layer 1 has no head 9"),
        ({"DS": [[0]]}, "DS: no heads are given for this component"),
    ],
)
def test_a_broken_config_is_one_clear_line(kept, message, tmp_path):
    pruned().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "kept_heads": kept}))
    with pytest.raises(DataError) as caught:
        AutoModelForSequenceClassification.from_pretrained(tmp_path)
    line = str(caught.value)
    assert str(tmp_path) in line and message in line and "\n" not in line


class Mine(BertPreTrainedModel):
    """A model with a head of the user's own."""

    def __init__(self, config):
        super().__init__(config)
        self.bert = BertModel(config)
        self.head = torch.nn.Linear(config.hidden_size, 2)
        self.post_init()

    def forward(self, **inputs):
        return (self.head(self.bert(**inputs)[0]),)


def test_a_model_class_of_the_users_own(tmp_path):
    torch.manual_seed(1)
    model = hf_plugin.prune_heads(Mine(config_of("bert")).eval(), SOME)
    model.save_pretrained(tmp_path)
    for loaded in (
        type(model).from_pretrained(tmp_path),
        hf_plugin.from_pretrained(tmp_path, Mine),
        pickle.loads(pickle.dumps(model)),
    ):
        assert hf_plugin.head_plan(loaded) == SOME and isinstance(loaded, Mine)
        torch.testing.assert_close(first(loaded), first(model))


def test_a_class_of_the_users_own_that_takes_more_than_a_config():
    class Scaled(Mine):
        def __init__(self, config, scale):
            super().__init__(config)
            self.scale = scale

        def forward(self, **inputs):
            return (self.scale * super().forward(**inputs)[0],)

    torch.manual_seed(1)
    model = Scaled(config_of("bert"), 2.0).eval()
    expected = clone(model)
    with hf_plugin.masked(expected, SOME), torch.no_grad():
        outputs = first(expected)
    hf_plugin.prune_heads(model, SOME)
    assert hf_plugin.head_plan(model) == SOME
    torch.testing.assert_close(first(model), outputs)


@pytest.mark.slow
def test_a_pickled_model_of_the_users_own_class_in_another_process(tmp_path):
    torch.manual_seed(1)
    model = hf_plugin.prune_heads(Mine(config_of("bert")).eval(), SOME)
    torch.save(model, tmp_path / "model.pt")
    code = f"""
import torch
model = torch.load({str(tmp_path / "model.pt")!r}, weights_only=False)
import hf_plugin
from tests.hf_plugin.models import SOME, first
assert hf_plugin.head_plan(model) == SOME and type(model).__name__ == "HeadPrunedMine"
torch.save(first(model), {str(tmp_path / "output.pt")!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    assert torch.equal(torch.load(tmp_path / "output.pt"), first(model))


def test_a_class_of_the_users_own_that_is_called_as_a_stock_one(tmp_path):
    stock = pruned()
    stock.save_pretrained(tmp_path)
    mine = type(BertForSequenceClassification.__name__, (Mine,), {})
    own = hf_plugin.prune_heads(mine(config_of("bert")), SOME)
    assert isinstance(own, mine) and type(own) is not type(stock)
    assert type(pickle.loads(pickle.dumps(stock))) is type(stock)
    assert type(hf_plugin.from_pretrained(tmp_path)) is type(stock)


def test_pruning_the_whole_mends_what_pruning_a_part_left_out(tmp_path):
    model = build("bert", AutoModelForSequenceClassification)
    hf_plugin.prune_heads(model.bert, SOME)
    hf_plugin.prune_heads(model, SOME).save_pretrained(tmp_path)
    loaded = AutoModelForSequenceClassification.from_pretrained(tmp_path)
    assert hf_plugin.head_plan(loaded) == SOME
    assert torch.equal(first(loaded), first(model))


def test_options_that_change_the_config(tmp_path):
    pruned().save_pretrained(tmp_path / "pruned")
    build("bert").save_pretrained(tmp_path / "stock")
    for name in ("pruned", "stock"):
        loaded = hf_plugin.from_pretrained(
            tmp_path / name,
            AutoModelForSequenceClassification,
            num_labels=5,
            ignore_mismatched_sizes=True,
            dtype=torch.bfloat16,
        )
        assert loaded.config.num_labels == 5 and first(loaded).shape == (2, 5)
        assert loaded.dtype == torch.bfloat16
    config = AutoConfig.from_pretrained(tmp_path / "stock", num_labels=3)
    loaded = hf_plugin.from_pretrained(
        tmp_path / "stock", AutoModelForSequenceClassification, config=config
    )
    assert first(loaded).shape == (2, 3)


@pytest.mark.parametrize(
    "change",
    [
        {"kept_heads": [1]},
        {"uniform_heads": [1]},
        {"uniform_heads": {"DS": [[1]]}},
        {"kept_heads": {"ES": 3}},
        {"kept_heads": {"ES": [[0], ["a"], []]}},
    ],
)
def test_a_config_edited_by_hand_is_one_clear_line(change, tmp_path):
    pruned().save_pretrained(tmp_path)
    path = tmp_path / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **change}))
    with pytest.raises(DataError, match="of the configuration"):
        AutoModelForSequenceClassification.from_pretrained(tmp_path)
