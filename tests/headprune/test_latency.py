"""Latency files, and plans of a given speed against all plans."""

from __future__ import annotations

import json
import re
from dataclasses import asdict, dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headprune import DataError, PruningPlan, UsageError
from headprune.budget import Speedup
from headprune.cost import Sizes
from headprune.methods.at_random import Random
from headprune.methods.method import SpeedRequest
from headprune.origin import Origin
from headprune.results.environment import device_name
from headprune.results.labels import requested_percent_of, row_of
from headprune.scores import HeadScores
from headprune.select.random import lot
from headprune.select.ranking import plan_of
from headprune.select.speed import by_speed
from headprune.speed.forward_pass import Conditions, bytes_of
from headprune.speed.latency import Latency
from headprune.speed.latency_measuring import falling

SHAPE = {"ES": (2, 2), "EF": (4, 4), "EL": (1, 1)}
LATENCY = Latency(
    conditions=Conditions(batch=1, length=8, threads=1, device="cpu"),
    device=device_name("cpu"),
    dtype="float32",
    model="model",
    fingerprint="1234",
    library="torch",
    shape=SHAPE,
    sizes=asdict(Sizes()),
    seconds=10.0,
    saved={
        "ES": {0: 1.5, 1: 0.75, 2: 0.0},
        "EF": {0: 2.0, 2: 1.0, 4: 0.0},
        "EL": {0: 4.0, 1: 0.0},
    },
    rounds=3,
)
IDENTITY = LATENCY.identity
NUMBERS = st.floats(0, 1) | st.sampled_from([0.0, 1.0])


def scores_of(values: dict[str, Any], **settings: Any) -> HeadScores:
    return HeadScores(name="taylor", values=values, fingerprint="1234", settings=settings)


def layers_of_numbers(units: int) -> st.SearchStrategy[list[list[float]]]:
    numbers = st.lists(NUMBERS, min_size=units, max_size=units)
    return st.lists(numbers, min_size=2, max_size=2)


def every_plan(names: list[str], at_least: int) -> list[PruningPlan]:
    """All plans of the measured numbers of units."""
    numbers = {"ES": range(2 + 1), "EF": (0, 2, 4), "EL": (0, 1)}
    subsets = {
        (name, kept): [
            tuple(unit for unit in range(units[0]) if mask >> unit & 1)
            for mask in range(2 ** units[0])
            if mask.bit_count() == kept
        ]
        for name, units in SHAPE.items()
        for kept in numbers[name]
    }
    layers = {
        name: [
            units
            for kept in numbers[name]
            if name == "EL" or kept >= at_least
            for units in subsets[name, kept]
        ]
        for name in names
    }
    plans = [
        PruningPlan(
            kept={name: chosen[2 * number : 2 * number + 2] for number, name in enumerate(names)},
            units={name: SHAPE[name] for name in names},
        )
        for chosen in product(*(own for name in names for own in (layers[name], layers[name])))
    ]
    return [plan for plan in plans if not at_least or any(plan.kept.get("EL", [(0,)]))]


def loss_of(plan: PruningPlan, scores: HeadScores) -> float:
    """The sum of the scores of pruned units, those of dropped layers included."""
    dropped = {layer for layer, kept in enumerate(plan.kept.get("EL", ())) if not kept}
    return sum(
        value
        for name, layers in scores.values.items()
        for layer, values in enumerate(layers)
        for unit, value in enumerate(values)
        if value is not None
        and (layer in dropped or (name in plan.kept and unit not in plan.kept[name][layer]))
    )


@settings(max_examples=15, deadline=None)
@given(
    heads=layers_of_numbers(2),
    neurons=layers_of_numbers(4),
    names=st.sampled_from([["ES"], ["EF"], ["ES", "EL"], ["ES", "EF"], ["EL"]]),
    at_least=st.integers(0, 1),
    times=st.sampled_from([1.0, 1.1, 1.25, 1.43, 2.0, 3.5]),
)
def test_no_plan_of_that_speed_loses_less(
    heads: Any, neurons: Any, names: list[str], at_least: int, times: float
) -> None:
    scores = scores_of({"ES": heads, "EF": neurons})
    plans = every_plan(names, at_least)
    fast = [plan for plan in plans if LATENCY.speedup_of(plan) >= times * (1 - 1e-9)]
    arguments: Any = dict(components=names, at_least=at_least)
    if not fast:
        highest = max(map(LATENCY.speedup_of, plans))
        with pytest.raises(UsageError, match="cannot be reached") as refused:
            by_speed(scores, LATENCY, Speedup(times), **arguments)
        best = re.search(r"the best is ([\d.]+)x", str(refused.value))
        assert best is not None and float(best[1]) == pytest.approx(highest, abs=0.011)
        return
    plan = by_speed(scores, LATENCY, Speedup(times), **arguments)
    assert LATENCY.speedup_of(plan) >= times * 0.999
    assert loss_of(plan, scores) == pytest.approx(min(loss_of(p, scores) for p in fast), abs=1e-6)


def test_all_kinds_of_units_at_once() -> None:
    scores = scores_of({"ES": [[5, 1], [1, 1]], "EF": [[1, 1, 9, 9], [0, 0, 0, 0]]})
    plan = by_speed(scores, LATENCY, Speedup(2), components=["ES", "EF", "EL"])
    # Layer 1 loses 2 and saves 4 seconds, two neurons of layer 0 lose 2 and save 1.
    assert str(plan) == "ES=20 EF=20 EL=10" and plan.kept["EF"][0] == (2, 3)
    assert plan.origin is not None and plan.origin.budget == "2x speed"
    assert requested_percent_of(plan) is None and row_of(plan, default="") == "2x speed"


def test_a_budget_in_words_of_its_own_has_no_percentage() -> None:
    plan = PruningPlan.full({"ES": (4,)}).with_origin(Origin(method="mine", budget="3 heads"))
    assert requested_percent_of(plan) is None


def test_one_layer_of_each_side_is_kept() -> None:
    scores = scores_of({"ES": [[1, 1], [1, 1]], "EF": [[2, 2, 2, 2], [1, 1, 1, 1]]})
    arguments: Any = dict(components=["ES", "EF", "EL"])
    # With both layers dropped the time is 2 of 10 seconds; one layer has a head and two neurons.
    plan = by_speed(scores, LATENCY, Speedup(2.2), **arguments)
    assert [len(layer) for layer in plan.kept["EL"]] == [1, 0]
    with pytest.raises(UsageError, match=r"the best is 2.35x; give --at-least 0"):
        by_speed(scores, LATENCY, Speedup(5), **arguments)
    emptied = by_speed(scores, LATENCY, Speedup(5), at_least=0, **arguments)
    assert not any(emptied.kept["EL"])
    with pytest.raises(UsageError, match="the best is 1.66x; add ES,EF to --components"):
        by_speed(scores_of({"EL": [[1], [1]]}), LATENCY, Speedup(3), components=["EL"])
    with pytest.raises(UsageError, match="at_least is -1, it has to be a whole number from 0"):
        by_speed(scores, LATENCY, Speedup(2), at_least=-1, **arguments)


@pytest.mark.parametrize(
    ("files", "counted"),
    [
        ({"model.safetensors": 3, "pytorch_model.bin": 5}, 3),
        ({"model-00001-of-00002.safetensors": 3, "model-00002-of-00002.safetensors": 4}, 7),
        ({"pytorch_model.bin": 5, "training_args.bin": 1, "optimizer.pt": 9}, 5),
        ({"model.onnx": 2, "model.onnx.data": 6, "model.safetensors": 3}, 8),
        ({"model.bin": 5, "sentencepiece.model": 2}, 5),
        ({"config.json": 1}, 0),
    ],
)
def test_the_size_of_a_folder_is_that_of_the_weights_that_are_read(
    files: dict[str, int], counted: int, tmp_path: Path
) -> None:
    for name, size in files.items():
        (tmp_path / name).write_bytes(b"x" * size)
    assert bytes_of(tmp_path) == counted
    assert all(bytes_of(tmp_path / name) == size for name, size in files.items())


def test_units_without_a_score_are_pruned_only_as_needed() -> None:
    scores = scores_of({"ES": [[0, 0], [0, 0]]})
    assert by_speed(scores, LATENCY, Speedup(1), components=["ES"]).is_full
    one = by_speed(scores, LATENCY, Speedup(1.05), components=["ES"])
    assert one.total_kept == 3


def test_low_scores_are_kept_where_they_are_good() -> None:
    scores = scores_of({"ES": [[3, 1], [2, 2]]})
    plan = by_speed(scores, LATENCY, Speedup(1.05), components=["ES"], keep="low")
    assert plan.kept["ES"] == ((1,), (0, 1))


@pytest.mark.parametrize(
    ("scores", "components", "message"),
    [
        (scores_of({"ES": [[1, 1], [1, 1]]}), ["ES", "EF"], "EF: the score taylor has no number"),
        (scores_of({"ES": [[1, 1]]}), ["ES"], "ES: the score taylor is of a model of another"),
        (scores_of({"ES": [[1, None], [1, 1]]}), ["ES"], "ES: the score taylor is of a pruned"),
        (scores_of({"DS": [[1, 1], [1, 1]]}), ["DS"], "DS was not measured"),
        (
            scores_of({"ES": [[1, 1], [1, 1]]}, normalised="l2 per layer"),
            ["ES", "EL"],
            "taylor is divided by the norm of each layer",
        ),
    ],
)
def test_scores_that_do_not_fit(scores: HeadScores, components: list[str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        by_speed(scores, LATENCY, Speedup(1.2), components=components)


@pytest.mark.parametrize("seed", range(1, 6))
def test_units_in_one_order_are_as_few_as_reach_the_speed(seed: int) -> None:
    """Against all numbers of units, where a dropped layer was measured to save less than ES."""
    saved = {"ES": {0: 2.0, 1: 0.5, 2: 0.0}, "EL": {0: 1.9, 1: 0.0}}
    latency = replace(LATENCY, saved=saved)
    shape = {name: SHAPE[name] for name in saved}
    units = [("ES", layer, unit) for layer in (0, 1) for unit in (0, 1)]
    units += [("EL", 0, 0), ("EL", 1, 0)]
    units.sort(key=lambda unit: lot(seed, unit))
    plans = [
        plan_of(shape, units[: len(units) - pruned]).without_units_of_dropped_layers()
        for pruned in range(len(units) + 1)
    ]
    for times in (1.0, 1.04, 1.1, 1.2, 1.24, 1.5, 1.66):
        plan = next(plan for plan in plans if latency.speedup_of(plan) >= times)
        request = SpeedRequest(
            plan=PruningPlan.full(shape),
            seed=seed,
            at_least=0,
            speedup=Speedup(times),
            latency=latency,
        )
        assert Random().at_speed(request).plan.kept == plan.kept


@pytest.mark.parametrize("times", [0.99, 0, float("nan"), float("inf")])
def test_speeds_that_make_no_sense(times: float) -> None:
    with pytest.raises(UsageError, match="from 1"):
        Speedup(times)


def test_times_between_measured_sizes_are_interpolated() -> None:
    assert [LATENCY.saving("EF", kept) for kept in range(5)] == [2, 1.5, 1, 0.5, 0]
    plan = PruningPlan(
        kept={"ES": [(0,), ()], "EF": [(0, 1, 2), ()], "EL": [(0,), ()]}, units=SHAPE
    )
    assert LATENCY.seconds_of(plan) == 10 - 0.75 - 0.5 - 4


def test_files(tmp_path: Path) -> None:
    path = tmp_path / "latency.json"
    LATENCY.save(path)
    assert Latency.load(path) == LATENCY
    content = json.loads(path.read_text())
    content["sizes"]["further"] = content["conditions"]["further"] = 1
    path.write_text(json.dumps({**content, "further": 1}))
    assert Latency.load(path) == LATENCY  # of a later version


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"format": "headprune.plan"}, "not a latency file"),
        ({"version": 2}, "latencies of version 2"),
        ({"seconds": "long"}, 'seconds is "long", not a number'),
        ({"seconds": 0}, "not a whole latency file"),
        (
            {"conditions": {"batch": 1, "length": 3, "threads": 1, "device": "x"}},
            "'x' is not one of the devices cpu, cuda",
        ),
        ({"saved": {"ES": {"0": 1.0}}}, "ES: not the savings of a model with 2 units"),
        ({"saved": {"XS": {"0": 0.0}}}, "XS: savings of a component that the model does not have"),
        ({"shape": {"XS": [2]}}, "XS: unknown component"),
        ({"saved": {"ES": {"few": 1.0}}}, "not a whole latency file"),
        ({"seconds": 7.9}, "savings of 8 seconds in all layers together, and the whole job"),
        ({"conditions": {"batch": 1}}, "conditions: length is missing"),
    ],
)
def test_damaged_files(change: dict[str, Any], message: str, tmp_path: Path) -> None:
    path = tmp_path / "latency.json"
    LATENCY.save(path)
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(DataError, match=message) as caught:
        Latency.load(path)
    assert "\n" not in str(caught.value) and str(path) in str(caught.value)


def test_later_conditions_leave_the_identity_of_older_files_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @dataclass(frozen=True, kw_only=True)
    class Later(Conditions):
        source: str = "random"

    given = asdict(LATENCY.conditions)
    monkeypatch.setattr("headprune.speed.latency.Conditions", Later)
    assert replace(LATENCY, conditions=Later(**given)).identity == IDENTITY
    assert replace(LATENCY, conditions=Later(**given, source="text")).identity != IDENTITY
    assert replace(LATENCY, conditions=Later(**given | {"beam": 1})).identity != IDENTITY


def test_files_of_other_machines() -> None:
    LATENCY.require_device(where="l.json")
    other = replace(LATENCY, device="Abacus")
    with pytest.raises(UsageError, match="l.json: measured on Abacus, and this is"):
        other.require_device(where="l.json")
    many = replace(LATENCY, conditions=replace(LATENCY.conditions, threads=5000))
    with pytest.raises(UsageError, match="measured with 5000 threads"):
        many.require_device(where="l.json")


@given(st.dictionaries(st.integers(0, 9), st.floats(-5, 5), min_size=1))
def test_savings_fall_with_the_number_of_units(values: dict[int, float]) -> None:
    fitted = falling(values)
    numbers = [fitted[key] for key in sorted(values)]
    assert numbers == sorted(numbers, reverse=True) and numbers[-1] >= 0
    if [values[key] for key in sorted(values)] == sorted(values.values(), reverse=True):
        assert fitted == {key: max(0.0, value) for key, value in values.items()}
