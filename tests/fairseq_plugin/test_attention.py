"""HeadPrunedAttention against the formula of the paper, written as a loop over heads."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from fairseq_plugin.fitting import StoredSublayer, fit_units
from fairseq_plugin.modules.headpruned_attention import HeadPrunedAttention

WIDTH, HEADS, HEAD_DIM = 12, 4, 3
kept_heads = st.sets(st.integers(0, HEADS - 1)).map(lambda heads: tuple(sorted(heads)))
forms = st.sampled_from(["mask", "remove"])


def attention(kept, form, *, seed=0, **options) -> HeadPrunedAttention:
    torch.manual_seed(seed)
    module = HeadPrunedAttention(WIDTH, HEADS, kept=kept, form=form, name="ES: layer 0", **options)
    generator = torch.Generator().manual_seed(seed)
    full = {
        name: torch.randn(WIDTH if name.endswith("bias") else (WIDTH, WIDTH), generator=generator)
        / WIDTH**0.5
        for name in (f"{p}_proj.{k}" for p in ("q", "k", "v", "out") for k in ("weight", "bias"))
    }
    sublayer = StoredSublayer(component="ES", layer=0, position=0)
    state = {sublayer.prefix + name: tensor for name, tensor in full.items()}
    fit_units(
        *(state, sublayer),
        kept=kept,
        stored=None,
        units=HEADS,
        unit_size=HEAD_DIM,
        form=form,
    )
    module.load_state_dict({name.removeprefix(sublayer.prefix): t for name, t in state.items()})
    module.full = full  # what the reference computes with
    return module


def reference(module, query, key, *, padding=None, attn_mask=None) -> tuple[Tensor, Tensor]:
    """Equation 2, a head at a time: T x B x C and H x B x T x S."""
    w = module.full
    out = w["out_proj.bias"].expand(query.shape).clone()
    weights = []
    for h in range(HEADS):
        rows = slice(h * HEAD_DIM, (h + 1) * HEAD_DIM)
        q = query @ w["q_proj.weight"][rows].T + w["q_proj.bias"][rows]  # T x B x d
        k = key @ w["k_proj.weight"][rows].T + w["k_proj.bias"][rows]  # S x B x d
        v = key @ w["v_proj.weight"][rows].T + w["v_proj.bias"][rows]
        scores = torch.einsum("tbd,sbd->bts", q, k) / HEAD_DIM**0.5
        if attn_mask is not None:
            scores = scores + attn_mask
        if padding is not None:
            scores = scores.masked_fill(padding[:, None, :], float("-inf"))
        weights.append(scores.softmax(-1))  # B x T x S
        xi = float(h in module.kept_heads.tolist())
        head = torch.einsum("bts,sbd->tbd", weights[-1], v)
        out = out + xi * head @ w["out_proj.weight"][:, rows].T
    return out, torch.stack(weights)


def inputs(length=5, source=6, batch=3, seed=1):
    generator = torch.Generator().manual_seed(seed)
    query = torch.randn(length, batch, WIDTH, generator=generator)
    key = torch.randn(source, batch, WIDTH, generator=generator)
    padding = torch.zeros(batch, source, dtype=torch.bool)
    padding[1, -2:] = True
    padding[2, :1] = True
    return query, key, padding


@settings(deadline=None, max_examples=40)
@given(kept=kept_heads, form=forms, pad=st.booleans(), weights=st.booleans())
def test_cross_attention_is_equation_2(kept, form, pad, weights):
    module = attention(kept, form, encoder_decoder_attention=True)
    query, key, padding = inputs()
    padding = padding if pad else None
    out, by_head = module(
        query, key, key, key_padding_mask=padding, static_kv=True, need_head_weights=weights
    )
    expected, expected_weights = reference(module, query, key, padding=padding)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    if weights and (kept or form == "mask"):
        computed = expected_weights if form == "mask" else expected_weights[list(kept)]
        torch.testing.assert_close(by_head, computed, atol=1e-5, rtol=1e-5)


@settings(deadline=None, max_examples=40)
@given(kept=kept_heads, form=forms, pad=st.booleans(), boolean=st.booleans())
def test_self_attention_with_causal_mask_is_equation_2(kept, form, pad, boolean):
    module = attention(kept, form, self_attention=True)
    query, _, padding = inputs(length=6)
    padding = (padding & (torch.arange(6) > 0)) if pad else None  # row 0 sees only itself
    future = torch.full((6, 6), float("-inf")).triu(1)
    mask = future.isinf() if boolean else future
    out, none = module(
        query, query, query, key_padding_mask=padding, attn_mask=mask, need_weights=False
    )
    expected, _ = reference(module, query, query, padding=padding, attn_mask=future)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
    assert none is None


@settings(deadline=None, max_examples=30)
@given(kept=kept_heads, form=forms)
def test_incremental_decoding_equals_the_whole_sequence(kept, form):
    module = attention(kept, form, self_attention=True).eval()
    query, _, _ = inputs(length=6)
    future = torch.full((6, 6), float("-inf")).triu(1)
    whole, _ = module(query, query, query, attn_mask=future, need_weights=False)
    state: dict = {}
    for t in range(6):
        step = query[t : t + 1]
        out, _ = module(step, step, step, incremental_state=state, need_weights=False)
        torch.testing.assert_close(out, whole[t : t + 1], atol=1e-5, rtol=1e-5)
        if t == 2:  # beam search swaps and repeats hypotheses
            order = torch.tensor([2, 0, 0])
            module.reorder_incremental_state(state, order)
            query, whole = query[:, order], whole[:, order]


@pytest.mark.parametrize("kept", [(), (1,), (0, 1, 2, 3)])
@pytest.mark.parametrize("form", ["mask", "remove"])
@pytest.mark.parametrize("weights", [False, True])
def test_cross_attention_keeps_one_copy_of_a_sentence_for_its_beam(kept, form, weights):
    module = attention(kept, form, encoder_decoder_attention=True).eval()
    _, key, padding = inputs(batch=3)
    beam = 2
    key, padding = key.repeat_interleave(beam, 1), padding.repeat_interleave(beam, 0)
    module.set_beam_size(beam)
    state: dict = {}
    for t in range(2):
        query = torch.randn(1, 6, WIDTH, generator=torch.Generator().manual_seed(t))
        out, mean = module(
            query,
            key,
            key,
            key_padding_mask=padding,
            incremental_state=state,
            static_kv=True,
            need_weights=weights,
        )
        expected, by_head = reference(module, query, key, padding=padding)
        torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
        if weights and kept:
            torch.testing.assert_close(mean, by_head[list(kept)].mean(0), atol=1e-5, rtol=1e-5)
        elif weights:
            assert mean is None
        module.reorder_incremental_state(state, torch.tensor([1, 0, 2, 2, 5, 4]))
    for buffer in state.values():
        assert buffer.get("prev_key") is None or buffer["prev_key"].size(0) == 3


def test_teacher_forcing_after_beam_search_attends_each_to_its_own_source():
    module = attention((0, 2), "remove", encoder_decoder_attention=True)
    module.set_beam_size(3)  # as generation during training leaves it
    query, key, padding = inputs(batch=3)
    out, _ = module(query, key, key, key_padding_mask=padding, static_kv=True)
    expected, _ = reference(module, query, key, padding=padding)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)


def test_weights_come_with_the_same_output_as_without():
    module = attention((0, 3), "remove", self_attention=True)
    query, _, _ = inputs()
    fast, _ = module(query, query, query, need_weights=False)
    plain, mean = module(query, query, query, need_weights=True)
    torch.testing.assert_close(fast, plain, atol=1e-5, rtol=1e-5)
    assert mean.shape == (3, 5, 5)
    torch.testing.assert_close(mean.sum(-1), torch.ones(3, 5))


def test_scores_before_the_softmax():
    module = attention((1, 2), "remove", self_attention=True)
    query, _, _ = inputs()
    scores, v = module(query, query, query, before_softmax=True)
    _, weights = module(query, query, query, need_head_weights=True)
    assert scores.shape == (6, 5, 5) and v.shape == (6, 5, HEAD_DIM)
    torch.testing.assert_close(
        scores.softmax(-1).view(3, 2, 5, 5).transpose(0, 1), weights, atol=1e-5, rtol=1e-5
    )


def test_dropout_on_the_weights_is_on_in_training_only():
    module = attention((0, 1, 2), "remove", self_attention=True, dropout=0.5)
    query, _, _ = inputs()
    one, other = (module(query, query, query, need_weights=False)[0] for _ in range(2))
    assert not torch.equal(one, other)
    module.eval()
    expected, _ = reference(module, query, query)
    out, _ = module(query, query, query, need_weights=False)
    torch.testing.assert_close(out, expected, atol=1e-5, rtol=1e-5)
