"""Plans that are measured and corrected, with times that are made up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

from headprune import PruningPlan, UsageError
from headprune.budget import Speedup
from headprune.speed import verifying
from headprune.speed.forward_pass import Conditions
from headprune.speed.verifying import seconds_of, verified

FULL = PruningPlan.full({"ES": (100,)})
CONDITIONS = Conditions(batch=2, length=8, threads=1, device="cpu")


def keeping(units: int) -> PruningPlan:
    return PruningPlan(kept={"ES": [range(units)]}, units=FULL.units)


@dataclass
class Model:
    plan: PruningPlan = FULL
    path: Path = Path("made")

    def prune(self, plan: PruningPlan) -> Model:
        return Model(plan)


@dataclass
class Pass:
    plan: PruningPlan

    def run(self) -> None: ...


@pytest.fixture
def times(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets the time of a model, from the number of its units."""

    def use(seconds: Callable[[int], float]) -> None:
        def taking_turns(jobs: Any, *, rounds: int, **_: Any) -> list[list[float]]:
            assert torch.get_num_threads() == CONDITIONS.threads
            return [[seconds(job.__self__.plan.total_kept)] * rounds for job in jobs]

        monkeypatch.setattr(verifying, "taking_turns", taking_turns)
        monkeypatch.setattr(verifying, "timing_backend", lambda path: None)
        monkeypatch.setattr(verifying, "ready", lambda backend, model, conditions: Pass(model.plan))

    return use


def run(
    choose: Callable[[float], PruningPlan], *, tries: int, times: float = 2.0
) -> tuple[PruningPlan, float]:
    model: Any = Model()
    return verified(choose(1.0), choose, model, CONDITIONS, Speedup(times), tries=tries)


def test_a_plan_is_corrected_by_what_its_speed_is_short_of(times: Any) -> None:
    times(lambda units: 20 + 0.8 * units)  # a part of the time is nobody's unit
    factors: list[float] = []

    def choose(faster: float) -> PruningPlan:
        factors.append(faster)
        return keeping(round(100 / (2.0 * faster)))  # as if time were in proportion to units

    plan, speed = run(choose, tries=5)
    assert speed == pytest.approx(2.0, rel=0.02) and plan.total_kept == 38
    assert factors[:2] == [1.0, pytest.approx(1.2)]


def test_one_measurement_chooses_no_other_plan(times: Any) -> None:
    times(lambda units: 40 + 0.6 * units)
    factors: list[float] = []

    def choose(faster: float) -> PruningPlan:
        factors.append(faster)
        return keeping(50)

    plan, speed = run(choose, tries=1)
    assert factors == [1.0] and plan == keeping(50) and speed == pytest.approx(100 / 70)


def test_the_nearest_plan_counts_where_no_faster_one_can_be_chosen(times: Any) -> None:
    times(lambda units: 40 + 0.6 * units)

    def choose(faster: float) -> PruningPlan:
        if faster > 1:
            raise UsageError("2.8x speed: cannot be reached")
        return keeping(50)

    assert run(choose, tries=3) == (keeping(50), pytest.approx(100 / 70))


def test_torch_has_its_threads_of_before_afterwards(times: Any) -> None:
    times(lambda units: 1.0 + units)
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    model: Any = Model()
    try:
        run(lambda faster: keeping(50), tries=2)
        assert torch.get_num_threads() == 3
        seconds_of(model, [FULL, keeping(50)], CONDITIONS, rounds=2)
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
