"""Spread over seeds, and the test between two models."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sacrebleu.metrics.bleu import BLEU
from sacrebleu.significance import PairedTest as SacrebleuTest
from sacrebleu.significance import Result as SacrebleuResult

from headprune import DataError
from headprune.results.bleu_counts import bleu_of, many_bleu
from headprune.results.stats import paired_randomisation, spread

REFERENCES = [f"the house number {n} stands in street {n * 7 % 50} of the town" for n in range(60)]


@given(st.lists(st.floats(-1e3, 1e3), min_size=2, max_size=20))
def test_spread_is_the_mean_and_the_sample_standard_deviation(values: list[float]) -> None:
    result = spread(values)
    assert math.isclose(result.mean, np.mean(values), abs_tol=1e-9)
    assert result.sd is not None
    assert math.isclose(result.sd, np.std(values, ddof=1), rel_tol=1e-6, abs_tol=1e-9)
    assert result.n == len(values)


def test_one_value_has_no_spread() -> None:
    result = spread([27.95])
    assert (result.mean, result.sd, result.n) == (27.95, None, 1)
    assert str(result) == "27.95"
    assert str(spread([1.0, 2.0])) == "1.50 ± 0.71"


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_what_has_no_mean_is_refused(values: list[float]) -> None:
    with pytest.raises(DataError):
        spread(values)


def test_a_model_does_not_differ_from_itself_but_from_a_much_worse_one() -> None:
    base = [line.replace("stands", "is") for line in REFERENCES]
    worse = ["the house" for _ in REFERENCES]
    outcome = paired_randomisation(base, [base, worse], REFERENCES, trials=500)
    same, different = outcome.p_values
    assert same > 0.9
    assert different < 0.01
    assert "ar:500" in outcome.signature
    assert "seed:" in outcome.signature


def test_scores_are_those_of_sacrebleu() -> None:
    base = [line.replace("stands", "is") for line in REFERENCES]
    other = [line.replace("of the", "in a") for line in REFERENCES]
    outcome = paired_randomisation(base, [other], REFERENCES, trials=1)
    assert outcome.base == pytest.approx(BLEU().corpus_score(base, [REFERENCES]).score)
    assert outcome.scores == (pytest.approx(BLEU().corpus_score(other, [REFERENCES]).score),)


@pytest.mark.slow
def test_without_an_effect_five_percent_of_p_values_are_below_five_percent() -> None:
    # Two systems that make the same kinds of mistakes at random: no true difference.
    draws = np.random.default_rng(0)

    def translated() -> list[str]:
        return [
            " ".join(word if keep else "wrong" for word, keep in zip(words, kept, strict=True))
            for words in (line.split() for line in REFERENCES)
            for kept in [draws.random(len(words)) < 0.8]
        ]

    p_values = [
        paired_randomisation(
            translated(), [translated()], REFERENCES, trials=100, seed=number
        ).p_values[0]
        for number in range(300)
    ]
    below = sum(p <= 0.05 for p in p_values)
    # Of 300 tests 15 are expected, 25 or more in 1% of cases; a test that rejects 10% of true null
    # hypotheses (30 of 300) stays below 25 in one case of seven.
    assert 4 <= below < 25
    # Half of the p-values lie below one half, give or take three standard deviations.
    assert 124 <= sum(p <= 0.5 for p in p_values) <= 176


def test_the_test_gives_the_same_answer_twice() -> None:
    base = [line.replace("stands", "is") if n % 2 else line for n, line in enumerate(REFERENCES)]
    other = [line.replace("town", "city") if n % 3 else line for n, line in enumerate(REFERENCES)]
    first = paired_randomisation(base, [other], REFERENCES, trials=200)
    assert first == paired_randomisation(base, [other], REFERENCES, trials=200)


def test_texts_of_different_length_cannot_be_paired() -> None:
    with pytest.raises(DataError, match="number of sentences"):
        paired_randomisation(REFERENCES[:-1], [REFERENCES], REFERENCES)


def test_many_bleu_scores_at_once_are_those_of_sacrebleu() -> None:
    draws = np.random.default_rng(3)
    totals = np.sort(draws.integers(1, 80, (300, 4)))[:, ::-1]
    matches = (totals * draws.random((300, 4)) * draws.integers(0, 2, (300, 4))).astype(int)
    matches[100:] = np.ceil(totals[100:] * draws.random((200, 4)))
    lengths = np.stack([totals[:, 0], draws.integers(1, 120, 300)], axis=1)
    counts = np.hstack([matches, totals, lengths]).astype(float)
    assert many_bleu(counts) == pytest.approx([bleu_of(row) for row in counts], abs=1e-9)


def test_nothing_cannot_be_tested() -> None:
    with pytest.raises(DataError, match="no sentence to score"):
        paired_randomisation([], [[]], [])


def test_p_values_are_those_of_sacrebleu_where_no_trials_tie() -> None:
    base = [line.replace("stands", "is") if n % 2 else line for n, line in enumerate(REFERENCES)]
    other = [line.replace("of the", "in a") if n % 3 else line for n, line in enumerate(REFERENCES)]
    mine = paired_randomisation(base, [other], REFERENCES, trials=2000).p_values[0]
    named: list[tuple[str, Sequence[str]]] = [("base", base), ("other", other)]
    _, theirs = SacrebleuTest(named, {"BLEU": BLEU()}, [REFERENCES], n_samples=2000)()
    outcome = theirs["BLEU"][1]
    assert isinstance(outcome, SacrebleuResult) and outcome.p_value is not None
    # Both are shares of 2000 random trials.
    assert mine == pytest.approx(outcome.p_value, abs=0.05)
