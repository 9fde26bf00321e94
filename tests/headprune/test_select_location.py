"""Heads pruned by where their layer stands."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headprune import HeadPlan, UsageError, select

from . import paper
from .strategies import ALL, BASE, BERT, Shape, junk, shapes


def pruned_layers(plan: HeadPlan, component: str = "ES") -> list[int]:
    """The layers that lost all heads; the others must have lost none."""
    layers = zip(plan.kept[component], plan.units[component], strict=True)
    gone = []
    for layer, (kept, total) in enumerate(layers):
        assert kept in ((), tuple(range(total)))
        if not kept:
            gone.append(layer)
    return gone


@pytest.mark.parametrize(
    ("text", "layers"),
    [
        ("none", []),
        ("top 0", []),
        ("top 1", [11]),
        ("bottom 1", [0]),
        ("top 12", list(range(12))),
        ("middle 2", [5, 6]),
        ("middle 3", [4, 5, 6]),  # cannot be symmetric: the lower ones
        ("middle 1", [5]),
        ("middle 12", list(range(12))),
        ("odd", [0, 2, 4, 6, 8, 10]),  # the 1st, 3rd, ... layer
        ("even", [1, 3, 5, 7, 9, 11]),
        ("odd 6", [0, 2, 4, 6, 8, 10]),
        ("even6", [1, 3, 5, 7, 9, 11]),
        ("0,2,4", [0, 2, 4]),
        ("3-5", [3, 4, 5]),
        ("4-4", [4]),
        ("0, 2-4 ,11", [0, 2, 3, 4, 11]),
        ("layers 0,2", [0, 2]),
        ("layer 7", [7]),
        ("7,7,7", [7]),
        ("top 3 + bottom 3", [0, 1, 2, 9, 10, 11]),
        ("top 3+bottom 3", [0, 1, 2, 9, 10, 11]),
        ("TOP 1 + Odd", [0, 2, 4, 6, 8, 10, 11]),
        ("top 1 + middle 2 + 0,3 + bottom 1", [0, 3, 5, 6, 11]),
        ("top 8 + bottom 8", list(range(12))),  # they overlap
        ("none + top 1", [11]),
    ],
)
def test_of_twelve_layers(text: str, layers: list[int]) -> None:
    assert pruned_layers(select.by_location(BERT, prune=text)) == layers


@pytest.mark.parametrize(
    ("depth", "text", "layers"),
    [
        (1, "middle 1", [0]),
        (1, "odd", [0]),
        (1, "even", []),
        (1, "even 0", []),
        (5, "middle 1", [2]),
        (5, "middle 2", [1, 2]),
        (5, "middle 3", [1, 2, 3]),
        (5, "odd 3", [0, 2, 4]),
        (5, "even 2", [1, 3]),
        (6, "middle 2", [2, 3]),
    ],
)
def test_of_other_depths(depth: int, text: str, layers: list[int]) -> None:
    plan = select.by_location({"ES": (3,) * depth}, prune=text)
    assert pruned_layers(plan) == layers


def test_one_text_for_all_components_some_or_each() -> None:
    everywhere = select.by_location(BASE, prune="top 1")
    assert str(everywhere) == "ES=888880 ED=888880 DS=888880"
    some = select.by_location(BASE, prune="top 1", components=["ES", "DS"])
    assert str(some) == "ES=888880 ED=888888 DS=888880"
    none = select.by_location(BASE, prune="top 1", components=[])
    assert none.is_full
    each = select.by_location(BASE, prune={"ES": "top 2 + bottom 1", "ED": "odd"})
    assert str(each) == "ES=088800 ED=080808 DS=888888"


def test_layers_keep_their_own_number_of_heads() -> None:
    plan = select.by_location({"ES": (2, 3, 4)}, prune="bottom 1")
    assert plan.kept["ES"] == ((), (0, 1, 2), (0, 1, 2, 3))
    assert plan.units["ES"] == (2, 3, 4)


READABLE = "it is 'top k', 'bottom k', 'middle k', 'odd', 'even' or layer numbers such as '0,2-4'"


@pytest.mark.parametrize(
    ("shape", "options", "message"),
    [
        (BERT, {"prune": "top 13"}, "ES: 'top 13' asks for 13 layers, the model has 12"),
        (BASE, {"prune": "middle 7"}, "ES: 'middle 7' asks for 7 layers, the model has 6"),
        (
            {"ES": (8,) * 6, "DS": (8,) * 2},
            {"prune": "top 3"},
            "DS: 'top 3' asks for 3 layers, the model has 2",
        ),
        (BERT, {"prune": "12"}, "ES: no layer 12, the model has 12 (0 to 11)"),
        (BERT, {"prune": "10-999999999"}, "ES: no layer 999999999, the model has 12 (0 to 11)"),
        (BERT, {"prune": "5-3"}, "ES: '5-3' runs backwards"),
        (BERT, {"prune": "odd 5"}, "ES: 'odd 5', but 6 of 12 layers are odd"),
        (BERT, {"prune": ""}, f"ES: cannot read ''; {READABLE}"),
        (BERT, {"prune": "top 3 +"}, f"ES: cannot read ''; {READABLE}"),
        (BERT, {"prune": "top"}, f"ES: cannot read 'top'; {READABLE}"),
        (BERT, {"prune": "top -1"}, f"ES: cannot read 'top -1'; {READABLE}"),
        (BERT, {"prune": "upper 3"}, f"ES: cannot read 'upper 3'; {READABLE}"),
        (BERT, {"prune": "0,,2"}, f"ES: cannot read '0,,2'; {READABLE}"),
        (BERT, {"prune": "top 3, bottom 3"}, f"ES: cannot read 'top 3, bottom 3'; {READABLE}"),
        (BERT, {"prune": "-1"}, f"ES: cannot read '-1'; {READABLE}"),
        (BERT, {"prune": {"ES": 3}}, f"ES: give the layers as text, not 3; {READABLE}"),
        (BERT, {"prune": [0, 2]}, f"give the layers to prune as text, not [0, 2]; {READABLE}"),
        (
            BERT,
            {"prune": {"XX": "odd"}},
            f"XX: unknown component, it is one of {ALL}",
        ),
        (BERT, {"prune": {"DS": "odd"}}, "DS: unknown component, it is one of ES"),
        (
            BERT,
            {"prune": "odd", "components": ["XX"]},
            f"XX: unknown component, it is one of {ALL}",
        ),
        (
            BERT,
            {"prune": {"ES": "odd"}, "components": ["ES"]},
            "components are given twice: as keys of prune and as components",
        ),
        (
            {},
            {"prune": "odd"},
            f"no component given; a model has one or more of {ALL}",
        ),
    ],
)
def test_what_cannot_be_had_is_a_usage_error(
    shape: Shape, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(UsageError) as caught:
        select.by_location(shape, **options)
    assert str(caught.value) == message


@given(shapes(), st.data())
def test_top_and_bottom_leave_the_middle(shape: Shape, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(shape)))
    depth = len(shape[name])
    k = data.draw(st.integers(0, depth // 2))
    outer = pruned_layers(select.by_location(shape, prune={name: f"top {k}+bottom {k}"}), name)
    inner = pruned_layers(select.by_location(shape, prune={name: f"middle {depth - 2 * k}"}), name)
    assert sorted(outer + inner) == list(range(depth))
    odd = pruned_layers(select.by_location(shape, prune={name: "odd"}), name)
    even = pruned_layers(select.by_location(shape, prune={name: "even"}), name)
    assert sorted(odd + even) == list(range(depth))


@given(shapes(), st.data())
def test_layer_numbers_are_what_they_say(shape: Shape, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(shape)))
    layers = data.draw(st.sets(st.integers(0, len(shape[name]) - 1), min_size=1))
    text = ",".join(map(str, layers))
    plan = select.by_location(shape, prune=text, components=[name])
    assert pruned_layers(plan, name) == sorted(layers)
    assert all(pruned_layers(plan, other) == [] for other in shape if other != name)


words = st.sampled_from(["top", "bottom", "middle", "odd", "even", "layers", "none"])
pieces = words | st.sampled_from("+,- ") | st.integers(0, 14).map(str)


@given(
    shapes() | junk(),
    st.lists(pieces, max_size=8).map("".join) | st.text(max_size=10) | junk(),
)
def test_any_text_gives_a_plan_or_a_usage_error(shape: Any, prune: Any) -> None:
    try:
        plan = select.by_location(shape, prune=prune)
    except UsageError:
        return
    for name in shape:
        pruned_layers(plan, name)


@pytest.mark.parametrize("text", ["top " + "1" * 5000, "1" * 5000, "0-" + "1" * 5000])
def test_a_number_of_thousands_of_digits(text: str) -> None:
    with pytest.raises(UsageError, match="cannot read"):
        select.by_location(BERT, prune=text)


# --- the tables of the paper ----------------------------------------------------------------

TABLES_5_AND_6 = {
    "none": [],
    "top 1": [11],
    "bottom 1": [0],
    "top 3": [9, 10, 11],
    "bottom 3": [0, 1, 2],
    "top 6": [6, 7, 8, 9, 10, 11],
    "bottom 6": [0, 1, 2, 3, 4, 5],
    "top 8": [4, 5, 6, 7, 8, 9, 10, 11],
    "bottom 8": [0, 1, 2, 3, 4, 5, 6, 7],
    "top 1 + bottom 1": [0, 11],
    "middle 2": [5, 6],
    "top 2 + bottom 2": [0, 1, 10, 11],
    "middle 4": [4, 5, 6, 7],
    "top 3 + bottom 3": [0, 1, 2, 9, 10, 11],
    "middle 6": [3, 4, 5, 6, 7, 8],
    "top 4 + bottom 4": [0, 1, 2, 3, 8, 9, 10, 11],
    "middle 8": [2, 3, 4, 5, 6, 7, 8, 9],
    # The paper gives no indices for these two; layers are counted from 1 here.
    "even 6": [1, 3, 5, 7, 9, 11],
    "odd 6": [0, 2, 4, 6, 8, 10],
}


@pytest.mark.parametrize(
    "text", [row["layers"] for table in ("table5", "table6") for row in paper.rows(table)]
)
def test_tables_5_and_6(text: str) -> None:
    plan = select.by_location(BERT, prune=text)
    assert pruned_layers(plan) == TABLES_5_AND_6[text]


def test_all_of_table_6_prunes_half() -> None:
    halves = {select.by_location(BERT, prune=row["layers"]) for row in paper.rows("table6")}
    assert [plan.percent_pruned for plan in halves] == [50.0] * 6
