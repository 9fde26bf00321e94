"""Tests of the models that a claim compares, on the examples of their test set."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from headprune.claims.claim import Measurement, Part
from headprune.results.control_tests import TESTS, Located
from headprune.results.significance import SIGNIFICANCE_LEVEL, holm


@dataclass(frozen=True)
class ExampleTests:
    """The tests of one part: paired randomisation on BLEU, or McNemar's test on accuracy.

    They say whether two models differ on the examples. Each model has one draw of heads and one
    fine-tuning, so they do not say whether other draws would differ.

    Attributes:
        p_values: of each pair of models.
        adjusted: after Holm's correction for all pairs of the claim.
    """

    p_values: Sequence[float]
    adjusted: Sequence[float]

    @property
    def significant(self) -> int:
        """The number of pairs of models that differ."""
        return sum(p < SIGNIFICANCE_LEVEL for p in self.adjusted)

    def __str__(self) -> str:
        return f"{self.significant} of {len(self.adjusted)}"


def compare_on_examples(measurement: Measurement) -> dict[str, ExampleTests]:
    """Test the models of every part, by the name of the part; parts without outputs are left out.

    Raises:
        DataError: outputs that cannot be read.
    """
    parts = [*measurement.parts, *measurement.details]
    p_values = _p_values(parts)
    adjusted = dict(zip(p_values, holm(list(p_values.values())), strict=True))
    tests = {}
    for part in parts:
        keys = [key for pair in part.models if (key := _key(*pair)) in p_values]
        if keys:
            tests[part.name] = ExampleTests(
                [p_values[key] for key in keys], [adjusted[key] for key in keys]
            )
    return tests


_Key = tuple[str, str]


def _key(one: Located, other: Located) -> _Key:
    """The two models, in one order for both directions of a comparison."""
    first, second = sorted((str(one[0]), str(other[0])))
    return first, second


def _p_values(parts: Sequence[Part]) -> dict[_Key, float]:
    """The p-value of every pair of models that has outputs."""
    # One base and its models at once: the base's counts are made once.
    groups: dict[str, tuple[Located, dict[str, Located]]] = {}
    known: set[_Key] = set()
    for part in parts:
        for base, model in part.models:
            test = TESTS.get(base[1].metric)
            applies = test is not None and test.applies_to(base[1]) and test.applies_to(model[1])
            if applies and _key(base, model) not in known:
                known.add(_key(base, model))
                groups.setdefault(str(base[0]), (base, {}))[1][str(model[0])] = model
    p_values = {}
    for base, models in groups.values():
        tested = TESTS[base[1].metric].run(base, list(models.values()))
        for model, p_value in zip(models.values(), tested.p_values, strict=True):
            p_values[_key(base, model)] = p_value
    return p_values
