"""BERT and its relatives as decoders, whose layers attend to an encoder too."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    EncoderDecoderModel,
    PreTrainedModel,
)

import headprune
import hf_plugin
from headprune import PruningPlan, UsageError
from headprune.results.record import Record
from headprune.scores.ablation import cases_of
from headprune.scores.attention_statistics import attention_statistics
from headprune.scores.reuse import masked_outcomes
from hf_plugin.folders import Folder
from hf_plugin.plans import model_shape
from hf_plugin.scores.model import HuggingFaceModel
from hf_plugin.transformers_export import export_to_transformers
from tests.hf_plugin.made import write_model
from tests.hf_plugin.small_models import SMALL, inputs_of, plan_of, small, zeroed
from tests.hf_plugin.tasks.test_commands import finetune
from tests.hf_plugin.tasks.test_language_models import write_text

FAMILIES = ("bert", "bert-generation", "roformer", "rembert", "megatron-bert")
MEMORY = torch.randn(2, 7, 16, generator=torch.Generator().manual_seed(3))
DECODER = {"is_decoder": True, "add_cross_attention": True, "bos_token_id": 1, "eos_token_id": 2}


def decoder(family: str, **changes: Any) -> PreTrainedModel:
    options = {**SMALL.get(family, SMALL["ernie"]), **DECODER, **changes}
    torch.manual_seed(1)
    config = AutoConfig.for_model(family, **options)
    model: PreTrainedModel = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.normal_(std=0.3)
    return model


def output_of(model: Any) -> Tensor:
    with torch.no_grad():
        return model(**inputs_of(model), encoder_hidden_states=MEMORY).logits  # type: ignore


def close(a: Tensor, b: Tensor) -> None:
    torch.testing.assert_close(a, b, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("second", [False, True], ids=["top", "bottom"])
def test_heads_of_its_attention_to_an_encoder(family, second, tmp_path):
    model = decoder(family)
    assert {name: model_shape(model)[name] for name in ("ES", "ED")} == {
        "ES": (4, 4),
        "ED": (4, 4),
    }
    plan = plan_of(model, "ES", "ED", second=second)
    unpruned, expected = output_of(model), output_of(zeroed(model, plan))
    assert not torch.allclose(unpruned, expected, atol=1e-3)
    with hf_plugin.masked(model, plan):
        close(output_of(model), expected)
    model.save_pretrained(tmp_path / "model")
    folder = Folder.load(tmp_path / "model")
    pruned = folder.prune(plan)
    close(output_of(pruned.model.eval()), expected)
    pruned.save(tmp_path / "pruned")
    again = Folder.load(tmp_path / "pruned")
    assert again.plan == pruned.plan and again.parameters == folder.parameters_with(plan)
    close(output_of(AutoModelForCausalLM.from_pretrained(tmp_path / "pruned")), expected)
    export_to_transformers(tmp_path / "pruned", tmp_path / "stock")
    close(output_of(type(model).from_pretrained(tmp_path / "stock")), expected)


def test_a_dropped_layer_takes_its_attention_to_the_encoder_with_it(tmp_path):
    model = decoder("bert")
    plan = plan_of(model, "EL")
    with hf_plugin.masked(model, plan):
        expected = output_of(model)
    hf_plugin.prune(model, plan)
    assert hf_plugin.plan(model).kept["ED"] == ((0, 1, 2, 3), ())
    close(output_of(model), expected)
    model.save_pretrained(tmp_path)
    close(output_of(AutoModelForCausalLM.from_pretrained(tmp_path)), expected)


def language_model(family: str) -> PreTrainedModel:
    """A decoder that attends to no encoder."""
    return decoder(family, add_cross_attention=False)


@pytest.mark.parametrize("family", ["bert", "roformer"])
def test_ablation_with_shared_work_gives_what_the_plain_loop_gives(family):
    model = language_model(family)
    inputs = inputs_of(model)
    labels = inputs["input_ids"].masked_fill(inputs["attention_mask"] == 0, -100)
    batch = {**inputs, "labels": labels}
    scored = HuggingFaceModel(model)
    cases = cases_of(scored, "ablation")
    base, found = masked_outcomes(scored, batch, cases, at_once=5)
    with torch.no_grad():
        of_first = model(**{name: tensor[:1] for name, tensor in batch.items()}).loss
    close(base.losses[0], of_first)
    whole = hf_plugin.plan(model).part(["ES"])
    for (component, layer), masks in cases.items():
        for mask, outcome in zip(masks, found[component, layer], strict=True):
            layers = [list(heads) for heads in whole.kept[component]]
            layers[layer] = sorted(mask)
            plan = PruningPlan(kept={component: layers}, units=whole.units)
            with torch.no_grad(), hf_plugin.masked(model, plan):
                close(outcome.losses, HuggingFaceModel(model).outcome(batch).losses)


def test_later_tokens_do_not_count_as_keys_without_weight():
    model = language_model("bert")
    inputs = {name: tensor[:1] for name, tensor in inputs_of(model).items()}
    found = attention_statistics(HuggingFaceModel(model), [inputs])
    model.set_attn_implementation("eager")
    with torch.no_grad():
        attentions = model(**inputs, output_attentions=True).attentions
    weights = torch.stack(attentions)  # layers x 1 x H x T x T
    small_ones = ((weights < 0.01).tril() & torch.ones_like(weights).tril().bool()).sum(-1)
    seen = torch.arange(1, weights.size(-1) + 1)
    close(torch.tensor(found["sparsity"]["ES"]), (small_ones / seen).mean((1, 3)))
    assert "next" in found and "ES" not in found["next"]  # as in all decoders


def test_one_that_attends_to_an_encoder_is_not_scored():
    with pytest.raises(UsageError, match="attends to an encoder .add_cross_attention., whose out"):
        HuggingFaceModel(decoder("bert"))


def test_a_language_model_is_fine_tuned_scored_and_measured(tmp_path):
    """As those of families of decoders in ``tasks.test_language_models``."""
    train, dev = (write_text(tmp_path / f"{n}.txt", 12, seed=n) for n in (1, 2))
    model = write_model(tmp_path / "model")  # for its tokenizer
    language_model("bert-generation").save_pretrained(model)
    options = ("--train", train, "--dev", dev, "--max-length", 8, "--batch-size", 8)
    finetune(model, *options, "--epochs", 1, "--hold-out", 25, "-o", tmp_path / "out")
    record = Record.load(tmp_path / "out" / "result.json")
    assert list(record.metrics) == ["perplexity", "loss"]
    given = {"train": str(train), "dev": str(dev), "max_length": 8}
    opened = headprune.open_task_model(tmp_path / "out" / "model", **given)
    assert opened.measure().value == pytest.approx(record.value, rel=1e-5)
    scores = opened.scores(["gradient"], seed=1)["gradient"]
    plan = headprune.select.by_score(scores, percent=50)
    pruned = opened.pruned(plan, tmp_path / "pruned")
    assert pruned.measure().value == pytest.approx(opened.measure(plan).value, rel=1e-5)


def test_an_encoder_is_told_how_to_become_one(tmp_path):
    train = write_text(tmp_path / "train.txt", 4, seed=1)
    given = ("--train", train, "--epochs", 1, "-o", tmp_path / "out")
    with pytest.raises(UsageError, match="BERT and its relatives with is_decoder in their config"):
        finetune(write_model(tmp_path / "model"), *given)


@pytest.mark.parametrize("second", [False, True], ids=["top", "bottom"])
@pytest.mark.parametrize("kind", [("ES", "ED"), ("EL",)], ids=["heads", "layers"])
def test_two_pruned_berts_generate_with_and_without_a_cache(kind, second):
    torch.manual_seed(1)
    encoder, whole = small("ernie"), decoder("bert")
    hf_plugin.prune(encoder, plan_of(encoder, "ES"))
    pruned = hf_plugin.prune(copy.deepcopy(whole), plan_of(whole, *kind, second=second))
    inputs = inputs_of(encoder)
    options: dict[str, Any] = dict(
        decoder_start_token_id=1,
        pad_token_id=0,
        eos_token_id=None,
        max_new_tokens=5,
        do_sample=False,
        return_dict_in_generate=True,
        output_logits=True,
    )
    found = []
    for part in (pruned, whole):
        together = EncoderDecoderModel(encoder=encoder, decoder=part).eval()
        for use_cache in (False, True):
            found.append(together.generate(**inputs, use_cache=use_cache, **options))
    for now, then in zip(found[0].logits, found[1].logits, strict=True):
        close(now, then)
    assert not torch.allclose(found[0].logits[0], found[2].logits[0], atol=1e-3)
