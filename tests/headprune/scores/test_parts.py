"""Examples for scores and examples for the ablation that judges them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headprune.scores.parts import ABLATION, FEWEST, PARTS, SCORING, in_parts, parts_of


@given(st.lists(st.integers(), unique=True, min_size=FEWEST, max_size=50))
def test_every_example_is_in_one_part(examples: list[int]) -> None:
    parts = in_parts(examples)
    assert [*parts[SCORING], *parts[ABLATION]] == examples
    assert len(parts[SCORING]) - len(parts[ABLATION]) in (0, 1)


def test_too_few_examples_are_not_divided() -> None:
    assert in_parts([2, 1, 3]) == {SCORING: [2, 1, 3], ABLATION: [2, 1, 3]}


@pytest.mark.parametrize(
    ("names", "weights", "parts"),
    [
        (["random", "magnitude"], {}, ()),
        (["random", "gradient"], {}, (SCORING,)),
        (["alone"], {}, (ABLATION,)),
        (["ablation", "entropy"], {}, PARTS),
        (["combination"], {"entropy": 1.0, "magnitude": 1.0}, (SCORING,)),
        (["combination"], {"magnitude": 1.0}, ()),
        (["combination", "entropy"], {"ablation": 1.0}, PARTS),
    ],
)
def test_the_parts_that_scores_are_computed_on(
    names: list[str], weights: dict[str, float], parts: tuple[str, ...]
) -> None:
    assert parts_of(names, weights) == parts
