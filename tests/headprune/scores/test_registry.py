"""Scores by registration: a toy score from outside, checks, and what follows from an entry."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import pytest

from headprune import UsageError
from headprune.scores import registry
from headprune.scores.names import (
    TAKE_LONG,
    all_scores,
    keep_of,
    needs_data,
    require_known,
    scores_by_default,
)
from headprune.scores.parts import parts_of
from headprune.scores.registry import Computed, Need, Score, Scoring, register, score_named


def _numbers(scoring: Scoring, names: Sequence[str]) -> Mapping[str, Computed]:
    return {name: Computed(values={"ES": [[0.0]]}) for name in names}


@pytest.fixture
def toy() -> Iterator[Score]:
    registry.registered()
    score = Score(name="toy", meaning="nothing", compute=_numbers, keep="low", needs=frozenset())
    register(score)
    yield score
    registry.SCORES.entries.pop("toy")


def test_what_follows_from_a_registration(toy: Score) -> None:
    assert score_named("toy") is toy
    assert "toy" in all_scores()
    assert keep_of("toy") == "low"
    assert not needs_data("toy")
    assert parts_of(["toy"]) == ()
    require_known(["toy", "gradient", "combination"])


def test_scores_that_take_long_are_known_and_not_computed_by_default() -> None:
    require_known(TAKE_LONG)
    assert set(TAKE_LONG) == {"ablation", "alone", "movement", "shapley"}
    assert not set(TAKE_LONG) & set(scores_by_default())


def test_a_score_is_registered_once(toy: Score) -> None:
    register(toy)
    with pytest.raises(UsageError, match="two scores called toy"):
        register(Score(name="toy", meaning="something else", compute=_numbers))
    with pytest.raises(UsageError, match="keep is 'most'"):
        register(Score(name="toy2", meaning="", compute=_numbers, keep="most"))


def test_every_function_of_a_score_can_be_imported() -> None:
    for score in registry.registered().values():
        assert callable(score.function())


def test_directions_and_needs() -> None:
    known = registry.registered()
    low = {"entropy", "alone", "layer-contribution", "layer-output-similarity"}
    assert {name for name, score in known.items() if score.keep == "low"} == low
    assert {name for name, score in known.items() if not score.needs} == {"magnitude", "random"}
    assert all(Need.DATA in score.needs for score in known.values() if score.needs)
    assert known["next"].components == ("ES",)
    assert parts_of(["gradient", "ablation"]) == ("scoring", "ablation")


def test_an_unknown_score() -> None:
    with pytest.raises(UsageError, match="there is no score 'gradeint'; there are gradient, "):
        require_known(["gradeint"])
