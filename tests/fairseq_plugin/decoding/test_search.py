"""Beam search with the plugin against stock fairseq's, and against recomputing everything."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment
from hypothesis import given, settings

from fairseq_plugin.decoding import beam_search, linear, projection
from fairseq_plugin.decoding.recycling import Recycler
from headprune import HeadPlan
from tests.fairseq_plugin.models import batch, build, dictionary
from tests.fairseq_plugin.test_model import NO_HEADS_HERE_AND_THERE, NOTHING_LEFT, plans

BOTH_NORMS = pytest.mark.parametrize("before", [False, True], ids=["post-norm", "pre-norm"])


@pytest.fixture(scope="module", autouse=True, params=[False, True], ids=["oneDNN", "MKL"])
def as_if_large(request: pytest.FixtureRequest) -> Iterator[None]:
    """Make small models use the code for large ones, on processors of either maker."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(linear, "_MKL_IS_FASTER", request.param)
        patch.setattr(linear, "_LEAST_PRODUCTS", 1)
        patch.setattr(projection, "_AT_ONCE", 100)
        patch.setattr(beam_search, "_BLOCK", 2)
        yield


class Recomputing(SequenceGenerator):
    """Plain reference without a cache: every step computes all positions of all hypotheses."""

    def __init__(self, models: list[Any], *args: Any, **options: Any) -> None:
        super().__init__(models, *args, **options)
        self.model.has_incremental = False


def norms(before: bool) -> dict[str, bool]:
    return {"encoder_normalize_before": before, "decoder_normalize_before": before}


def translate(
    *models: Any, generator: type = SequenceGenerator, sentences: int = 5, **options: Any
) -> list[list[dict[str, torch.Tensor]]]:
    """Generate all hypotheses; options are those of SequenceGenerator, and prefix_tokens."""
    call = {key: options.pop(key) for key in ("prefix_tokens",) if key in options}
    options = {"beam_size": 3, "max_len_b": 9, **options}
    net_input = batch(sentences=sentences)
    sample = {"net_input": net_input}
    if generator is not SequenceGeneratorWithAlignment:
        del net_input["prev_output_tokens"]
    torch.manual_seed(0)
    found = generator(list(models), dictionary(), **options).generate(models, sample, **call)
    assert len(found) == sentences
    return found


def assert_same(
    ours: list[list[dict[str, torch.Tensor]]],
    theirs: list[list[dict[str, torch.Tensor]]],
    *,
    attention: bool = True,
) -> None:
    """Assert equal hypotheses in the same order, with equal scores, attention and alignment."""
    for mine, stock in zip(ours, theirs, strict=True):
        assert [h["tokens"].tolist() for h in mine] == [h["tokens"].tolist() for h in stock]
        for one, other in zip(mine, stock, strict=True):
            for key in ("score", "positional_scores"):
                torch.testing.assert_close(one[key], other[key], atol=1e-5, rtol=1e-5)
            if attention:
                torch.testing.assert_close(
                    one["attention"], other["attention"], atol=1e-5, rtol=1e-5
                )
                assert torch.as_tensor(one["alignment"]).equal(torch.as_tensor(other["alignment"]))


def pair(**style: Any) -> tuple[Any, Any]:
    """Stock fairseq's model, and the plugin's with all heads and the same weights."""
    stock, mine = build("transformer", **style), build(seed=1, **style)
    mine.load_state_dict(stock.state_dict())
    return stock.eval(), mine.eval()


D = dictionary()
SEARCHES: dict[str, dict[str, Any]] = {
    "greedy": {"beam_size": 1},
    "beam of 4": {"beam_size": 4},
    "wide beam": {"beam_size": 16, "max_len_b": 6},
    "length penalty": {"len_penalty": 0.3},
    "not normalised": {"normalize_scores": False},
    "unknown-word penalty": {"unk_penalty": 2.0},
    "temperature": {"temperature": 0.6},
    "least length": {"min_len": 7},
    "long": {"min_len": 40, "max_len_b": 40},
    "short": {"max_len_b": 2},
    "no repeated bigram": {"no_repeat_ngram_size": 2, "min_len": 6},
    "without some words": {"tokens_to_suppress": ("w1", "w5")},
    "sampling": {"search_strategy": lambda: search.Sampling(D)},
    "sampling of the best": {"search_strategy": lambda: search.Sampling(D, sampling_topk=5)},
    "nucleus sampling": {"search_strategy": lambda: search.Sampling(D, sampling_topp=0.7)},
    "diverse beams": {
        "beam_size": 4,
        "search_strategy": lambda: search.DiverseBeamSearch(D, 2, 0.5),
    },
    "diverse siblings": {"search_strategy": lambda: search.DiverseSiblingsSearch(D, 0.5)},
    "source's length": {
        "match_source_len": True,
        "search_strategy": lambda: search.LengthConstrainedBeamSearch(D, 1, 0, 1, 0),
    },
}


@pytest.mark.parametrize("name", SEARCHES)
@BOTH_NORMS
def test_full_plan_translates_as_stock_fairseq(name: str, before: bool) -> None:
    stock, mine = pair(**norms(before))
    options = dict(SEARCHES[name])
    strategy = options.pop("search_strategy", None)
    ours, theirs = (
        translate(m, search_strategy=strategy and strategy(), **options) for m in (mine, stock)
    )
    assert_same(ours, theirs)


@pytest.mark.parametrize("length", [1, 3])
def test_prefixes(length: int) -> None:
    """A batch of sentences of different lengths."""
    prefix = batch()["prev_output_tokens"][:, 1 : 1 + length].clone()
    prefix[1, length - 1] = D.pad()
    stock, mine = pair()
    assert_same(*(translate(m, prefix_tokens=prefix) for m in (mine, stock)))


@pytest.mark.parametrize("way", ["hard", "soft"])
def test_alignments(way: str) -> None:
    options = {"generator": SequenceGeneratorWithAlignment, "print_alignment": way}
    stock, mine = pair()
    ours, theirs = (translate(m, **options) for m in (mine, stock))
    assert_same(ours, theirs, attention=way == "hard")
    for one, other in zip(sum(ours, []), sum(theirs, []), strict=True):
        torch.testing.assert_close(one["attention"], other["attention"], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    "style",
    [
        {"share_all_embeddings": True},
        {"encoder_embed_dim": 24},  # cross-attention's keys are narrower
        {"cross_self_attention": True, "no_cross_attention": True},
        {"no_cross_attention": True},
        {"decoder_learned_pos": True, "layernorm_embedding": True},
        {"activation_fn": "gelu", "no_decoder_final_norm": True, **norms(True)},
        {"adaptive_softmax_cutoff": "8,16"},
    ],
    ids=lambda style: next(iter(style)),
)
def test_kinds_of_models(style: dict[str, Any]) -> None:
    stock, mine = pair(**style)
    # Without cross-attention the weights reported are of self-attention, which stock fairseq
    # hands out in the width of the step.
    assert_same(translate(mine), translate(stock), attention="no_cross_attention" not in style)


@settings(deadline=None, max_examples=15)
@given(plan=plans)
def test_every_plan_translates_as_without_caches(plan: HeadPlan) -> None:
    model = build(head_plan=plan.to_json(), **norms(True)).eval()
    assert_same(
        translate(model),
        translate(model, generator=Recomputing),
        attention=bool(plan.kept["ED"][1]),
    )


@pytest.mark.parametrize("plan", [NO_HEADS_HERE_AND_THERE, NOTHING_LEFT])
@pytest.mark.parametrize("form", ["mask", "remove"])
def test_forms_translate_as_without_caches(plan: HeadPlan, form: str) -> None:
    model = build(head_plan=plan.to_json(), head_form=form).eval()
    assert_same(translate(model), translate(model, generator=Recomputing), attention=False)


def test_ensembles_with_stock_fairseqs_models() -> None:
    stock, mine = pair()
    pruned = build(head_plan=NO_HEADS_HERE_AND_THERE.to_json(), seed=2).eval()
    assert_same(
        translate(mine, pruned, attention := stock),
        translate(stock, pruned, attention, generator=Recomputing),
        attention=False,
    )
    assert_same(translate(mine, mine), translate(stock, stock))


def test_which_searches_are_quick() -> None:
    stock, mine = pair()
    for models, strategy, expected in (
        ([mine], None, beam_search.QuickBeamSearch),
        ([stock, mine], None, beam_search.QuickBeamSearch),
        ([stock], None, search.BeamSearch),
        ([mine], search.Sampling(D), search.Sampling),
    ):
        generator = SequenceGenerator(models, D, search_strategy=strategy)
        assert type(generator.search) is expected


def test_sentences_that_finish_at_different_steps() -> None:
    """Assert that the best hypotheses differ in length, so the batch shrinks during the search."""
    stock, mine = pair()
    ours = translate(mine, sentences=12, max_len_b=30)
    assert len({len(sentence[0]["tokens"]) for sentence in ours}) > 2
    assert_same(ours, translate(stock, sentences=12, max_len_b=30))


def test_searches_with_other_beams_on_the_same_model() -> None:
    stock, mine = pair()
    for beam in (4, 1, 2, 4):
        assert_same(*(translate(m, beam_size=beam) for m in (mine, stock)))


def test_gradients_switched_on_do_not_change_a_translation() -> None:
    """A manual search, with gradients, which exclude the reuse of memory, and without."""
    model = build(head_plan=NO_HEADS_HERE_AND_THERE.to_json()).eval()
    results = []
    for context in (nullcontext(), torch.no_grad()):
        with context:
            results.append(by_hand(model))
    for logits, expected in zip(*results, strict=True):
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=1e-5)


def by_hand(model: Any, steps: int = 6) -> list[torch.Tensor]:
    """Compute logits of forced steps while hypotheses are swapped, repeated and moved."""
    sample = batch(sentences=3)
    encoded = model.encoder(sample["src_tokens"], sample["src_lengths"])
    encoded = model.encoder.reorder_encoder_out(encoded, torch.tensor([0, 0, 1, 1, 2, 2]))
    state: dict[str, Any] = {}
    tokens = sample["prev_output_tokens"].repeat_interleave(2, 0)
    orders = [[1, 0, 2, 3, 5, 4], [0, 0, 3, 3, 4, 5], [2, 3, 4, 4], [3, 0, 1, 2], [0]]
    kept = []
    for step in range(steps):
        logits, extra = model.decoder(tokens[:, : step + 1], encoded, incremental_state=state)
        probs = model.get_normalized_probs((logits, extra), log_probs=True)
        torch.testing.assert_close(probs, logits.log_softmax(-1))
        kept += [logits, probs]
        if step < len(orders):
            order = torch.tensor(orders[step])
            model.decoder.reorder_incremental_state_scripting(state, order)
            encoded = model.encoder.reorder_encoder_out(encoded, order)
            tokens = tokens[order]
    return kept


def test_steps_by_hand_equal_the_whole_sentence() -> None:
    """Logits and log-probabilities kept from earlier steps are not overwritten."""
    model = build().eval()
    sample = batch(sentences=6)
    encoded = model.encoder(sample["src_tokens"], sample["src_lengths"])
    tokens = sample["prev_output_tokens"]
    with torch.no_grad():
        whole, _ = model.decoder(tokens, encoded)
        state: dict[str, Any] = {}
        steps = []
        for length in range(1, tokens.size(1) + 1):
            logits, extra = model.decoder(tokens[:, :length], encoded, incremental_state=state)
            probs = model.get_normalized_probs((logits, extra), log_probs=True)
            steps.append((logits, probs))
    attended = tokens.ne(D.pad())
    for position, (logits, probs) in enumerate(steps):
        rows = attended[:, position]
        expected = whole[rows, position]
        torch.testing.assert_close(logits[rows, 0], expected, atol=1e-5, rtol=1e-5)
        torch.testing.assert_close(probs[rows, 0], expected.log_softmax(-1), atol=1e-5, rtol=1e-5)


def test_keys_and_values_of_a_sentence_are_there_once() -> None:
    _, mine = pair()
    sample = batch(sentences=3)
    with torch.no_grad():
        encoded = mine.encoder(sample["src_tokens"], sample["src_lengths"])
        rows = torch.arange(3).repeat_interleave(4)
        encoded = mine.encoder.reorder_encoder_out(encoded, rows)
        state: dict[str, Any] = {}
        mine.decoder(torch.full((12, 1), D.eos()), encoded, incremental_state=state)
        order = torch.arange(12).view(3, 4).flip(1).flatten()
        cross = mine.decoder.layers[0].encoder_attn
        before = cross._get_input_buffer(state)["prev_key"]
        mine.decoder.reorder_incremental_state_scripting(state, order)
    assert before.size(0) == 3
    assert cross._get_input_buffer(state)["prev_key"] is before
    assert Recycler.known(state)
