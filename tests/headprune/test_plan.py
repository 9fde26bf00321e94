"""HeadPlan: what it knows, what it refuses, and its JSON."""

from __future__ import annotations

import copy
import dataclasses
import doctest
import importlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from headprune import COMPONENTS, DataError, HeadPlan, HeadpruneError, UsageError

from .strategies import ALL, BASE, BERT, junk, plans, shapes

SMALL = HeadPlan(kept={"ES": [(0, 2), ()], "DS": [(1,)]}, heads={"ES": (4, 4), "DS": (2,)})
SMALL_JSON = (
    '{"format": "headprune.plan", "version": 1, '
    '"heads": {"ES": [4, 4], "DS": [2]}, "kept": {"ES": [[0, 2], []], "DS": [[1]]}}'
)


def test_a_plan_knows_its_numbers() -> None:
    assert SMALL.kept["ES"] == ((0, 2), ())
    assert SMALL.heads == {"ES": (4, 4), "DS": (2,)}
    assert SMALL.counts == {"ES": (2, 0), "DS": (1,)}
    assert (SMALL.total, SMALL.total_kept, SMALL.percent_pruned) == (10, 3, 70.0)
    assert str(SMALL) == "ES=20 DS=1"
    assert SMALL.signature == "ES=20,DS=1"
    assert not SMALL.is_full


def test_full() -> None:
    plan = HeadPlan.full(BASE)
    assert plan.kept["ED"][5] == (0, 1, 2, 3, 4, 5, 6, 7)
    assert (plan.total, plan.total_kept, plan.percent_pruned, plan.is_full) == (144, 144, 0.0, True)
    assert str(plan) == "ES=888888 ED=888888 DS=888888"
    assert str(HeadPlan.full(BERT)) == "ES=12,12,12,12,12,12,12,12,12,12,12,12"


def test_nothing_kept() -> None:
    plan = HeadPlan(kept={"ES": [(), ()]}, heads={"ES": (4, 4)})
    assert (plan.percent_pruned, str(plan), plan.is_full) == (100.0, "ES=00", False)


def test_equal_plans_are_equal_however_they_are_given() -> None:
    plan = HeadPlan(
        kept={"DS": [np.arange(1, 2).tolist()], "ES": [[np.int64(2), 0], range(0)]},
        heads={"DS": [2], "ES": [np.int64(4), 4]},
    )
    assert plan == SMALL
    assert hash(plan) == hash(SMALL)
    assert str(plan) == str(SMALL)  # components stand in their canonical order
    assert plan.to_json() == SMALL_JSON
    assert {plan, SMALL} == {SMALL}


def test_plans_of_other_shapes_differ() -> None:
    assert HeadPlan(kept={"ES": [(0,)]}, heads={"ES": (1,)}) != HeadPlan(
        kept={"ES": [(0,)]}, heads={"ES": (2,)}
    )


def test_a_plan_cannot_be_changed() -> None:
    kept: dict[str, list[list[int]]] = {"ES": [[0]]}
    heads = {"ES": [2]}
    plan = HeadPlan(kept=kept, heads=heads)
    kept["ES"][0].append(1)
    heads["ES"][0] = 3
    assert (plan.kept, plan.units) == ({"ES": ((0,),)}, {"ES": (2,)})
    with pytest.raises(dataclasses.FrozenInstanceError):
        plan.kept = {}  # type: ignore[misc]
    with pytest.raises(TypeError):
        plan.kept["ES"] = ()  # type: ignore[index]
    with pytest.raises(TypeError):
        plan.units["DS"] = (8,)  # type: ignore[index]
    with pytest.raises(TypeError):
        plan.kept["ES"][0] = (1,)  # type: ignore[index]
    plan.counts["ES"] = (2,)  # a copy
    assert plan.counts == {"ES": (1,)}


@given(plans())
def test_a_plan_travels_to_other_processes(plan: HeadPlan) -> None:
    for twin in (pickle.loads(pickle.dumps(plan)), copy.deepcopy(plan)):
        assert twin == plan
        assert hash(twin) == hash(plan)


@pytest.mark.parametrize(
    ("kept", "heads", "message"),
    [
        (
            {"ES": [(0, 8)]},
            {"ES": (8,)},
            "ES: layer 0 has no head 8, the model has 8 (0 to 7)",
        ),
        (
            {"ES": [(), (-1,)]},
            {"ES": (8, 8)},
            "ES: layer 1 has no head -1, the model has 8 (0 to 7)",
        ),
        (
            {"ES": [(0,)], "DS": [(), (), (0.5,)]},
            {"ES": (8,), "DS": (4, 4, 4)},
            "DS: layer 2 has no head 0.5, the model has 4 (0 to 3)",
        ),
        ({"ES": [(True,)]}, {"ES": (8,)}, "ES: layer 0 has no head True, the model has 8 (0 to 7)"),
        ({"ES": [(1, 2, 1)]}, {"ES": (8,)}, "ES: layer 0 names a head twice"),
        ({"ED": [()] * 5}, {"ED": (8,) * 6}, "ED: kept heads for 5 layers, the model has 6"),
        ({"ED": None}, {"ED": (8,) * 6}, "ED: kept heads for None layers, the model has 6"),
        ({"ES": [3]}, {"ES": (8,)}, "ES: layer 0: 3 is no list of heads"),
        ({"ES": ["01"]}, {"ES": (8,)}, "ES: layer 0: '01' is no list of heads"),
        ({"ES": [{0, 1}]}, {"ES": (8,)}, "ES: layer 0: {0, 1} is no list of heads"),
        ({"ES": [()]}, {"ES": (8,), "DS": (8,)}, "DS: no kept heads are given for this component"),
        ({"ES": [()], "DS": [()]}, {"ES": (8,)}, "DS: no heads are given for this component"),
        ([[0]], {"ES": (8,)}, "give the kept units by component, not [[0]]"),
        ({}, {}, f"no component given; a model has one or more of {ALL}"),
        ({}, [8], f"no component given; a model has one or more of {ALL}"),
        (
            {"XX": [()]},
            {"XX": (8,)},
            f"XX: unknown component, it is one of {ALL}",
        ),
        (
            {"es": [()]},
            {"es": (8,)},
            f"es: unknown component, it is one of {ALL}",
        ),
        ({"ES": []}, {"ES": ()}, "ES: has no layer"),
        ({"ES": [()]}, {"ES": (0,)}, "ES: layer 0: 0 is no number of heads"),
        ({"ES": [(), ()]}, {"ES": (8, -1)}, "ES: layer 1: -1 is no number of heads"),
        ({"ES": [()]}, {"ES": ("8",)}, "ES: layer 0: '8' is no number of heads"),
        ({"ES": [()]}, {"ES": 8}, "ES: give the heads of each layer as a list, not 8"),
        ({"ES": [()]}, {"ES": "8"}, "ES: give the heads of each layer as a list, not '8'"),
    ],
)
def test_what_is_no_plan(kept: Any, heads: Any, message: str) -> None:
    with pytest.raises(UsageError) as caught:
        HeadPlan(kept=kept, heads=heads)
    assert str(caught.value) == message


@given(junk(), junk())
def test_any_values_are_a_plan_or_a_usage_error(kept: Any, heads: Any) -> None:
    try:
        HeadPlan(kept=kept, heads=heads)
    except UsageError:
        return


@given(st.dictionaries(st.sampled_from(["ES", "ED"]), junk(), min_size=1))
def test_any_shape_has_a_full_plan_or_is_a_usage_error(shape: Any) -> None:
    try:
        plan = HeadPlan.full(shape)
    except UsageError:
        return
    assert plan.is_full


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        (BERT, "ES: the plan is for 6 layers, the model has 12"),
        ({**BASE, "DS": (8,) * 7}, "DS: the plan is for 6 layers, the model has 7"),
        (
            {**BASE, "ED": (8, 8, 8, 8, 16, 8)},
            "ED: layer 4: the plan is for 8 heads, the model has 16",
        ),
        ({"ES": (8,) * 6}, "ED: present in the plan but missing from the model"),
    ],
)
def test_a_plan_for_another_shape(shape: dict[str, tuple[int, ...]], message: str) -> None:
    with pytest.raises(UsageError) as caught:
        HeadPlan.full(BASE).require_shape(shape)
    assert str(caught.value) == message


def test_a_plan_may_leave_components_alone() -> None:
    plan = HeadPlan(kept={"ES": [(0,)] * 6}, heads={"ES": (8,) * 6})
    plan.require_shape(BASE)
    completed = plan.completed(BASE)
    assert completed.units == BASE
    assert completed.counts == {"ES": (1,) * 6, "ED": (8,) * 6, "DS": (8,) * 6}
    assert completed.part(["ES"]) == plan


@given(shapes(COMPONENTS).flatmap(plans))
def test_a_plan_is_for_its_own_shape(plan: HeadPlan) -> None:
    plan.require_shape(plan.units)
    plan.require_shape({name: list(layers) for name, layers in plan.units.items()})


def test_is_within() -> None:
    def plan(*kept: tuple[int, ...], heads: int = 4) -> HeadPlan:
        return HeadPlan(kept={"ES": kept}, heads={"ES": (heads,) * len(kept)})

    assert plan((0,), ()).is_within(plan((0, 1), (2,)))
    assert plan((0,), ()).is_within(plan((0,), ()))
    assert not plan((0, 1), ()).is_within(plan((0,), ()))
    assert not plan((0,), ()).is_within(plan((1, 2, 3), (0, 1, 2, 3)))
    assert not plan((0,)).is_within(plan((0,), heads=5))
    assert not plan((0,)).is_within(plan((0,), ()))


@given(shapes().flatmap(lambda shape: st.tuples(plans(shape), plans(shape))))
def test_within_is_a_partial_order(pair: tuple[HeadPlan, HeadPlan]) -> None:
    a, b = pair
    assert a.is_within(a)
    assert a.is_within(HeadPlan.full(a.units))
    assert (a.is_within(b) and b.is_within(a)) == (a == b)


def test_json_is_as_it_was_in_the_first_version() -> None:
    assert SMALL.to_json() == SMALL_JSON
    assert HeadPlan.from_json(SMALL_JSON) == SMALL


@given(shapes(COMPONENTS).flatmap(plans), st.sampled_from([None, 0, 1, 4]))
def test_json_round_trip(plan: HeadPlan, indent: int | None) -> None:
    text = plan.to_json(indent=indent)
    assert HeadPlan.from_json(text) == plan
    assert HeadPlan.from_json(text).to_json() == plan.to_json()


EXPECTED = "; expected a plan, as `headprune plan` writes it"


def changed(**fields: Any) -> str:
    return json.dumps({**json.loads(SMALL_JSON), **fields})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", f"not JSON (Expecting value: line 1 column 1 (char 0)){EXPECTED}"),
        ("ES=888444", f"not JSON (Expecting value: line 1 column 1 (char 0)){EXPECTED}"),
        (
            SMALL_JSON[:-1],
            f"not JSON (Expecting ',' delimiter: line 1 column 121 (char 120)){EXPECTED}",
        ),
        ("[" * 100_000, "not read: more than 50 levels deep"),
        ('{"version": ' + "1" * 5000 + "}", "a number of 5,000 digits; more than 100 are not read"),
        ("[]", 'not a head plan (no "format": "headprune.plan")'),
        ("{}", 'not a head plan (no "format": "headprune.plan")'),
        ('"headprune.plan"', 'not a head plan (no "format": "headprune.plan")'),
        (changed(format="other"), 'not a head plan (no "format": "headprune.plan")'),
        (
            changed(version=3),
            "plan of version 3, this headprune reads up to 2; update headprune",
        ),
        (changed(version=0), "plan version 0 is not a whole number from 1"),
        (changed(version="1"), "plan version '1' is not a whole number from 1"),
        (changed(version=True), "plan version True is not a whole number from 1"),
        (changed(version=None), "plan version None is not a whole number from 1"),
        (changed(heads=[4]), 'a plan needs "heads" and "kept", each by component'),
        (changed(kept=None), 'a plan needs "heads" and "kept", each by component'),
        (
            changed(heads={}),
            f"no component given; a model has one or more of {ALL}",
        ),
        (changed(heads={"ES": [4, 4]}), "DS: no heads are given for this component"),
        (changed(kept={"ES": [[], []]}), "DS: no kept heads are given for this component"),
        (
            changed(kept={"ES": [[], [], []], "DS": [[]]}),
            "ES: kept heads for 3 layers, the model has 2",
        ),
        (
            changed(kept={"ES": [[], [4]], "DS": [[]]}),
            "ES: layer 1 has no head 4, the model has 4 (0 to 3)",
        ),
        (
            changed(kept={"ES": [[], [1.0]], "DS": [[]]}),
            "ES: layer 1 has no head 1.0, the model has 4 (0 to 3)",
        ),
        (
            changed(heads={"ES": [4, 4], "XX": [2]}),
            f"XX: unknown component, it is one of {ALL}",
        ),
    ],
)
def test_what_is_no_plan_in_json(text: str, message: str) -> None:
    with pytest.raises(DataError) as caught:
        HeadPlan.from_json(text, source="plan.json")
    assert str(caught.value).startswith(f"plan.json: {message}")
    assert "\n" not in str(caught.value)


@given(st.text(max_size=20) | junk().map(json.dumps))
def test_any_text_is_a_plan_or_a_data_error(text: str) -> None:
    with pytest.raises(DataError):
        HeadPlan.from_json(text)


@given(plans(), st.sampled_from(["format", "version", "heads", "kept"]), junk())
def test_a_plan_with_any_field_changed_is_a_plan_or_a_data_error(
    plan: HeadPlan, field: str, value: Any
) -> None:
    try:
        HeadPlan.from_json(json.dumps({**json.loads(plan.to_json()), field: value}))
    except DataError:
        return


@given(plans(), st.data())
def test_a_plan_cut_short_is_a_data_error(plan: HeadPlan, data: st.DataObject) -> None:
    text = plan.to_json()
    length = data.draw(st.integers(0, len(text) - 1))
    with pytest.raises(DataError):
        HeadPlan.from_json(text[:length])


def test_save_and_load(tmp_path: Path) -> None:
    path = tmp_path / "new" / "plan.json"
    SMALL.save(path)
    assert HeadPlan.load(path) == SMALL
    assert HeadPlan.load(str(path)) == SMALL
    assert path.read_text().endswith("}\n")
    assert [file.name for file in path.parent.iterdir()] == ["plan.json"]


def test_load_says_what_is_wrong_with_the_file(tmp_path: Path) -> None:
    binary, text = tmp_path / "binary", tmp_path / "text"
    binary.write_bytes(b"\xff\xfe\x00")
    text.write_text("no plan")
    for path, message in [
        (tmp_path / "none", "cannot read the plan (No such file or directory)"),
        (tmp_path, "cannot read the plan (Is a directory)"),
        (binary, "cannot read the plan (not UTF-8 text)"),
        (text, f"not JSON (Expecting value: line 1 column 1 (char 0)){EXPECTED}"),
    ]:
        with pytest.raises(DataError) as caught:
            HeadPlan.load(path)
        assert str(caught.value) == f"{path}: {message}"


def test_errors_have_the_exit_status_of_their_kind() -> None:
    assert (UsageError.exit_status, DataError.exit_status) == (2, 1)
    assert issubclass(UsageError, HeadpruneError)
    assert issubclass(DataError, HeadpruneError)


@pytest.mark.parametrize(
    "module",
    [
        *("headprune.plan", "headprune.counts", "headprune.select.location"),
        *("headprune.budget", "headprune.wording"),
    ],
)
def test_examples_in_docstrings(module: str) -> None:
    outcome = doctest.testmod(importlib.import_module(module))
    assert outcome.attempted > 0
    assert outcome.failed == 0
