"""The claim on changes of heads in fine-tuning."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from headprune.claims.catalogue import all_claims
from headprune.claims.estimate import Largest, MeanDifference, relative_difference
from headprune.claims.outcome import Assessed, Outcome
from headprune.claims.sentences import sentence
from headprune.errors import DataError
from headprune.report.changes import document
from headprune.report.claims import claims_document
from headprune.report.render import json_values, markdown, spreadsheet
from headprune.results.changes import Changes, read_changes
from headprune.results.significance import SIGNIFICANCE_LEVEL
from tests.claims.assessment import assess
from tests.claims.calibration import most


def changes(*means: float, heads: int = 12, spread: float = 0.02, label: str = "50%") -> Changes:
    """Layers with these mean changes, whose heads differ by a few percent."""
    steps = np.linspace(-spread, spread, heads)
    return Changes(label=label, components={"ES": [(m * (1 + steps)).tolist() for m in means]})


def outcome(*models: Changes) -> Assessed:
    (assessed,) = [
        each
        for each in assess(all_claims(), [], changes=models)
        if each.claim.name == "even-compensation"
    ]
    return assessed


def test_even_layers_hold() -> None:
    assessed = outcome(changes(1.0, 1.02, 0.99), changes(1.0, 1.03, 1.01, label="25%"))
    assert assessed.outcome is Outcome.HOLDS
    assert assessed.measurement is not None
    assert assessed.measurement.counts == ["the difference is below 10% in 2 of 2 models"]
    part = assessed.weakest
    assert part is not None and part.name == "50% ES: layer 1 - layer 2"
    assert part.effect == pytest.approx(100 * (1.02 / 0.99 - 1))


def test_one_model_with_uneven_layers_refutes_the_claim() -> None:
    assessed = outcome(changes(1.0, 1.02, 0.99), changes(1.0, 1.3, 1.01, label="top"))
    assert assessed.outcome is Outcome.FAILS
    assert assessed.weakest is not None and assessed.weakest.name.startswith("top ES")


def test_layers_of_few_heads_that_vary_cannot_tell() -> None:
    assessed = outcome(changes(1.0, 1.3, heads=3, spread=0.3))
    assert assessed.outcome is Outcome.UNKNOWN


def test_layers_with_one_head_have_no_interval() -> None:
    assessed = outcome(changes(1.0, 1.3, heads=1))
    assert assessed.outcome is Outcome.UNKNOWN and assessed.evidence is None
    assert assessed.weakest is not None
    assert assessed.weakest.effect == pytest.approx(30.0)


def uneven(*heads: int, label: str = "90%") -> Changes:
    """Even layers with these numbers of heads; the last layer changes three times as much."""
    means = [*[1.0] * (len(heads) - 1), 3.0]
    layers = [
        (mean * (1 + np.linspace(-0.005, 0.005, number))).tolist()
        for mean, number in zip(means, heads, strict=True)
    ]
    return Changes(label=label, components={"ES": layers})


def test_a_layer_without_an_interval_cannot_support_the_claim() -> None:
    """The layer of one head is far outside, and is not left out of the decision."""
    assessed = outcome(uneven(7, 7, 1), uneven(1, 1, label="one head"))
    assert assessed.outcome is Outcome.UNKNOWN
    assert assessed.measurement is not None
    first, second = assessed.measurement.parts
    assert first.name in ("90% ES: layer 1 - layer 0", "90% ES: layer 0 - layer 1")
    assert first.effect == pytest.approx(0, abs=1e-9)
    assert first.estimate is not None and first.estimate.interval()[1] == math.inf
    assert second.estimate is None and second.effect == pytest.approx(200)
    text = sentence(assessed)
    assert "or more, n = 14" in text and "inf" not in text.replace("infinite", "")
    assert "one head ES: layer 1 - layer 0: 200.00%; no interval without two layers" in text
    assert "90% ES can refute the claim and not support it" in text
    assert "below 10% in 0 of 2 models" in text


def test_models_without_an_interval_do_not_keep_others_from_refuting_the_claim() -> None:
    assessed = outcome(uneven(7, 1, 7), uneven(1, 1, label="one head"))
    assert assessed.outcome is Outcome.FAILS
    assert assessed.weakest is not None
    assert assessed.weakest.name == "90% ES: layer 2 - layer 0"
    assert assessed.evidence is not None and assessed.evidence.against_outside == 1.0


def test_a_frozen_layer_gives_valid_json() -> None:
    frozen = Changes(label="frozen", components={"ES": [[0.0, 0.0], [1.0, 1.1]]})
    document = claims_document([], changes=[frozen])
    assert "Infinity" not in json_values.render(document)
    assert "inf" not in spreadsheet.render(document).replace("inform", "")
    assert "layer 1 - layer 0: infinite; no interval" in markdown.render(document)


def test_a_layer_is_compared_with_every_other_one() -> None:
    estimates = [MeanDifference(effect=e, error=1.0, freedom=20, n=24) for e in (2.0, 14.0, 3.0)]
    largest = Largest(estimates=estimates, n=36)
    assert largest.effect == 14.0
    assert largest.p_above(10) == pytest.approx(3 * estimates[1].p_above(10))
    assert largest.p_below(20) == pytest.approx(estimates[1].p_below(20))
    low, high = largest.interval()
    assert low < 14.0 < high


@pytest.mark.parametrize("true", [1.0999, 1.1001])
def test_the_level_of_a_ratio_of_two_layers(true: float) -> None:
    random = np.random.default_rng(1)
    wrong = 0
    for _ in range(1500):
        one, other = (
            1 + 0.05 * random.standard_normal(12),
            true * (1 + 0.05 * random.standard_normal(12)),
        )
        estimate = relative_difference(one.tolist(), other.tolist())
        assert estimate is not None
        p_value = estimate.p_above(10) if true < 1.1 else estimate.p_below(10)
        wrong += p_value < SIGNIFICANCE_LEVEL
    assert wrong / 1500 <= most(SIGNIFICANCE_LEVEL, 1500)


def test_the_file_of_the_changes_is_read(tmp_path: Path) -> None:
    model = Changes(label="50%", components={"ES": [[1.0, None, 2.0], [0.5, 0.7, None]]})
    path = tmp_path / "changes.json"
    path.write_text(json_values.render(document([model], title="changes")))
    assert read_changes(path) == [model]
    for content in ({}, {"format": "headprune.changes"}):
        path.write_text(json.dumps(content))
        with pytest.raises(DataError, match="changes of heads"):
            read_changes(path)


@pytest.mark.parametrize(
    ("models", "message"),
    [
        ([], "no model"),
        ({"label": "50%"}, "no model"),
        (["50%"], "a model is no object"),
        ([{"label": "50%"}], "heads is missing"),
        ([{"label": "50%", "heads": None}], "heads is null"),
        ([{"label": "50%", "heads": {}}], "has a component without heads"),
        ([{"label": "50%", "heads": {"ES": [[]]}}], "has a component without heads"),
        ([{"label": "50%", "heads": {"ES": [["much"]]}}], "heads is "),
        ([{"label": "50%", "heads": {"ES": "heads"}}], "heads is "),
    ],
)
def test_damaged_changes_are_one_clear_line(models: object, message: str, tmp_path: Path) -> None:
    path = tmp_path / "changes.json"
    path.write_text(json.dumps({"format": "headprune.changes", "models": models}))
    with pytest.raises(DataError, match=f"{path}: not changes of heads: .*{message}") as caught:
        read_changes(path)
    assert "\n" not in str(caught.value)
