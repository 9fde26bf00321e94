"""Beam search with shortlists, against the search among all words with the others masked."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator, SequenceGeneratorWithAlignment

from fairseq_plugin.decoding.shortlist import use_shortlist
from fairseq_plugin.models.transformer_headpruned import HeadPrunedTransformerModel
from headprune import DataError, UsageError
from headprune.shortlist import Shortlist
from tests.fairseq_plugin.models import WORDS, batch, build, dictionary
from tests.fairseq_plugin.test_model import NO_HEADS_HERE_AND_THERE

D = dictionary()
LIST = Shortlist(
    frequent=tuple(f"w{n}" for n in range(8)),
    best={f"w{n}": (f"w{(n + 5) % WORDS}", f"w{(n + 9) % WORDS}") for n in range(0, WORDS, 3)},
)
ALL = Shortlist(frequent=tuple(f"w{n}" for n in range(WORDS)), best={})
Hypotheses = list[list[dict[str, torch.Tensor]]]


class Masking(SequenceGenerator):
    """Plain reference: computes all words, and normalises over those of the sentence alone."""

    def _generate(self, sample: Any, **options: Any) -> Any:
        source = sample["net_input"]["src_tokens"]
        allowed = torch.zeros(len(source), len(D), dtype=torch.bool)
        allowed[:, : D.nspecial] = True
        for row, words in zip(allowed, source, strict=True):
            for word in words:
                targets = (*LIST.frequent, *LIST.best.get(D[int(word)], ()))
                row[[D.index(target) for target in targets]] = True
        (model,) = self.model.models
        normalise = type(model).get_normalized_probs

        def masked(output: Any, log_probs: bool, sample: Any = None) -> torch.Tensor:
            logits = output[0].masked_fill(
                ~allowed.repeat_interleave(self.beam_size, 0)[:, None], -torch.inf
            )
            return normalise(model, (logits, None), log_probs, sample)

        model.get_normalized_probs = masked
        try:
            return super()._generate(sample, **options)
        finally:
            del model.get_normalized_probs


def translate(
    *models: Any,
    words: Shortlist | None = LIST,
    generator: type = SequenceGenerator,
    rows: slice = slice(None),
    beam: int = 3,
    **options: Any,
) -> Hypotheses:
    """Hypotheses of all lengths alike, so that no sentence leaves the batch early."""
    made = generator(list(models), D, beam_size=beam, **{"max_len_b": 9, **options})
    if words is not None:
        use_shortlist(made, words, kind=HeadPrunedTransformerModel, name="list")
    inputs = {name: tensor[rows] for name, tensor in batch(sentences=6).items()}
    if generator is not SequenceGeneratorWithAlignment:
        del inputs["prev_output_tokens"]
    found: Hypotheses = made.generate(list(models), {"net_input": inputs})
    return found


def assert_same(ones: Hypotheses, others: Hypotheses) -> None:
    for one, other in zip(ones, others, strict=True):
        assert [h["tokens"].tolist() for h in one] == [h["tokens"].tolist() for h in other]
        for mine, theirs in zip(one, other, strict=True):
            torch.testing.assert_close(mine["score"], theirs["score"], atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def model() -> Any:
    return build(
        head_plan=NO_HEADS_HERE_AND_THERE.to_json(), share_decoder_input_output_embed=True
    ).eval()


@pytest.mark.parametrize("beam", [1, 4])
def test_the_search_is_that_among_all_words_with_others_masked(model, beam):
    # All sentences take 9 steps, as the reference does not follow sentences that leave the batch.
    options = {"beam": beam, "min_len": 9}
    assert_same(
        translate(model, **options),
        translate(model, words=None, generator=Masking, **options),
    )


def test_other_sentences_of_the_batch_change_nothing(model):
    """Sentences have different words, and finish at different steps."""
    together = translate(model, max_len_b=30)
    assert len({len(sentence[0]["tokens"]) for sentence in together}) > 1
    for number in range(6):
        alone = translate(model, max_len_b=30, rows=slice(number, number + 1))
        assert_same(alone, together[number : number + 1])
    unrestricted = translate(model, words=None, max_len_b=30)
    assert any(
        a[0]["tokens"].tolist() != b[0]["tokens"].tolist()
        for a, b in zip(unrestricted, together, strict=True)
    )


@pytest.mark.parametrize("style", [{}, {"autocast": "bf16"}], ids=["float32", "bfloat16"])
def test_a_shortlist_of_all_words_changes_nothing(style):
    model = build(**style).eval()
    for generator in (SequenceGenerator, SequenceGeneratorWithAlignment):
        assert_same(
            translate(model, words=ALL, generator=generator),
            translate(model, words=None, generator=generator),
        )
    ensemble = model, build(seed=3, **style).eval()
    assert_same(translate(*ensemble, words=ALL), translate(*ensemble, words=None))


def test_what_does_not_go_with_a_shortlist(model):
    stock = build("transformer").eval()
    cases: list[tuple[Any, dict[str, Any], str]] = [
        (stock, {}, "architecture transformer_headpruned"),
        (model, {"search_strategy": search.Sampling(D)}, "plain beam search"),
        (model, {"no_repeat_ngram_size": 2}, "--no-repeat-ngram-size"),
        (model, {"tokens_to_suppress": ("w1",)}, "tokens to suppress"),
        (model, {"beam": 5}, "--frequent 10 or more"),
        (build(adaptive_softmax_cutoff="8,16").eval(), {}, "--adaptive-softmax-cutoff"),
    ]
    for chosen, options, message in cases:
        with pytest.raises(UsageError, match=message):
            translate(chosen, **options)
    other = Shortlist(frequent=LIST.frequent, best={"v1": ("w1",)})
    with pytest.raises(DataError, match="source dictionary lacks 1 of its 1 source words, .*'v1'"):
        translate(model, words=other)
    generator = SequenceGenerator([model], D, beam_size=2)
    use_shortlist(generator, LIST, kind=HeadPrunedTransformerModel, name="list")
    sample = {"net_input": {"src_tokens": batch()["src_tokens"]}}
    with pytest.raises(UsageError, match="--prefix-size"):
        generator.generate([model], sample, prefix_tokens=torch.tensor([[4]] * 5))
