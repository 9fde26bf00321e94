"""The test between two methods with models of several seeds, against a naive one."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from scipy.stats import binom

from headprune.errors import DataError
from headprune.results.bleu_counts import bleu_counts, many_bleu
from headprune.results.bleu_tokenizers import DEFAULT, bleu_metric
from headprune.results.joint_randomisation import joint_randomisation
from headprune.results.predictions import mcnemar
from headprune.results.stats import paired_randomisation
from headprune.results.swaps import Counts

REFERENCES = [f"the dog number {n} sees a cat and {n % 3} birds in the tree" for n in range(20)]


def share(sums: Counts) -> np.ndarray:
    return sums[:, 0]


def draws(*shape: int, seed: int, correct: float = 0.5) -> np.ndarray:
    return (np.random.default_rng(seed).random(shape) < correct).astype(float)[..., None]


def exhaustive(one: np.ndarray, other: np.ndarray) -> float:
    """The p-value by all ways to swap; one, other: S x N x 1."""
    differences = (one - other)[..., 0].sum(axis=0) / len(one)  # N
    observed = abs(differences.sum())
    signs = product((1, -1), repeat=len(differences))
    as_large = [abs(np.dot(each, differences)) >= observed - 1e-9 for each in signs]
    return sum(as_large) / len(as_large)


@pytest.mark.parametrize("seeds", [1, 2, 3])
def test_the_p_value_is_that_of_all_swaps(seeds: int) -> None:
    one, other = draws(seeds, 10, seed=1, correct=0.9), draws(seeds, 10, seed=2, correct=0.3)
    test = joint_randomisation([*one], [*other], metric=share)
    assert test.p_value == pytest.approx(exhaustive(one, other), abs=0.015)
    assert test.difference == pytest.approx((one - other).sum() / seeds)


def test_with_one_seed_it_is_mcnemars_test() -> None:
    one, other = draws(1, 100, seed=1, correct=0.7), draws(1, 100, seed=2, correct=0.5)
    exact = mcnemar([*one[0, :, 0].astype(bool)], [*other[0, :, 0].astype(bool)])
    assert 0.001 < exact < 0.2
    test = joint_randomisation([*one], [*other], metric=share)
    assert test.p_value == pytest.approx(exact, abs=0.01)


def test_with_one_seed_it_is_the_test_of_translations() -> None:
    good = [line.replace("cat", "dog") for line in REFERENCES]
    bad = [line.replace("sees a", "has no") if n % 2 else line for n, line in enumerate(REFERENCES)]
    expected = paired_randomisation(good, [bad], REFERENCES)
    metric = bleu_metric(DEFAULT)
    counts = [bleu_counts(text, REFERENCES, metric).astype(float) for text in (good, bad)]
    test = joint_randomisation(counts[:1], counts[1:], metric=many_bleu)
    assert test.p_value == pytest.approx(expected.p_values[0], abs=0.015)
    assert test.p_value < 0.9
    assert test.difference == pytest.approx(expected.base - expected.scores[0])


def test_equal_outputs_do_not_differ() -> None:
    one = [*draws(2, 30, seed=1)]
    assert joint_randomisation(one, one, metric=share, trials=100).p_value == 1


def test_a_method_with_one_model_is_paired_with_each_of_the_other() -> None:
    one, other = draws(1, 40, seed=1), draws(3, 40, seed=2)
    single = joint_randomisation([*one], [*other], metric=share, trials=300)
    assert single == joint_randomisation([*one] * 3, [*other], metric=share, trials=300)


def test_methods_that_are_alike_are_rarely_called_different() -> None:
    # The models of a method resemble each other: each example is easy or hard for all of them.
    # A test that took their outputs as independent would reject far more often.
    rejected, independent, repetitions = 0, 0, 300
    for number in range(repetitions):
        random = np.random.default_rng(number)
        ease = random.random((2, 1, 60, 1))  # of an example, for each method by itself
        outputs = (random.random((2, 3, 60, 1)) < np.round(ease)).astype(float)
        one, other = [*outputs[0]], [*outputs[1]]
        test = joint_randomisation(one, other, metric=share, trials=200, seed=number)
        rejected += test.p_value <= 0.05
        joined = [np.concatenate(each) for each in (one, other)]
        test = joint_randomisation(joined[:1], joined[1:], metric=share, trials=200, seed=number)
        independent += test.p_value <= 0.05
    assert rejected <= binom.ppf(0.999, repetitions, 0.05)
    assert independent > binom.ppf(0.999, repetitions, 0.05)


@pytest.mark.parametrize(
    ("models", "examples"), [((2, 3), (9, 9)), ((0, 1), (9, 9)), ((1, 1), (9, 8))]
)
def test_models_that_cannot_be_paired_are_refused(
    models: tuple[int, int], examples: tuple[int, int]
) -> None:
    one, other = (
        [*draws(number, size, seed=1)] for number, size in zip(models, examples, strict=True)
    )
    with pytest.raises(DataError, match="cannot be paired|different numbers of examples"):
        joint_randomisation(one, other, metric=share)
