"""The parts of fast decoding, each compared with the plain computation that it replaces."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from fairseq_plugin.decoding import beam_search, linear, projection
from fairseq_plugin.decoding.beam_order import BeamOrder
from fairseq_plugin.decoding.encoder_output import OrderedEncoderOutput
from fairseq_plugin.decoding.key_value_cache import KeyValueCache
from fairseq_plugin.decoding.linear import InferenceLinear, speed_up_linears
from fairseq_plugin.decoding.recycling import Recycler


@settings(deadline=None, max_examples=40)
@given(data=st.data(), heads=st.integers(1, 3), rows=st.integers(1, 5))
def test_cache_holds_what_was_appended_and_chosen(data: st.DataObject, heads: int, rows: int):
    cache, recycler = KeyValueCache(), Recycler()
    expected = torch.zeros(rows, heads, 0, 2)
    for _ in range(data.draw(st.integers(1, 40))):
        new = torch.randn(len(expected), heads, 1, 2)
        expected = torch.cat([expected, new], 2)
        with torch.no_grad():
            cache.append("prev_key", new, recycler)
            chosen = data.draw(
                st.lists(st.integers(0, len(expected) - 1), min_size=1, max_size=rows)
            )
            cache.reorder(BeamOrder(torch.tensor(chosen)), recycler)
        expected = expected[chosen]
        assert torch.equal(cache["prev_key"], expected)


def test_cache_grows_without_being_copied_each_step() -> None:
    cache, recycler = KeyValueCache(), Recycler()
    places = set()
    with torch.no_grad():
        for _ in range(100):
            cache.append("prev_key", torch.ones(2, 3, 1, 4), recycler)
            places.add(cache["prev_key"].data_ptr())
    assert cache["prev_key"].shape == (2, 3, 100, 4) and cache["prev_key"].eq(1).all()
    assert len(places) < 8


@settings(deadline=None)
@given(
    sentences=st.lists(st.integers(0, 4), min_size=1, max_size=5),
    beam=st.integers(1, 4),
    data=st.data(),
)
def test_order_of_sentences(sentences: list[int], beam: int, data: st.DataObject) -> None:
    slots = [data.draw(st.lists(st.integers(0, beam - 1), min_size=beam, max_size=beam))
             for _ in sentences]  # fmt: skip
    rows = [s * beam + slot for s, chosen in zip(sentences, slots, strict=True) for slot in chosen]
    order = BeamOrder(torch.tensor(rows))
    found = order.sentences(beam)
    assert found is not None and found.tolist() == sentences
    assert order.keeps_sentences(len(sentences), beam) == (sentences == [*range(len(sentences))])
    assert order.keeps(len(rows)) == (rows == [*range(len(rows))])


def test_order_that_mixes_sentences() -> None:
    assert BeamOrder(torch.tensor([0, 2])).sentences(2) is None
    assert BeamOrder(torch.tensor([0, 1, 2])).sentences(2) is None
    assert not BeamOrder(torch.tensor([0, 1])).keeps(3)


def test_encoder_output_is_copied_when_it_is_read() -> None:
    copies = []

    def copy(source: Any, rows: torch.Tensor) -> dict[str, list[Any]]:
        copies.append(rows.tolist())
        return {"encoder_out": [source["encoder_out"][0][:, rows]]}

    source = {"encoder_out": [torch.randn(3, 2, 4)]}
    output = OrderedEncoderOutput(source, torch.tensor([0, 0, 1, 1]), copy=copy)
    assert output.by_sentence() is source
    later = output.reordered(torch.tensor([2, 3])).reordered(torch.tensor([1, 1, 0]))
    assert copies == []
    expected = source["encoder_out"][0][:, [1, 1, 1]]
    assert torch.equal(later["encoder_out"][0], expected)
    assert torch.equal(later["encoder_out"][0], expected) and copies == [[1, 1, 1]]
    mixed = OrderedEncoderOutput(source, torch.tensor([0, 1, 0, 1]), copy=copy)
    assert mixed.by_sentence() is mixed


def test_lent_memory_is_lent_again_only_when_no_one_holds_it() -> None:
    recycler, cpu = Recycler(), torch.device("cpu")
    first = recycler.lend(torch.Size((4, 5)), device=cpu)
    view = first[:, -1:].unsqueeze(0)
    place = first.data_ptr()
    del first
    assert recycler.lend(torch.Size((2, 5)), device=cpu).data_ptr() != place
    del view
    assert recycler.lend(torch.Size((2, 5)), device=cpu).data_ptr() == place


@settings(deadline=None, max_examples=40)
@given(rows=st.integers(1, 70), bias=st.booleans(), leading=st.sampled_from([(), (1,), (2,)]))
def test_linear_by_onednn(rows: int, bias: bool, leading: tuple[int, ...]) -> None:
    model = nn.Sequential(nn.Linear(12, 7, bias=bias))
    x = torch.randn(*leading, rows, 12)
    expected = model(x)
    speed_up_linears(model)
    assert type(model[0]) is InferenceLinear and [*model.state_dict()][0] == "0.weight"
    assert torch.equal(model(x), expected)  # with gradients, as before
    with torch.no_grad(), pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "_MKL_IS_FASTER", False)
        patch.setattr(linear, "_LEAST_PRODUCTS", 1)
        patch.setattr(projection, "_AT_ONCE", 50)
        torch.testing.assert_close(model(x), expected, atol=1e-5, rtol=1e-5)
        scores = projection.project(model[0], x, Recycler())
        torch.testing.assert_close(scores, expected, atol=1e-5, rtol=1e-5)


def test_hooks_on_the_output_projection_are_called() -> None:
    layer = nn.Linear(4, 5)
    layer.register_forward_hook(lambda module, inputs, output: output + 1)
    x = torch.randn(3, 4)
    with torch.no_grad():
        assert torch.equal(projection.project(layer, x, Recycler()), layer(x))


def test_few_numbers_of_rows_reach_onednn() -> None:
    sizes = {len(linear.pad_rows(torch.zeros(rows, 1))) for rows in range(1, 2049)}
    assert len(sizes) < 40
    assert all(
        len(linear.pad_rows(torch.zeros(n, 1))) <= max(n + 8, 1.25 * n) for n in range(1, 999)
    )


@settings(deadline=None)
@given(data=st.data())
def test_best_words(data: st.DataObject) -> None:
    """Those of topk, also where many words are equally likely or impossible."""
    block = data.draw(st.integers(1, 5))
    number = data.draw(st.integers(1, 4))
    words = data.draw(st.integers(number * block, 4 * number * block + 3))
    kinds = data.draw(st.sampled_from([2, 5, 1000]))
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    scores = torch.randint(kinds, (3, 2, words)).float()
    scores = scores.masked_fill(scores == 0, -torch.inf)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(beam_search, "_BLOCK", block)
        values, found = beam_search.best_words(scores, number)
    assert values.equal(scores.topk(number).values)
    assert scores.gather(-1, found).equal(values)
    assert all(len(set(row)) == number for row in found.flatten(0, 1).tolist())
