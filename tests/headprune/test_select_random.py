"""Heads kept at random."""

from __future__ import annotations

import hashlib
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headprune import HeadPlan, UsageError, select
from headprune.components import HEADS

from . import paper
from .strategies import ALL, BASE, BERT, Shape, junk, plans, shapes

seeds = st.integers(-(10**12), 10**12)
percentages = (
    st.floats(0, 100) | st.integers(0, 100) | st.integers(0, 1000).map(lambda tenths: tenths / 10)
)


# What a seed gives is for ever: plans are named by their seeds in published results. If one of
# these fails, the code is wrong, not the test. A layer's heads are written as digits.
PINNED: list[tuple[dict[str, Any], dict[str, str]]] = [
    (
        {"percent": 75, "seed": 1},
        {
            "ES": "3 237 7 124 15 1",
            "ED": "023 6 - 013457 14 0",
            "DS": "235 4 01256 - 2 36",
        },
    ),
    (
        {"percent": 75, "seed": 2},
        {
            "ES": "3 2 0247 06 5 0",
            "ED": "15 - 7 07 057 3",
            "DS": "016 7 46 0136 04 23467",
        },
    ),
    (
        {"percent": 75, "seed": 3},
        {
            "ES": "267 0 12 136 157 0123",
            "ED": "2 7 0235 4 - 167",
            "DS": "2 27 7 03 15 01",
        },
    ),
    (
        {"percent": 75, "seed": 1, "at_least": 1},
        {
            "ES": "3 237 7 124 15 1",
            "ED": "023 6 4 0145 14 0",
            "DS": "235 4 01256 6 2 36",
        },
    ),
    (
        {"keep": {"ES": 14, "ED": 31, "DS": 30}, "seed": 1},
        {
            "ES": "3 0237 7 1245 015 1",
            "ED": "01234 02367 03456 0134567 134 013567",
            "DS": "023457 02346 0123456 046 2356 23567",
        },
    ),
    (
        {"keep": {"ES": "888444", "ED": "444888", "DS": "888444"}, "seed": 1},
        {
            "ES": "01234567 01234567 01234567 1245 0145 0146",
            "ED": "0123 0267 3456 01234567 01234567 01234567",
            "DS": "01234567 01234567 01234567 0456 2356 2367",
        },
    ),
]


@pytest.mark.parametrize(("options", "expected"), PINNED)
def test_a_seed_gives_the_plan_it_always_gave(
    options: dict[str, Any], expected: dict[str, str]
) -> None:
    plan = select.at_random(BASE, **options)
    written = {
        name: " ".join("".join(map(str, layer)) or "-" for layer in layers)
        for name, layers in plan.kept.items()
    }
    assert written == expected


def test_a_seed_gives_the_plan_it_always_gave_for_bert() -> None:
    plan = select.at_random(BERT, percent=90, seed=7)
    assert plan.kept["ES"] == (
        *((), (3, 4), (3, 4), (1, 4), (), (2,)),
        *((4,), (5,), (4,), (0, 1, 10), (8,), ()),
    )


def digest(seed: int, head: tuple[str, int, int]) -> str:
    component, layer, number = head
    return hashlib.sha256(f"headprune:{seed}:{component}:{layer}:{number}".encode()).hexdigest()


def test_the_lot_is_the_sha256_of_the_heads_place() -> None:
    # printf headprune:1:ES:0:0 | sha256sum
    expected = "a0b0aff5eb94a9256493c727c021ffed63168550a4599722fb816c501c1e1171"
    assert digest(1, ("ES", 0, 0)) == expected


@given(shapes(), seeds, st.data())
def test_those_with_the_smallest_lots_stay(shape: Shape, seed: int, data: st.DataObject) -> None:
    """The plain reference: sort all heads by their digest, keep the first."""
    heads = [
        (name, layer, head)
        for name, layers in shape.items()
        for layer, total in enumerate(layers)
        for head in range(total)
    ]
    pruned = data.draw(st.integers(0, len(heads)))
    plan = select.at_random(shape, percent=100 * pruned / len(heads), seed=seed)
    stay = sorted(heads, key=lambda head: digest(seed, head))[: len(heads) - pruned]
    assert {head for head in heads if head[2] in plan.kept[head[0]][head[1]]} == set(stay)


@given(shapes(), percentages, seeds)
def test_a_percentage_is_the_nearest_whole_number_of_heads(
    shape: Shape, percent: float, seed: int
) -> None:
    plan = select.at_random(shape, percent=percent, seed=seed)
    pruned = plan.total - plan.total_kept
    asked = Fraction(str(percent)) * plan.total / 100
    assert -Fraction(1, 2) < pruned - asked <= Fraction(1, 2)
    assert plan.units == shape


@pytest.mark.parametrize(
    ("percent", "total", "pruned"),
    [
        (0, 144, 0),
        (100, 144, 144),
        (25, 144, 36),
        (75, 144, 108),
        (50, 5, 3),  # a half is pruned
        (12.5, 4, 1),
        (37.5, 4, 2),
        (12.4, 4, 0),
        (0.1, 500, 1),  # binary fractions would have it a little more or less than a half
        (0.3, 500, 2),
        (0.7, 500, 4),
        (Fraction(50, 3), 3, 1),  # half a head exactly
        (np.float32(33.3), 10, 3),
    ],
)
def test_percentages_and_heads(percent: float, total: int, pruned: int) -> None:
    plan = select.at_random({"ES": (total,)}, percent=percent, seed=1)
    assert plan.total - plan.total_kept == pruned


def test_the_percentage_is_of_the_whole_model() -> None:
    plan = select.at_random(BASE, percent=75, seed=1)
    assert (plan.total_kept, plan.percent_pruned) == (36, 75.0)
    assert str(plan) == "ES=131321 ED=310621 DS=315012"  # not 12 in each component


@given(shapes(), seeds, st.data())
def test_keep_gives_exactly_what_it_says(shape: Shape, seed: int, data: st.DataObject) -> None:
    wanted = {name: tuple(data.draw(st.integers(0, n)) for n in shape[name]) for name in shape}
    kinds = {name: data.draw(st.sampled_from(["all", "total", "list", "text"])) for name in shape}
    written: dict[str, dict[str, Any]] = {
        "total": {name: sum(counts) for name, counts in wanted.items()},
        "list": {name: list(counts) for name, counts in wanted.items()},
        "text": {name: ",".join(map(str, counts)) + "," for name, counts in wanted.items()},
    }
    keep = {name: written[kind][name] for name, kind in kinds.items() if kind != "all"}
    plan = select.at_random(shape, keep=keep, seed=seed)
    for name, kind in kinds.items():
        if kind == "all":
            assert plan.counts[name] == shape[name]
        elif kind == "total":
            assert sum(plan.counts[name]) == sum(wanted[name])
        else:
            assert plan.counts[name] == wanted[name]
        if kind != "all":  # what one component gets does not depend on the others
            alone = select.at_random(shape, keep={name: keep[name]}, seed=seed)
            assert plan.kept[name] == alone.kept[name]


def test_keep_takes_numpys_integers() -> None:
    counts = [np.int64(8)] * 3 + [np.int64(4)] * 3
    plan = select.at_random(BASE, keep={"ES": np.int64(14), "ED": counts}, seed=np.int64(1))
    assert plan == select.at_random(BASE, keep={"ES": 14, "ED": "888444"}, seed=1)


@given(shapes(), seeds, st.integers(0, 12), st.data())
def test_at_least_is_honoured_or_refused(
    shape: Shape, seed: int, at_least: int, data: st.DataObject
) -> None:
    percent = data.draw(st.none() | percentages)
    keep = None
    if percent is None:
        names = data.draw(st.sets(st.sampled_from(sorted(shape))))
        keep = {name: data.draw(st.integers(0, sum(shape[name]))) for name in names}
    layers = [total for name in shape for total in shape[name]]
    try:
        plan = select.at_random(shape, percent=percent, keep=keep, seed=seed, at_least=at_least)
    except UsageError:
        free = select.at_random(shape, percent=percent, keep=keep, seed=seed)
        too_few = free.total_kept < at_least * len(layers) or any(
            sum(free.counts[name]) < at_least * len(shape[name]) for name in keep or ()
        )
        assert at_least > min(layers) or too_few
        return
    assert min(min(counts) for counts in plan.counts.values()) >= at_least
    free = select.at_random(shape, percent=percent, keep=keep, seed=seed)
    assert plan.total_kept == free.total_kept
    if min(min(counts) for counts in free.counts.values()) >= at_least:
        assert plan == free  # it changes nothing where it has nothing to do


@given(shapes(), seeds, percentages, percentages)
def test_pruning_more_with_one_seed_takes_away_further_heads(
    shape: Shape, seed: int, a: float, b: float
) -> None:
    less, more = sorted([a, b])
    small = select.at_random(shape, percent=more, seed=seed)
    assert small.is_within(select.at_random(shape, percent=less, seed=seed))


@given(shapes(), seeds, st.data())
def test_plans_by_component_and_by_layer_are_nested_too(
    shape: Shape, seed: int, data: st.DataObject
) -> None:
    few, many = {}, {}
    for name, layers in shape.items():
        pairs = [sorted(data.draw(st.tuples(*[st.integers(0, n)] * 2))) for n in layers]
        if data.draw(st.booleans()):
            few[name], many[name] = (tuple(column) for column in zip(*pairs, strict=True))
        else:
            few[name], many[name] = (sum(column) for column in zip(*pairs, strict=True))
    small = select.at_random(shape, keep=few, seed=seed)
    assert small.is_within(select.at_random(shape, keep=many, seed=seed))


@given(shapes().flatmap(plans), seeds, percentages)
def test_within_chooses_among_the_heads_of_a_plan(
    pool: HeadPlan, seed: int, percent: float
) -> None:
    number = select.at_random(pool.units, percent=percent, seed=seed).total_kept
    if number > pool.total_kept:
        with pytest.raises(UsageError, match=f"only {pool.total_kept} are left"):
            select.at_random(pool.units, percent=percent, seed=seed, within=pool)
        return
    plan = select.at_random(pool.units, percent=percent, seed=seed, within=pool)
    assert plan.is_within(pool)
    assert plan.total_kept == number  # the percentage stays that of the unpruned model


@given(shapes().flatmap(plans), seeds, st.data())
def test_within_with_counts(pool: HeadPlan, seed: int, data: st.DataObject) -> None:
    keep = {
        name: [data.draw(st.integers(0, n)) for n in counts] for name, counts in pool.counts.items()
    }
    plan = select.at_random(pool.units, keep=keep, seed=seed, within=pool)
    assert plan.is_within(pool)
    assert plan.counts == {name: tuple(counts) for name, counts in keep.items()}
    assert select.at_random(pool.units, keep={}, seed=seed, within=pool) == pool


def test_pruning_in_steps_with_one_seed_ends_where_one_step_does() -> None:
    half = select.at_random(BASE, percent=50, seed=5)
    assert select.at_random(BASE, percent=75, seed=5, within=half) == select.at_random(
        BASE, percent=75, seed=5
    )


def test_every_seed_gives_another_plan_and_every_head_the_same_chance() -> None:
    shape = {"ES": (4, 4, 4), "DS": (4,)}
    chosen = [select.at_random(shape, percent=50, seed=seed) for seed in range(400)]
    kept = [
        sum(head in plan.kept[name][layer] for plan in chosen)
        for name, layers in shape.items()
        for layer, total in enumerate(layers)
        for head in range(total)
    ]
    # Mean 200, standard deviation 10; the seeds are fixed, so this does not vary.
    assert min(kept) > 160 and max(kept) < 240
    assert len(set(chosen)) > 390


def test_the_order_of_the_components_does_not_matter() -> None:
    turned = dict(reversed(BASE.items()))
    assert select.at_random(turned, percent=60, seed=3) == select.at_random(
        BASE, percent=60, seed=3
    )


# --- what cannot be had ---------------------------------------------------------------------

TWO = {"ES": (2, 3), "DS": (4,)}
POOL = HeadPlan(kept={"ES": [(0,), (0, 2)], "DS": [(1, 2, 3)]}, heads=TWO)


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        # neither or both
        (BASE, {}, "give either a percentage or the heads to keep, one of the two"),
        (
            BASE,
            {"percent": 50, "keep": {"ES": 3}},
            "give either a percentage or the heads to keep, one of the two",
        ),
        # percentages
        (BASE, {"percent": -1}, "-1% is not between 0 and 100"),
        (BASE, {"percent": 100.5}, "100.5% is not between 0 and 100"),
        (BASE, {"percent": float("nan")}, "nan% is not between 0 and 100"),
        (BASE, {"percent": float("inf")}, "inf% is not between 0 and 100"),
        (BASE, {"percent": "75"}, "percent is '75', it has to be a number"),
        (BASE, {"percent": True}, "percent is True, it has to be a number"),
        # counts
        (BASE, {"keep": {"ES": "88844"}}, "ES: head counts for 5 layers, the model has 6"),
        (BASE, {"keep": {"ED": [8] * 7}}, "ED: head counts for 7 layers, the model has 6"),
        (BASE, {"keep": {"DS": "889444"}}, "DS: layer 2 asks for 9 heads, the model has 8"),
        (BASE, {"keep": {"DS": [8] * 5 + [-1]}}, "DS: layer 5 asks for -1 heads, the model has 8"),
        (
            BASE,
            {"keep": {"DS": [8] * 5 + [0.5]}},
            "DS: layer 5 asks for 0.5 heads, the model has 8",
        ),
        (BASE, {"keep": {"ES": 49}}, "ES: 49 heads asked for, the model has 48"),
        (BASE, {"keep": {"ES": -1}}, "ES: -1 heads asked for, the model has 48"),
        (
            BASE,
            {"keep": {"ES": "8x6"}},
            "ES: '8x6' is no list of counts; "
            "write one digit a layer (888444), or commas (16,16,12,8,4,4)",
        ),
        (BASE, {"keep": {"ES": 3.5}}, "ES: 3.5 is no number of heads, and not one a layer"),
        (BASE, {"keep": {"ES": None}}, "ES: None is no number of heads, and not one a layer"),
        (BASE, {"keep": {"ES": True}}, "ES: True is no number of heads, and not one a layer"),
        (BASE, {"keep": 14}, "give the heads to keep by component, not 14"),
        # components
        (
            BASE,
            {"keep": {"XX": 3}},
            f"XX: unknown component, it is one of {ALL}",
        ),
        (BERT, {"keep": {"DS": 3}}, "DS: unknown component, it is one of ES"),
        # at_least
        (
            BASE,
            {"percent": 50, "at_least": 9},
            "ES: layer 0 has 8 heads, at_least asks for 9",
        ),
        (
            BASE,
            {"percent": 90, "at_least": 1},
            "all components: at_least=1 keeps 18 heads, but only 14 are to stay; at_least 0 allows "
            "layers without heads",
        ),
        (
            BASE,
            {"keep": {"ED": 5}, "at_least": 1},
            "ED: at_least=1 keeps 6 heads, but only 5 are to stay; at_least 0 allows layers "
            "without heads",
        ),
        (
            BASE,
            {"keep": {"ED": "888044"}, "at_least": 1},
            "ED: layer 3 asks for 0 heads, at_least for 1",
        ),
        (
            {"ES": (8,), "DS": (4, 1)},
            {"keep": {"ES": 4}, "at_least": 2},  # DS is not named, and cannot keep 2 everywhere
            "DS: layer 1 has 1 heads, at_least asks for 2",
        ),
        (
            BASE,
            {"percent": 5, "at_least": -1},
            "at_least is -1, it has to be a whole number from 0",
        ),
        (
            BASE,
            {"percent": 5, "at_least": 1.5},
            "at_least is 1.5, it has to be a whole number from 0",
        ),
        # the seed
        (BASE, {"percent": 5, "seed": 1.0}, "seed is 1.0, it has to be a whole number"),
        (BASE, {"percent": 5, "seed": "1"}, "seed is '1', it has to be a whole number"),
        (BASE, {"percent": 5, "seed": None}, "seed is None, it has to be a whole number"),
        # within
        (
            BASE,
            {"percent": 5, "within": HeadPlan.full(BERT)},
            "ES: the plan is for 12 layers, the model has 6",
        ),
        (TWO, {"percent": 0, "within": POOL}, "0% pruned keeps 9 heads, only 6 are left"),
        (TWO, {"keep": {"ES": 4}, "within": POOL}, "ES: 4 heads asked for, the plan leaves 3"),
        (
            TWO,
            {"keep": {"ES": "13"}, "within": POOL},
            "ES: layer 1 asks for 3 heads, the plan leaves 2",
        ),
        (
            TWO,
            {"keep": {"DS": 2}, "within": POOL, "at_least": 2},
            "ES: layer 0 has 1 heads, at_least asks for 2",
        ),
        # the shape
        (
            {},
            {"percent": 5},
            f"no component given; a model has one or more of {ALL}",
        ),
        ({"ES": (8, 0)}, {"percent": 5}, "ES: layer 1: 0 is no number of heads"),
        (
            {"QQ": (8,)},
            {"percent": 5},
            f"QQ: unknown component, it is one of {ALL}",
        ),
    ],
)
def test_what_cannot_be_had_is_a_usage_error(
    shape: Shape, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        select.at_random(shape, **{"seed": 1, **options})
    assert str(caught.value) == message


@given(
    shapes() | junk(),
    st.fixed_dictionaries(
        {"seed": seeds | junk()},
        optional={
            "percent": percentages | junk(),
            "keep": st.dictionaries(st.sampled_from(HEADS), junk()) | junk(),
            "at_least": st.integers(0, 3) | junk(),
        },
    ),
)
def test_any_arguments_give_a_plan_or_a_usage_error(shape: Any, options: dict[str, Any]) -> None:
    try:
        plan = select.at_random(shape, **options)
    except UsageError:
        return
    assert plan.units == HeadPlan.full(shape).units


# --- the tables of the paper ----------------------------------------------------------------


@pytest.mark.parametrize("row", paper.rows("table1"), ids=lambda row: f"{row['percent']}%")
def test_table_1(row: dict[str, Any]) -> None:
    """144 heads give steps of 0.69%, so 81% is 81.25% and 87% is 86.81%, and so on."""
    plan = select.at_random(BASE, percent=row["percent"], seed=1)
    assert abs(plan.percent_pruned - row["percent"]) <= 50 / 144


@pytest.mark.parametrize("row", paper.rows("table4"), ids=lambda row: f"{row['percent']}%")
def test_table_4(row: dict[str, Any]) -> None:
    plan = select.at_random(BERT, percent=row["percent"], seed=1)
    assert abs(plan.percent_pruned - row["percent"]) <= 50 / 144


@pytest.mark.parametrize(
    "row", paper.rows("table2"), ids=lambda row: f"{row['ES']}-{row['ED']}-{row['DS']}"
)
def test_table_2(row: dict[str, Any]) -> None:
    """The percentages that table 2 prints are those of its counts, correctly rounded.

    Its 40% is 40.28% (86 of 144 heads stay) and its 60% is 60.42% (57); the others are exact.
    """
    plan = select.at_random(BASE, keep={name: row[name] for name in HEADS}, seed=1)
    assert str(plan) == f"ES={row['ES']} ED={row['ED']} DS={row['DS']}"
    assert round(plan.percent_pruned) == row["percent"]


@pytest.mark.parametrize(
    "row", paper.rows("table3"), ids=lambda row: f"{row['ES']}-{row['ED']}-{row['DS']}"
)
def test_table_3(row: dict[str, Any]) -> None:
    """The percentages that table 3 prints are those of its counts, correctly rounded.

    48% is 47.92% (75 of 144 heads stay), 60% is 59.72% (58), 75% is exact, 82% is 81.94% (26).
    So its 60% is not the same number of heads as table 2's.
    """
    plan = select.at_random(BASE, keep={name: row[name] for name in HEADS}, seed=1)
    assert {name: sum(counts) for name, counts in plan.counts.items()} == {
        name: row[name] for name in HEADS
    }
    assert round(plan.percent_pruned) == row["percent"]


def test_how_many_heads_stay_in_tables_2_and_3() -> None:
    table2 = {row["percent"]: sum(int(d) for name in HEADS for d in row[name])
              for row in paper.rows("table2")}  # fmt: skip
    table3 = {row["percent"]: sum(row[name] for name in HEADS) for row in paper.rows("table3")}
    assert table2 == {0: 144, 25: 108, 40: 86, 50: 72, 60: 57, 75: 36}
    assert table3 == {0: 144, 48: 75, 60: 58, 75: 36, 82: 26}
