"""The requirements of fairseq's own tests and flags, met by the Transformer with pruned heads."""

from __future__ import annotations

import io
from argparse import Namespace
from typing import Any

import pytest
import torch
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.models.transformer import TransformerModel
from fairseq.modules import FairseqDropout
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment

from fairseq_plugin.modules.headpruned_attention import HeadPrunedAttention
from headprune import UsageError
from tests.fairseq_plugin.models import SIZES, Task, batch, build, dictionary

PRUNED = {"es_heads": "20", "ed_heads": "10", "ds_heads": "04"}
FORMS = pytest.mark.parametrize("form", ["remove", "mask"])


def attention(**options: Any) -> HeadPrunedAttention:
    return HeadPrunedAttention(
        32, 4, kept=(1, 3), form="remove", name="ES: layer 0", self_attention=True, **options
    )


def saved_and_loaded(scripted: Any) -> Any:
    file = io.BytesIO()
    torch.jit.save(scripted, file)
    file.seek(0)
    return torch.jit.load(file)


@FORMS
def test_a_scripted_model_computes_the_same(form: str):
    model = build(**PRUNED, head_form=form).eval()
    inputs = batch()
    expected, _ = model(**inputs)
    scripted = saved_and_loaded(torch.jit.script(model))
    torch.testing.assert_close(scripted(**inputs)[0], expected, atol=1e-5, rtol=1e-5)
    # Neither are pruned heads computed, nor is the model itself another one now.
    assert scripted.state_dict()["encoder.layers.0.self_attn.q_proj.weight"].shape == (16, 32)
    assert torch.equal(model(**inputs)[0], expected)


@FORMS
def test_a_scripted_generator_finds_the_same(form: str):
    model = build(**PRUNED, head_form=form).eval()
    generator = SequenceGenerator(
        [model], model.decoder.dictionary, beam_size=2, no_repeat_ngram_size=2, max_len_b=8
    )
    sample = {"net_input": batch()}
    expected = generator(sample)
    for sentence, scripted in zip(expected, torch.jit.script(generator)(sample), strict=True):
        for one, other in zip(sentence, scripted, strict=True):
            assert torch.equal(one["tokens"], other["tokens"])
            torch.testing.assert_close(one["score"], other["score"], atol=1e-5, rtol=1e-5)


def test_scripted_attentions_have_states_of_their_own():
    first, second = torch.jit.script(attention()), torch.jit.script(attention())
    state = first.set_incremental_state({}, "key", {"a": torch.tensor([1])})
    state = second.set_incremental_state(state, "key", {"a": torch.tensor([2])})
    assert first.get_incremental_state(state, "key")["a"] == 1
    assert second.get_incremental_state(state, "key")["a"] == 2


def test_retained_dropout_has_fairseqs_names():
    words = dictionary()
    pruned = build(**PRUNED)
    args = Namespace(**SIZES)
    stock = TransformerModel.build_model(args, Task(words, words))
    names = [
        {name: m.module_name for name, m in model.named_modules() if isinstance(m, FairseqDropout)}
        for model in (pruned, stock)
    ]
    assert names[0] == names[1]
    pruned.make_generation_fast_(retain_dropout=True, retain_dropout_modules=["TransformerEncoder"])
    assert pruned.encoder.dropout_module.apply_during_inference
    assert not pruned.decoder.dropout_module.apply_during_inference


def test_options_that_are_left_open_have_the_architectures_defaults():
    words = dictionary()
    kind = ARCH_MODEL_REGISTRY["transformer_headpruned"]
    model = kind.build_model(Namespace(), Task(words, words))
    assert str(model.head_plan) == "ES=888888 ED=888888 DS=888888"


@pytest.mark.parametrize("option", ["add_bias_kv", "add_zero_attn"])
def test_further_keys_are_refused(option: str):
    with pytest.raises(UsageError, match=f"{option} cannot be used with pruned heads"):
        attention(**{option: True})


def test_scalar_quantisation_noise_is_refused():
    assert build(quant_noise_scalar=0.0)
    with pytest.raises(UsageError, match="--quant-noise-scalar: .*; leave it out"):
        build(quant_noise_scalar=0.5)


def test_fairseqs_own_pruning_is_refused():
    with pytest.raises(UsageError, match="AdaPrune"):
        attention()._get_reserve_head_index(1)
    with pytest.raises(UsageError, match="--head-plan"):
        attention()._adaptive_prune_heads([(0, 8)])


def test_alignment_without_heads_to_align_by_is_refused():
    model = build(ed_heads="00").eval()
    with pytest.raises(UsageError, match=r"no layer keeps a head of .* \(ED\)"):
        SequenceGeneratorWithAlignment([model], model.decoder.dictionary)
    # beside a model that has some
    other = build(ed_heads="01").eval()
    generator = SequenceGeneratorWithAlignment([model, other], model.decoder.dictionary)
    assert generator.generate([], {"net_input": batch()})[0][0]["alignment"] is not None


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("encoder_layers", "six", "encoder_layers: 'six' is not a whole number"),
        ("dropout", "much", "dropout: 'much' is not a number"),
        ("head_plan", 3, "head_plan: 3 is not a file's path"),
        ("head_form", "gone", "head_form: 'gone'; give mask or remove"),
        ("es_heads", [2, 1], "ES: .* is no list of counts"),
    ],
)
def test_options_of_the_wrong_type(name: str, value: Any, message: str):
    """As --model-overrides may give them."""
    with pytest.raises(UsageError, match=message):
        build(**{name: value})
