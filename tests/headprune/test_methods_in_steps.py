"""Methods that score or train in steps, on models that are made up."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headprune import Budget, PruningPlan, UsageError
from headprune.budget import Speedup
from headprune.components import HEADS, NEURONS
from headprune.cost import Sizes
from headprune.methods.in_steps import InSteps
from headprune.methods.method import Request, SpeedRequest
from headprune.methods.subnetwork import Subnetwork
from headprune.methods.trained import TrainGates
from headprune.scores import HeadScores
from headprune.speed.forward_pass import Conditions
from headprune.speed.latency import Latency

SHAPE = {"ES": (4, 4, 4), "EF": (6, 6, 6)}
FULL = PruningPlan.full(SHAPE)
HEAD_COST = 3

LATENCY = Latency(
    conditions=Conditions(batch=2, length=8, threads=1, device="cpu"),
    device="a processor",
    dtype="float32",
    model="made",
    fingerprint="1234",
    library="torch",
    shape={**SHAPE, "EL": (1, 1, 1)},
    sizes=asdict(Sizes()),
    seconds=10.0,
    saved={
        "ES": {0: 1.2, 2: 0.7, 4: 0.0},
        "EF": {0: 1.4, 3: 0.5, 6: 0.0},
        "EL": {0: 2.9, 1: 0.0},
    },
    rounds=3,
)


def cost(plan: PruningPlan) -> int:
    """A head costs as much as three neurons."""
    of_heads = plan.part(HEADS)
    of_neurons = plan.part(NEURONS)
    heads = 0 if of_heads is None else of_heads.total_kept
    return HEAD_COST * heads + (0 if of_neurons is None else of_neurons.total_kept)


@dataclass
class Shape:
    """The part of a model file that methods use."""

    plan: PruningPlan
    path: Path = Path("made")


@dataclass
class Made:
    """A model whose scores are drawn anew for each set of units, so that their order changes."""

    plan: PruningPlan
    log: list[tuple[str, PruningPlan]] = field(default_factory=list)

    @property
    def model(self) -> Shape:
        return Shape(self.plan)

    def pruned(self, plan: PruningPlan, folder: Path) -> Made:
        return replace(self, plan=plan)

    def scores(self, names: Any, *, seed: int, components: Any) -> dict[str, HeadScores]:
        draw = random.Random(str(self.plan.kept))
        # As scores of real models refuse it.
        assert any(units for component in components for units in self.plan.kept[component])
        self.log += [(name, self.plan) for name in names]

        def values(name: str) -> dict[str, list[list[float | None]]]:
            found = {}
            for component in components:
                layers = []
                for layer, units in enumerate(self.plan.units[component]):
                    kept = self.plan.kept[component][layer]
                    # One number for all units of a sub-layer, as of the registered score.
                    whole = draw.random()
                    layers.append(
                        [
                            None if unit not in kept else whole if "sub" in name else draw.random()
                            for unit in range(units)
                        ]
                    )
                found[component] = layers
            return found

        return {name: HeadScores(name=name, values=values(name)) for name in names}


@dataclass
class Constant(Made):
    """A model whose scores are given."""

    values: dict[str, list[list[float]]] = field(default_factory=dict)

    def scores(self, names: Any, *, seed: int, components: Any) -> dict[str, HeadScores]:
        self.log += [(name, self.plan) for name in names]
        found = {
            component: [
                [
                    value if unit in self.plan.kept[component][layer] else None
                    for unit, value in enumerate(units)
                ]
                for layer, units in enumerate(self.values[component])
            ]
            for component in components
        }
        return {name: HeadScores(name=name, values=found) for name in names}


HEADS_APART = [[4.0, 3.0, 2.0, 1.0], [40.0, 30.0, 20.0, 10.0], [4.4, 3.3, 2.2, 1.1]]


@contextmanager
def request(**options: Any) -> Iterator[dict[str, Any]]:
    with TemporaryDirectory() as folder:
        given = {"plan": FULL, "at_least": 1, "model": Made(FULL), "folder": Path(folder)}
        yield {**given, **options}


def are_whole(plan: PruningPlan) -> bool:
    """True if every MLP has all its neurons or none."""
    return all(
        len(units) in (0, total)
        for name in NEURONS
        if name in plan.kept
        for units, total in zip(plan.kept[name], plan.units[name], strict=True)
    )


@given(percent=st.integers(0, 90), at_least=st.integers(0, 2))
def test_a_subnetwork_of_a_budget_consists_of_heads_and_whole_mlps(
    percent: int, at_least: int
) -> None:
    budget = Budget(percent, "flops")
    most = budget.kept_share(cost(FULL))
    with request(at_least=at_least) as options:
        wanted = Request(**options, budget=budget, cost=cost)
        if most < HEAD_COST * 3 * at_least:
            with pytest.raises(UsageError, match=f"subnetwork: {percent}% of flops pruned cannot"):
                Subnetwork().run(wanted)
            return
        plan = Subnetwork().run(wanted).plan
    assert are_whole(plan) and all(len(heads) >= at_least for heads in plan.kept["ES"])
    # Some MLP or head that the last step pruned could not have stayed.
    assert cost(plan) <= most
    assert cost(plan) > most - SHAPE["EF"][0]
    assert plan.origin is not None and plan.origin.method == "subnetwork"
    assert plan.origin.budget == f"{percent}% of flops"


def test_a_subnetwork_is_scored_again_after_each_tenth_and_scores_serve_larger_budgets() -> None:
    made = Made(FULL)
    with request(model=made) as options:
        first = Subnetwork().run(Request(**options, budget=Budget(40, "flops"), cost=cost))
        scored = len(made.log)
        # A tenth of 12 heads and of 3 MLPs is one of each: 9 of 54, so 40% are in the third step.
        assert [name for name, _ in made.log] == ["gradient", "gradient-sublayer"] * 3
        assert len({plan for _, plan in made.log}) == 3
        again = Subnetwork().run(Request(**options, budget=Budget(40, "flops"), cost=cost))
        assert again.plan == first.plan and len(made.log) == scored
        Subnetwork().run(Request(**options, budget=Budget(60, "flops"), cost=cost))
        assert len(made.log) > scored


def test_a_subnetwork_of_heads_alone_has_exactly_the_share_that_is_asked_for() -> None:
    pool = FULL.part(["ES"])
    assert pool is not None
    with request(plan=pool, model=Made(pool)) as options:
        plan = Subnetwork().run(Request(**options, budget=Budget(50))).plan
    assert plan.total_kept == 6 and [*plan.kept] == ["ES"]


@given(times=st.floats(1, 2.2), at_least=st.integers(0, 1))
def test_methods_in_steps_reach_a_speed_and_drop_no_layers(times: float, at_least: int) -> None:
    whole = PruningPlan.full(LATENCY.shape)
    speedup = Speedup(round(times, 2))
    for method in (InSteps(), Subnetwork()):
        with request(plan=whole, at_least=at_least, model=Made(whole)) as options:
            wanted = SpeedRequest(**options, speedup=speedup, latency=LATENCY)
            try:
                method.require_speed(wanted)
            except UsageError as problem:
                assert f"{speedup}" in str(problem) and "cannot be reached" in str(problem)
                with pytest.raises(UsageError, match="the best is"):
                    method.at_speed(wanted)
                assert not options["model"].log
                continue
            plan = method.at_speed(wanted).plan
        seconds = LATENCY.seconds_of(plan)
        assert seconds <= 10 / speedup.times + 1e-6
        assert seconds > 10 / speedup.times - (1.4 if method.name == "subnetwork" else 0.35)
        assert [*plan.kept] == ["ES", "EF"]
        assert plan.origin is not None and plan.origin.budget == str(speedup)
        least = [*plan.kept["ES"], *(plan.kept["EF"] if method.name == "iterate" else ())]
        assert all(len(units) >= at_least for units in least)
        assert are_whole(plan) or method.name == "iterate"


def test_iterate_scores_one_kind_by_gradient_and_several_by_fisher() -> None:
    with request() as options:
        outcome = InSteps().run(Request(**options, budget=Budget(50, "flops"), cost=cost))
        assert [name for name, _ in options["model"].log] == ["fisher"] * 5
    assert cost(outcome.plan) <= cost(FULL) / 2
    for names, score in ((["ES"], "gradient"), (["EF"], "gradient"), (["EL"], "fisher")):
        pool = PruningPlan.full(LATENCY.shape).part(names)
        assert pool is not None
        with request(plan=pool, model=Made(pool), at_least=0) as options:
            outcome = InSteps().run(Request(**options, budget=Budget(50)))
            assert {name for name, _ in options["model"].log} == {score}
        assert outcome.plan.total_kept == pool.total // 2


def test_the_worst_units_go_first() -> None:
    heads = PruningPlan.full({"ES": (4, 4, 4)})
    model = Constant(heads, values={"ES": HEADS_APART})
    for method in (InSteps(), Subnetwork()):
        with request(plan=heads, model=model, at_least=0) as options:
            plan = method.run(Request(**options, budget=Budget(50))).plan
            assert plan.kept["ES"] == ((0,), (0, 1, 2, 3), (0,)), method.name
        latency = replace(LATENCY, shape={**heads.units, "EL": (1, 1, 1)}, saved={
            "ES": {0: 1.2, 2: 0.6, 4: 0.0}, "EL": {0: 1.2, 1: 0.0},
        })  # fmt: skip
        # Six heads take 1.8 of 10 seconds.
        with request(plan=heads, model=model, at_least=0) as options:
            wanted = SpeedRequest(**options, speedup=Speedup(10 / 8.2), latency=latency)
            plan = method.at_speed(wanted).plan
            assert plan.kept["ES"] == ((0,), (0, 1, 2, 3), (0,)), method.name


def test_mlps_with_the_lowest_gradients_go_first() -> None:
    values = {"ES": HEADS_APART, "EF": [[2.0] * 6, [1.0] * 6, [3.0] * 6]}
    with request(model=Constant(FULL, values=values), at_least=0) as options:
        plan = Subnetwork().run(Request(**options, budget=Budget(30, "flops"), cost=cost)).plan
    # Two steps of a head and an MLP each are 18 of 54.
    assert [len(units) for units in plan.kept["EF"]] == [0, 0, 6]
    # 12 of the neurons and one head are 15; so much is left to prune, and no more.
    assert cost(plan) <= 54 * 0.7 < cost(plan) + 3


@pytest.mark.parametrize(
    ("percent", "kept"),
    # A head costs 3 of 54, an MLP 6: the last step prunes a head, an MLP, or both.
    [(5, 51), (5.6, 48), (11, 48), (11.2, 45), (16, 45)],
)
def test_the_last_step_prunes_no_more_than_needed(percent: float, kept: int) -> None:
    with request() as options:
        plan = Subnetwork().run(Request(**options, budget=Budget(percent, "flops"), cost=cost)).plan
    assert cost(plan) == kept


def test_units_compete_by_their_score_for_the_time_that_they_take() -> None:
    # Of the time of a sub-layer, a head has 0.3 seconds and a neuron 0.23.
    values = {"ES": [[1.0] * 4] * 3, "EF": [[0.9] * 6] * 3}
    with request(model=Constant(FULL, values=values)) as options:
        wanted = SpeedRequest(**options, speedup=Speedup(1.05), latency=LATENCY)
        plan = InSteps().at_speed(wanted).plan
    assert plan.part(["EF"]).is_full and not plan.part(["ES"]).is_full  # type: ignore[union-attr]


@dataclass
class Gated(Made):
    """A model whose gates close a given share of what their target asks for, of each layer."""

    share: float = 1.0
    targets: list[float] = field(default_factory=list)
    path: Path = Path("made")
    can_finetune: bool = True

    @property
    def model(self) -> Shape:
        return Shape(self.plan, self.path)

    def finetuned(self, plan: Any, *, seed: int, folder: Path, variant: Any) -> Gated:
        percent = variant.gates.budget.percent
        assert variant.gates.budget.of == "flops"
        self.targets.append(percent)
        kept = {
            name: [range(round(units * (1 - self.share * percent / 100))) for units in layers]
            for name, layers in SHAPE_OF_GATES.items()
        }
        return replace(self, plan=PruningPlan(kept=kept, units=SHAPE_OF_GATES), path=folder)


SHAPE_OF_GATES = {"ES": (400, 400, 400)}
OF_GATES = replace(
    LATENCY,
    shape={**SHAPE_OF_GATES, "EL": (1, 1, 1)},
    saved={"ES": {0: 3.0, 400: 0.0}, "EL": {0: 3.0, 1: 0.0}},
)


def gated(share: float, times: float, *, chosen: PruningPlan | None = None) -> tuple[Any, Gated]:
    full = PruningPlan.full(SHAPE_OF_GATES)
    model = Gated(full, share=share)
    with request(plan=full, model=model, chosen=chosen) as options:
        wanted = SpeedRequest(**options, speedup=Speedup(times), latency=OF_GATES)
        return TrainGates().at_speed(wanted), model


def test_gates_are_trained_to_corrected_targets_until_the_speed_is_near(
    capsys: pytest.CaptureFixture[str],
) -> None:
    outcome, model = gated(1.0, 2.0)
    assert model.targets == [55.6]  # half of the time, of which all units are nine tenths
    assert OF_GATES.speedup_of(outcome.plan) == pytest.approx(2, rel=0.01)
    outcome, model = gated(0.8, 2.0)  # these close too little
    assert model.targets == [55.6, pytest.approx(69.4, abs=0.2)]
    assert OF_GATES.speedup_of(outcome.plan) == pytest.approx(2, rel=0.01)
    assert outcome.plan.origin.budget == "2x speed"
    assert outcome.plan.origin.target == str(Budget(model.targets[1], "flops"))
    assert not capsys.readouterr().err
    # The model of this plan takes its training alone.
    again, model = gated(0.8, 2.0, chosen=outcome.plan)
    assert len(model.targets) == 1 and again.plan == outcome.plan
    # Where no target is near, the nearest counts, and a warning says so.
    outcome, model = gated(0.3, 3.0)
    assert model.targets == [74.1, 99.0]
    assert "warning: l0-gates 3x speed, seed 1: not reached within 5% in 2 trainings; the" in (
        capsys.readouterr().err
    )
    assert OF_GATES.speedup_of(outcome.plan) == pytest.approx(1 / (1 - 0.9 * 0.297), rel=0.01)
    with pytest.raises(UsageError, match="11x speed: cannot be reached by pruning ES; the best"):
        gated(1.0, 11.0)


def test_gates_that_close_too_much_at_the_highest_target_are_trained_to_a_lower_one() -> None:
    class Late(Gated):
        """The first training closes little, the others nearly as much as the target asks for."""

        def finetuned(self, *arguments: Any, **options: Any) -> Gated:
            self.share = 0.9 if self.targets else 0.1
            return super().finetuned(*arguments, **options)

    full = PruningPlan.full(SHAPE_OF_GATES)
    model = Late(full)
    with request(plan=full, model=model) as options:
        wanted = SpeedRequest(**options, speedup=Speedup(1.5), latency=OF_GATES)
        outcome = TrainGates().at_speed(wanted)
    assert model.targets[:2] == [37.0, 99.0] and len(model.targets) == 3
    assert OF_GATES.speedup_of(outcome.plan) == pytest.approx(1.5, rel=0.02)


def test_the_nearest_of_three_trainings_counts(capsys: pytest.CaptureFixture[str]) -> None:
    class Jumping(Gated):
        """Each training closes more than the target asks for, the second the most."""

        def finetuned(self, *arguments: Any, **options: Any) -> Gated:
            self.share = (1.3, 0.4, 1.5)[len(self.targets)]
            return super().finetuned(*arguments, **options)

    full = PruningPlan.full(SHAPE_OF_GATES)
    model = Jumping(full)
    with request(plan=full, model=model) as options:
        wanted = SpeedRequest(**options, speedup=Speedup(1.6), latency=OF_GATES)
        outcome = TrainGates().at_speed(wanted)
    assert len(model.targets) == 3 and "in 3 trainings" in capsys.readouterr().err
    assert outcome.plan.origin is not None
    assert outcome.plan.origin.target == str(Budget(model.targets[0], "flops"))


def test_the_time_of_a_choice_has_that_of_scores_that_are_used_again() -> None:
    made = Made(FULL)
    with request(model=made) as options:
        for path, percent in (("small", 20), ("large", 60), ("again", 60)):
            outcome = Subnetwork().run(
                Request(**options, budget=Budget(percent, "flops"), cost=cost)
            )
            folder = options["folder"] / "subnetwork"
            files = sorted(folder.glob("*.seconds"))
            for file in files:
                file.write_text("2.0\n")
            if path == "again":
                assert outcome.seconds == 2.0 * len(files)


def test_layers_alone_have_no_speed_in_steps() -> None:
    pool = PruningPlan.full({"EL": (1, 1, 1)})
    for method, message in ((InSteps(), "not layers alone"), (Subnetwork(), "not only layers")):
        with request(plan=pool) as options, pytest.raises(UsageError, match=message):
            method.at_speed(SpeedRequest(**options, speedup=Speedup(1.2), latency=LATENCY))


@pytest.mark.parametrize("method", [InSteps(), Subnetwork()], ids=lambda method: method.name)
def test_methods_in_steps_need_a_model(method: Any) -> None:
    with pytest.raises(UsageError, match=f"{method.name} scores the model between its steps"):
        method.run(Request(plan=FULL, budget=Budget(50, "flops"), cost=cost, at_least=1))
