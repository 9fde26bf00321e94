"""Methods by name: plans of theirs, registration, and `headprune plan` with them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headprune import Budget, PruningPlan, UsageError, select
from headprune.cli import app
from headprune.methods import registry
from headprune.methods.method import Method, Outcome, Request
from headprune.methods.registry import method_named, register, registered
from headprune.scores import HeadScores

from .strategies import BASE, BERT

FULL = PruningPlan.full(BERT)


@dataclass(frozen=True)
class FirstUnits:
    """A method from outside: keep the first units of each layer."""

    name: str = "first"
    meaning: str = "the first units of each layer"
    needs_scores: tuple[str, ...] = ()
    needs_model: bool = False
    draws: bool = False

    def run(self, request: Request) -> Outcome:
        share = 1 - request.budget.percent / 100
        kept = {
            name: [range(round(share * units)) for units in layers]
            for name, layers in request.plan.units.items()
        }
        return Outcome(plan=PruningPlan(kept=kept, units=request.plan.units))


@pytest.fixture
def first_units() -> Iterator[Method]:
    registered()
    yield register(FirstUnits())
    registry.METHODS.entries.pop("first")


def test_random_is_the_selector() -> None:
    plan = method_named("random").run(Request(plan=FULL, budget=Budget(50), seed=7)).plan
    assert plan == select.at_random(BERT, seed=7, percent=50)
    assert plan.origin is not None and (plan.origin.method, plan.origin.seed) == ("random", 7)


@pytest.mark.parametrize(
    ("method", "counts"),
    [
        ("bottom", (0, 0, 0, *(12,) * 9)),
        ("top", (*(12,) * 9, 0, 0, 0)),
        ("middle", (12, 12, 12, 12, 0, 0, 0, 12, 12, 12, 12, 12)),
    ],
)
def test_locations(method: str, counts: tuple[int, ...]) -> None:
    plan = method_named(method).run(Request(plan=FULL, budget=Budget(25))).plan
    assert plan.counts["ES"] == counts


@pytest.mark.parametrize(
    ("method", "percent", "kept"),
    [
        # Four of twelve layers, as in figure 1 of Sajjad et al. (2020).
        ("layers-top", 100 / 3, [0, 1, 2, 3, 4, 5, 6, 7]),
        ("layers-bottom", 100 / 3, [4, 5, 6, 7, 8, 9, 10, 11]),
        ("layers-alternate", 100 / 3, [0, 1, 2, 3, 5, 7, 9, 11]),
        ("layers-alternate", 50, [1, 3, 5, 7, 9, 11]),
        ("layers-alternate", 75, [1, 3, 5]),
        ("layers-symmetric", 100 / 3, [0, 1, 2, 3, 8, 9, 10, 11]),
    ],
)
def test_whole_layers_are_dropped(method: str, percent: float, kept: list[int]) -> None:
    full = PruningPlan.full({"EL": (1,) * 12})
    plan = method_named(method).run(Request(plan=full, budget=Budget(percent))).plan
    assert [layer for layer, units in enumerate(plan.kept["EL"]) if units] == kept
    assert plan.origin is not None and (plan.origin.method, plan.origin.seed) == (method, None)


@pytest.mark.parametrize("direction", ["top", "bottom", "alternate", "symmetric"])
def test_stacks_of_unequal_depth_keep_a_layer_each(direction: str) -> None:
    full = PruningPlan.full({"EL": (1,) * 12, "DL": (1,) * 2})
    method = method_named(f"layers-{direction}")
    plan = method.run(Request(plan=full, budget=Budget(25))).plan
    assert {name: sum(counts) for name, counts in plan.counts.items()} == {"EL": 9, "DL": 1}
    plan = method.run(Request(plan=full, budget=Budget(85))).plan
    assert {name: sum(counts) for name, counts in plan.counts.items()} == {"EL": 1, "DL": 1}


def test_methods_that_drop_layers_refuse_heads() -> None:
    with pytest.raises(UsageError, match="layers-top drops whole layers, not units of ES; give"):
        method_named("layers-top").run(Request(plan=FULL, budget=Budget(50)))


def test_a_layer_that_the_budget_reaches_in_part_loses_random_heads() -> None:
    plans = {
        method_named("top").run(Request(plan=FULL, budget=Budget(5), seed=seed)).plan
        for seed in range(8)
    }
    assert {plan.counts["ES"] for plan in plans} == {(*(12,) * 11, 5)}
    assert len(plans) > 1


def test_a_method_from_outside(first_units: Method, tmp_path: Path) -> None:
    assert method_named("first") is first_units
    path = tmp_path / "plan.json"
    result = CliRunner().invoke(
        app, ["plan", "--method", "first", "--percent", "50", "-o", str(path)]
    )
    assert result.exit_code == 0, result.output
    plan = PruningPlan.load(path)
    assert plan.units == BASE
    assert all(kept == (0, 1, 2, 3) for layers in plan.kept.values() for kept in layers)


def test_the_highest_of_any_score_can_be_pruned() -> None:
    shape = {"ES": (2, 2), "EF": (4, 4)}
    values = {"ES": [[8.0, 1.0], [2.0, 3.0]], "EF": [[0.0, 9.0, 1.0, 1.0], [7.0, 0.0, 2.0, 2.0]]}
    request = Request(
        plan=PruningPlan.full(shape),
        budget=Budget(25),
        at_least=0,
        scores={"taylor": HeadScores(name="taylor", values=values)},
    )
    plan = method_named("taylor-important-first").run(request).plan
    assert plan.kept == {"ES": ((1,), (0, 1)), "EF": ((0, 2, 3), (1, 2, 3))}
    assert plan.origin is not None and plan.origin.method == "taylor-important-first"


@pytest.mark.parametrize("name", ["adversarial", "gradient-important-first"])
def test_the_highest_gradients_of_heads_and_neurons_are_on_several_scales(name: str) -> None:
    shape = {"ES": (2,), "EF": (2,)}
    values = {component: [[1.0, 0.0]] for component in shape}
    scores = HeadScores(name="gradient", values=values).normalised()
    request = Request(
        plan=PruningPlan.full(shape), budget=Budget(50), scores={"gradient": scores}, at_least=0
    )
    with pytest.raises(
        UsageError, match=f"take gradient-raw-important-first in the place of {name}"
    ):
        method_named(name).run(request)
    of_heads = {"gradient": scores.of_components(["ES"])}
    plan = PruningPlan.full({"ES": (2,)})
    heads = method_named(name).run(replace(request, plan=plan, scores=of_heads))
    assert heads.plan.kept == {"ES": ((1,),)}


def test_an_unknown_method_and_one_that_needs_data() -> None:
    with pytest.raises(UsageError, match="there is no score or method 'best'; there are gradient"):
        method_named("best")
    with pytest.raises(UsageError, match="--method gradient needs data; run `headprune scores`"):
        CliRunner().invoke(
            app, ["plan", "--method", "gradient", "--percent", "50"], catch_exceptions=False
        )


def test_plans_of_neurons_and_layers_on_the_command_line(tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    options = ["--shape", "EF=100x6", "--shape", "EL=1x6", "--components", "EF", "--percent", "50"]
    result = CliRunner().invoke(app, ["plan", *options, "-o", str(path)])
    assert result.exit_code == 0, result.output
    assert "50.0% of neurons pruned" in result.output
    plan = PruningPlan.load(path)
    assert list(plan.units) == ["EF"] and plan.total_kept == 300
    with pytest.raises(UsageError, match="--components DF: the model has EF, EL; see --shape"):
        CliRunner().invoke(
            app, ["plan", *options[:-3], "DF", "--percent", "50"], catch_exceptions=False
        )
