"""Plans from scores, and score files."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headprune import DataError, HeadPlan, PruningPlan, UsageError, select
from headprune.budget import Budget
from headprune.scores import HeadScores
from headprune.select.score import counts_from

ES = [[0.1, 0.4, 0.3], [0.9, 0.2, 0.8]]
DS = [[0.5, 0.0, 0.6], [0.05, 0.07, 0.06]]
SCORES = HeadScores(
    name="gradient",
    values={"ES": ES, "DS": DS},
    model="some/model",
    fingerprint="f00",
    data="glue.sst2",
    settings={"examples": 3},
)


def kept(plan: HeadPlan) -> dict[str, tuple[tuple[int, ...], ...]]:
    return dict(plan.kept)


@given(st.floats(-0.1, 1.0), st.integers(0, 3))
def test_a_threshold_prunes_the_units_below_it(threshold: float, at_least: int) -> None:
    counts = counts_from(SCORES, threshold, at_least=at_least)
    plan = select.by_score(SCORES, per_layer=counts, at_least=at_least)
    for name, layers in SCORES.values.items():
        for values, found in zip(layers, plan.kept[name], strict=True):
            above = {number for number, value in enumerate(values) if value >= threshold}
            assert above == {*found} or (above < {*found} and len(found) == at_least)


def test_thresholds_are_for_high_scores_and_for_what_a_plan_keeps() -> None:
    with pytest.raises(UsageError, match="entropy is best where it is low; give --percent"):
        counts_from(replace(SCORES, name="entropy"), 0.5)
    within = PruningPlan(kept={"ES": [(0,), (1, 2)], "DS": [(0,), (0,)]}, units=SCORES.units)
    assert counts_from(SCORES, 0.3, within=within) == {"ES": [1, 1], "DS": [1, 1]}
    assert counts_from(SCORES, 0.3, at_least=0, within=within) == {"ES": [0, 1], "DS": [1, 0]}


@pytest.mark.parametrize(
    ("request_", "expected"),
    [
        # 6 of 12: 0.9 0.8 0.6 0.5 0.4, and the best of the top layer of DS that must keep one
        (dict(percent=50), {"ES": ((1,), (0, 2)), "DS": ((0, 2), (1,))}),
        (dict(percent=50, at_least=0), {"ES": ((1, 2), (0, 2)), "DS": ((0, 2), ())}),
        (
            dict(percent=50, keep="low"),
            {"ES": ((0,), (1,)), "DS": ((1,), (0, 1, 2))},
        ),
        (dict(per_layer=1), {"ES": ((1,), (0,)), "DS": ((2,), (1,))}),
        (dict(per_layer=0), {"ES": ((), ()), "DS": ((), ())}),
        (dict(per_layer={"ES": "12"}), {"ES": ((1,), (0, 2)), "DS": ((0, 1, 2), (0, 1, 2))}),
        (dict(per_layer={"DS": 2}), {"ES": ((0, 1, 2), (0, 1, 2)), "DS": ((2,), (1,))}),
        (
            dict(per_layer={"DS": 2}, at_least=0),
            {"ES": ((0, 1, 2), (0, 1, 2)), "DS": ((0, 2), ())},
        ),
        (
            dict(per_layer={"ES": "00", "DS": 3}),
            {"ES": ((), ()), "DS": ((0, 2), (1,))},
        ),
        (dict(percent=0), {"ES": ((0, 1, 2), (0, 1, 2)), "DS": ((0, 1, 2), (0, 1, 2))}),
    ],
)
def test_the_best_heads_stay(request_, expected):
    assert kept(select.by_score(SCORES, **request_)) == expected


def test_equal_scores_stay_in_the_order_of_their_places():
    scores = HeadScores(name="flat", values={"ES": [[1.0] * 4, [1.0] * 4]})
    assert kept(select.by_score(scores, percent=50)) == {"ES": ((0, 1, 2), (0,))}
    assert kept(select.by_score(scores, per_layer=2, keep="low")) == {"ES": ((0, 1), (0, 1))}


def test_a_layer_without_heads_stays_so_where_its_component_is_not_named():
    values = {"ES": [[None] * 3, [0.1, 0.2, 0.3]], "DS": DS}
    scores = HeadScores(name="gradient", values=values)
    assert kept(select.by_score(scores, per_layer={"DS": 2}))["ES"] == ((), (0, 1, 2))


def test_a_layer_without_heads_is_not_asked_for_one() -> None:
    values = {"ES": [[None] * 3, [0.1, 0.2, 0.3]], "DS": DS}
    scores = HeadScores(name="gradient", values=values)
    assert kept(select.by_score(scores, per_layer={"ES": 2}))["ES"] == ((), (1, 2))
    with pytest.raises(UsageError, match="ES: layer 0 has 0 heads, at_least asks for 1"):
        select.by_score(scores, per_layer={"ES": 2}, at_least=1)


def test_steps_stay_within_what_is_left():
    first = select.by_score(SCORES, percent=25)
    values = {
        name: [
            [1.0 - v if head in first.kept[name][layer] else None for head, v in enumerate(row)]
            for layer, row in enumerate(rows)
        ]
        for name, rows in SCORES.values.items()
    }
    rescored = HeadScores(name="gradient", values=values)
    second = select.by_score(rescored, percent=50)
    assert second.is_within(first) and second.percent_pruned == 50
    with pytest.raises(UsageError, match="has no number for some of the heads"):
        select.by_score(rescored, percent=50, within=HeadPlan.full(SCORES.heads))


@given(
    rows=st.lists(
        st.lists(st.floats(-1e3, 1e3, allow_nan=False), min_size=4, max_size=4),
        min_size=1,
        max_size=4,
    ),
    percent=st.integers(0, 100),
    keep=st.sampled_from(["high", "low"]),
)
def test_no_pruned_head_is_better_than_a_kept_one(rows, percent, keep):
    scores = HeadScores(name="any", values={"ES": rows})
    plan = select.by_score(scores, percent=percent, keep=keep, at_least=0)
    sign = 1 if keep == "high" else -1
    stay = [sign * rows[i][h] for i, layer in enumerate(plan.kept["ES"]) for h in layer]
    go = [
        sign * value
        for i, row in enumerate(rows)
        for h, value in enumerate(row)
        if h not in plan.kept["ES"][i]
    ]
    assert not stay or not go or min(stay) >= max(go)
    assert len(go) == int(len(stay + go) * percent / 100 + 0.5)


@pytest.mark.parametrize(
    ("request_", "message"),
    [
        (dict(percent=50, keep="best"), "keep is 'best', it is one of high, low"),
        (dict(), "give either a percentage or the heads to keep"),
        (dict(percent=50, per_layer=1), "give either a percentage or the heads to keep"),
        (dict(per_layer=4), "ES: layer 0 asks for 4 heads, the model has 3"),
        (dict(percent=90), "one head in every layer makes 4, but only 1 are to stay"),
        (
            dict(per_layer={"DS": 1}),
            "DS: one head in every layer makes 2, but only 1 are to stay; at_least 0",
        ),
        (dict(per_layer={"DS": 3}, at_least=2), "DS: at_least=2 keeps 4 heads, but only 3"),
        (dict(per_layer={"DS": "31"}, at_least=2), "DS: layer 1 asks for 1 heads, at_least for 2"),
        (dict(per_layer=1, at_least=2), "ES: layer 0 asks for 1 heads, at_least for 2"),
        (dict(percent=5, within=HeadPlan.full({"ES": (3,)})), "ES: the plan is for 1 layers"),
    ],
)
def test_what_cannot_be_had(request_, message):
    with pytest.raises(UsageError, match=message):
        select.by_score(SCORES, **request_)


def test_round_trip(tmp_path: Path):
    values = {"ES": ES, "DS": [[None, 0.0, 0.6], [None] * 3]}
    scores = HeadScores(name="gradient", values=values, settings={"normalised": "l2 per layer"})
    scores.save(tmp_path / "scores.json")
    assert HeadScores.load(tmp_path / "scores.json") == scores
    assert kept(scores.scored) == {"ES": ((0, 1, 2), (0, 1, 2)), "DS": ((1, 2), ())}


@pytest.mark.parametrize(
    ("settings", "name"),
    [({}, "gradient-raw"), ({"normalised": "l2 per layer"}, "gradient")],
    ids=["as computed", "normalised"],
)
def test_gradient_of_an_old_file_is_called_what_it_is_now(settings, name, tmp_path: Path):
    path = tmp_path / "gradient.json"
    HeadScores(name="gradient", values={"ES": ES}, settings=settings).save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | {"version": 1}))
    assert HeadScores.load(path).name == name


def test_normalised_layers_have_length_one_and_nothing_stays_nothing():
    scores = HeadScores(name="any", values={"ES": [[3.0, 4.0, None], [0.0, 0.0, 0.0]]})
    assert scores.normalised().values["ES"] == ((0.6, 0.8, None), (0.0, 0.0, 0.0))
    assert scores.normalised().settings == {"normalised": "l2 per layer"}


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_number_that_is_none(value):
    with pytest.raises(DataError, match="entropy: ES: layer 1: head 0 is (nan|inf)"):
        HeadScores(name="entropy", values={"ES": [[1.0], [value]]})


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "headprune.plan"}, "not a score file"),
        ({"version": 3}, "scores of version 3, this headprune reads 2"),
        ({"values": {"XY": [[1.0]]}}, "not a whole score file .XY: unknown component"),
        ({"values": {"ES": [["a"]]}}, "not a whole score file"),
        ({"values": None}, "not a whole score file"),
    ],
)
def test_a_file_that_makes_no_sense(change, message, tmp_path: Path):
    path = tmp_path / "scores.json"
    SCORES.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=message) as caught:
        HeadScores.load(path)
    assert str(caught.value).startswith(f"{path}: ") and "\n" not in str(caught.value)


def test_under_a_cost_heads_and_neurons_compete_by_score_for_each_unit_of_cost() -> None:
    values = {"ES": [[10.0, 30.0]], "EF": [[1.0, 2.0, 4.0, 5.0]]}
    scores = HeadScores(name="fisher", values=values)

    def cost(plan: PruningPlan) -> int:
        return 10 * sum(plan.counts["ES"]) + sum(plan.counts["EF"])

    # For each unit of cost the heads have 1 and 3, the neurons 1, 2, 4 and 5.
    options = dict(budget=Budget(50, "flops"), cost=cost, at_least=0)
    assert kept(select.by_score(scores, **options)) == {"ES": ((1,),), "EF": ((2, 3),)}
    options["budget"] = Budget(40, "flops")
    assert kept(select.by_score(scores, **options)) == {"ES": ((1,),), "EF": ((1, 2, 3),)}


def test_a_score_on_several_scales_ranks_one_kind_of_units_alone() -> None:
    values = {"ES": [[0.6, 0.8]], "EF": [[0.6, 0.8]]}
    scores = HeadScores(name="gradient", values=values, settings={"normalised": "layer"})
    with pytest.raises(UsageError, match="heads, neurons and layers are not on one scale"):
        select.by_score(scores, percent=50, at_least=0)
    heads = scores.of_components(["ES"])
    assert kept(select.by_score(heads, percent=50)) == {"ES": ((1,),)}
