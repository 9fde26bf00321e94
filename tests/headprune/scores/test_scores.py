"""Score files, significance, combinations and roles, without a model."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from headprune import DataError, UsageError
from headprune.results.significance import holm
from headprune.scores import HeadScores
from headprune.scores.combination import combined, flat
from headprune.scores.names import keep_of
from headprune.scores.registry import registered
from headprune.scores.roles import rarity_of, roles
from headprune.scores.summary import one_is_enough, significance


def scores(name: str, rows: list[list[float | None]], **options: object) -> HeadScores:
    return HeadScores(name=name, values={"ES": rows}, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("given_values", "expected"),
    [
        ([0.01, 0.04, 0.03], [0.03, 0.06, 0.06]),  # worked out by hand
        ([0.01, 0.02, 0.03, 0.04], [0.04, 0.06, 0.06, 0.06]),
        ([0.5, 0.9], [1.0, 1.0]),
        ([], []),
    ],
)
def test_holm(given_values, expected):
    assert holm(given_values) == pytest.approx(expected)


@given(st.lists(st.floats(0, 1), max_size=30))
def test_holm_never_lowers_a_p_value_and_keeps_their_order(values):
    adjusted = holm(values)
    assert all(p <= q <= 1 for p, q in zip(values, adjusted, strict=True))
    order = sorted(range(len(values)), key=values.__getitem__)
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_p_values_are_saved_and_adjusted(tmp_path):
    made = scores(
        "ablation", [[1.0, 2.0], [None, 3.0]], p_values={"ES": [[0.01, 0.04], [None, 0.03]]}
    )
    made.save(tmp_path / "s.json")
    again = HeadScores.load(tmp_path / "s.json")
    assert again == made
    (first, second), (third, fourth) = again.adjusted_p_values["ES"]
    assert third is None
    assert (first, second, fourth) == pytest.approx((0.03, 0.06, 0.06))


def test_p_values_of_other_heads_are_refused():
    with pytest.raises(DataError, match="not a p-value for each number"):
        scores("ablation", [[1.0, 2.0]], p_values={"ES": [[0.1, None]]})


def test_a_signature_says_what_the_numbers_are_of():
    made = scores(
        "ablation", [[1.0]], data="glue.sst2.train[5]", settings={"metric": "loss", "base": 1.0}
    )
    assert made.signature.startswith("score:ablation|metric:loss|data:glue.sst2.train[5]|weights:")


def test_combination_is_the_weighted_sum_of_standardised_scores():
    parts = {
        "entropy": scores("entropy", [[1.0, 3.0], [None, 5.0]]),
        "sparsity": scores("sparsity", [[0.2, 0.2], [None, 0.2]]),
        "hoyer": scores("hoyer", [[30.0, 10.0], [None, 50.0]]),
    }
    made = combined(parts, {"entropy": -1, "sparsity": 5, "hoyer": 2})
    sd = (8 / 3) ** 0.5  # of 1, 3, 5
    assert list(flat(made).values()) == pytest.approx([2 / sd, -4 / sd, (-2 + 4) / sd])
    assert made.settings == {"combines": "entropy=-1,sparsity=5,hoyer=2"}
    assert made.values["ES"][1][0] is None


def test_the_signature_of_a_combination_has_its_weights_and_common_settings():
    own = {"labels": "own", "metric": "loss"}
    parts = {
        "taylor": scores("taylor", [[1.0, 2.0]], settings={**own, "part": "scoring"}),
        "fisher": scores("fisher", [[1.0, 2.0]], settings={**own, "part": "ablation"}),
        "entropy": scores("entropy", [[1.0, 2.0]], settings={"half_widths": {}}),
    }
    made = combined(parts, {"taylor": 0.125, "fisher": 1.0, "entropy": -2.0})
    start = "score:combination|combines:taylor=0.125,fisher=1,entropy=-2|metric:loss|labels:own|"
    assert made.signature.startswith(f"{start}data:")
    assert combined(parts, {"taylor": 1.0}).signature != combined(parts, {"fisher": 1.0}).signature


def test_what_cannot_be_combined():
    one, two = scores("entropy", [[1.0, 2.0]]), scores("hoyer", [[1.0, 2.0]], fingerprint="f")
    for parts, weights, message in (
        ({"entropy": one}, {"hoyer": 1.0}, "there is no score hoyer to combine"),
        ({"entropy": one}, {"entropy": 0.0}, "weight other than 0"),
    ):
        with pytest.raises(UsageError, match=message):
            combined(parts, weights)
    other = HeadScores(name="next", values={"ED": [[1.0, 2.0]]})
    with pytest.raises(DataError, match="not scores of the same components"):
        combined({"entropy": one, "next": other}, {"entropy": 1.0, "next": 1.0})
    none = scores("entropy", [[None, None]])
    with pytest.raises(DataError, match="no heads to score"):
        combined({"entropy": none}, {"entropy": 1.0})
    with pytest.raises(DataError, match="of different models"):
        combined({"entropy": one, "hoyer": two}, {"entropy": 1.0, "hoyer": 1.0})


def test_every_score_says_which_heads_to_keep():
    low = {"entropy", "alone", "layer-contribution", "layer-output-similarity"}
    assert {name for name in registered() if keep_of(name) == "low"} == low


def test_the_rarest_token_is_no_separator_and_no_padding():
    tokens = torch.tensor([[0, 5, 6, 6, 2], [0, 6, 7, 2, -1]])  # 0 and 2 stand for no text
    rarity = rarity_of([tokens], special=frozenset({0, 2}))
    assert rarity(tokens).argmin(-1).tolist() == [1, 2]


def test_roles_of_known_attention():
    keys = torch.tensor([[0, 5, 6, 2]])
    weights = torch.zeros(1, 4, 4, 4)
    for t in range(4):
        weights[0, 0, t, max(t - 1, 0)] = 1  # the token before
        weights[0, 1, t, min(t + 1, 3)] = 1  # the token after
        weights[0, 2, t, 3] = 1  # the last, a separator
        weights[0, 3, t, 2] = 1  # the rarest
    rarity = rarity_of([keys, torch.tensor([[0, 5, 5, 2]])], special=frozenset({0, 2}))
    found = {
        role: values.mean(-1)[0].tolist()
        for role, values in roles(
            weights, keys, (keys == 0) | (keys == 2), component="ES", rarity=rarity
        ).items()
    }
    assert found["previous"] == [0.75, 0, 0, 0.25]
    assert found["same"] == [0.25, 0.25, 0.25, 0.25]
    assert found["next"] == [0, 0.75, 0.25, 0.25]
    assert found["separator"] == [0.5, 0.5, 1, 0]
    assert found["rare"] == [0.25, 0.25, 0, 1]


def test_what_is_said_of_significance_and_of_single_heads():
    made = scores(
        "alone",
        [[0.5, 0.1], [None, 3.0], [-0.2, 4.0]],
        p_values={"ES": [[0.3, 0.2], [None, 0.001], [0.01, 0.01]]},
        settings={"metric": "loss", "base": 1.5},
    )
    assert significance(made) == (
        "3 of 5 heads differ at p < 0.05, 3 after Holm's correction (loss 1.50 without masks; the "
        "largest drop that is not significant is 0.5)"
    )
    assert one_is_enough(made) == (
        "one head is enough in 2 of 3 layers of ES (its drop of 0.1 at most is not significant at "
        "p < 0.05; the best head is chosen on the examples that test it)"
    )
