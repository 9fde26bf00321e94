"""Learned gates on a plain feed-forward layer: training, targets, and closing."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest
import torch
from torch import nn

from headprune import PruningPlan, UsageError
from headprune.budget import Budget
from headprune.cost import Sizes, unit_cost
from headprune.gates.closing import closed, folded, warn_of_open_gates
from headprune.gates.learned import LearnedGates, attach
from headprune.gates.penalty import ExpectedShare, L0Penalty, TargetPenalty, expected_share
from headprune.model import PrunableLayer, PrunableSublayer
from headprune.select.ranking import plan_of
from tests.headprune.gates.test_hooks import FeedForward, Layer

PLAN = PruningPlan(kept={"EF": [(0, 1, 2, 3, 5)]}, units={"EF": (6,)})


@pytest.fixture
def feed_forward() -> FeedForward:
    torch.manual_seed(0)
    return FeedForward(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4)))


@contextmanager
def attached(
    gates: LearnedGates,
    *,
    sublayers: Mapping[str, Sequence[PrunableSublayer]],
    layers: Mapping[str, Sequence[PrunableLayer]],
) -> Iterator[None]:
    """Attach learned gates to a model within this context."""
    hooks = attach(gates, sublayers=sublayers, layers=layers)
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def set_log_alpha(gates: LearnedGates, **values: list[float]) -> None:
    for key, numbers in values.items():
        gates.scaled[key].data = torch.tensor(numbers) / gates.speed


def test_new_gates_leave_the_deterministic_model_as_it_is(feed_forward: FeedForward) -> None:
    gates, x = LearnedGates(PLAN, speed=100), torch.randn(3, 4)
    expected = feed_forward.module(x)
    with attached(gates.eval(), sublayers={"EF": [feed_forward]}, layers={}):
        assert torch.equal(feed_forward.module(x), expected)
        gates.train()
        torch.manual_seed(1)
        first = feed_forward.module(x)
        assert not torch.equal(feed_forward.module(x), first)  # drawn anew
        torch.manual_seed(1)
        assert torch.equal(feed_forward.module(x), first)
    assert torch.equal(feed_forward.module(x), expected)


def test_closed_gates_are_a_plan_and_open_ones_are_folded(feed_forward: FeedForward) -> None:
    gates, x = LearnedGates(PLAN, speed=10).eval(), torch.randn(3, 4)
    set_log_alpha(gates, EF_0=[3.0, -3.0, 0.0, 4.0, -5.0])
    with attached(gates, sublayers={"EF": [feed_forward]}, layers={}):
        gated = feed_forward.module(x)
    outcome = closed(gates, target=None, sizes=lambda: SIZES)
    plan, values = outcome.plan, outcome.values
    assert plan.kept["EF"] == ((0, 2, 3),)
    assert plan.origin is not None and plan.origin.method == "l0-gates"
    assert plan.origin.budget is None

    first, _, second = feed_forward.module
    places = [0, 2, 3]
    weight = folded(second.weight, values["EF"][0])[:, places]
    hidden = torch.relu(x @ first.weight[places].T + first.bias[places])
    torch.testing.assert_close(hidden @ weight.T + second.bias, gated)


def test_a_gate_of_a_layer_is_rounded_and_skips_it() -> None:
    module, x = nn.Linear(4, 4), torch.randn(2, 4)
    plan = PruningPlan.full({"EL": (1, 1)})
    gates = LearnedGates(plan).eval()
    layers = {"EL": [Layer(module), Layer(nn.Linear(4, 4))]}
    for log_alpha, expected in ((0.4, module(x)), (-0.4, x)):
        set_log_alpha(gates, EL_0=[log_alpha])
        with attached(gates, sublayers={}, layers=layers):
            assert torch.equal(module(x), expected)
    assert closed(gates, target=None, sizes=lambda: SIZES).plan.kept["EL"] == ((), (0,))


@pytest.mark.parametrize("measure", ["units", "parameters"])
@pytest.mark.parametrize("mean", [-3.0, -1.0, 3.0])
@pytest.mark.parametrize(
    ("shape", "percent"),
    [
        ({"ES": (2,) * 3, "ED": (4,) * 3, "DS": (4,) * 3}, 60),
        ({"EL": (1,) * 6, "DL": (1,) * 6}, 50),
        ({"ES": (2,) * 6, "EL": (1,) * 6}, 30),
    ],
)
def test_gates_close_to_the_target(
    shape: dict[str, tuple[int, ...]], percent: float, mean: float, measure: str
) -> None:
    gates = LearnedGates(PruningPlan.full(shape)).eval()
    torch.manual_seed(0)
    for parameter in gates.scaled.values():
        parameter.data = mean + torch.randn_like(parameter) / 2
    target = Budget(percent, measure)
    outcome = closed(gates, target=target, sizes=lambda: SIZES)
    plan = outcome.plan
    share = expected_share(gates.plan, target, sizes=lambda: SIZES)
    numbers = {
        (component, layer, unit): float(number.detach())
        for component, sizes in shape.items()
        for layer, size in enumerate(sizes)
        for unit, number in zip(range(size), gates.log_alpha(component, layer), strict=True)
    }
    ranked = sorted(numbers, key=lambda unit: -numbers[unit])
    shares = [
        1 - share.of_plan(plan_of(shape, ranked[:n]).without_units_of_dropped_layers())
        for n in range(len(ranked) + 1)
    ]
    distance = abs(1 - share.of_plan(plan) - percent / 100)
    assert distance == pytest.approx(min(abs(x - percent / 100) for x in shares), abs=1e-6)
    if measure == "units" and not {"ES", "EL"} <= shape.keys():
        assert plan.total_kept == pytest.approx(plan.total * (1 - percent / 100), abs=0.5)
    open_units, closed_units = [], []
    for component, layers in outcome.values.items():
        for layer, values in enumerate(layers):
            for value, number in zip(values, gates.log_alpha(component, layer), strict=True):
                (open_units if value else closed_units).append(float(number.detach()))
    assert min(open_units) >= max(closed_units)
    assert plan.origin is not None and plan.origin.budget == str(target)


def test_gates_that_are_still_open_are_a_warning(capsys: pytest.CaptureFixture[str]) -> None:
    gates = LearnedGates(PruningPlan.full({"ES": (4, 4)})).eval()

    def warning(log_alpha: float, target: Budget | None) -> str:
        for parameter in gates.scaled.values():
            parameter.data.fill_(log_alpha)
        warn_of_open_gates(gates, target=target, sizes=lambda: SIZES, where="MODEL")
        return capsys.readouterr().err

    assert warning(3.0, None) == warning(-9.0, Budget(60)) == ""
    for target in (Budget(60), Budget(60, "parameters")):
        words = warning(3.0, target)
        assert words.startswith("warning: MODEL: its gates were closed to 2.2%, of a target of 60%")


def test_gates_of_a_copied_model_are_the_copys_own(feed_forward: FeedForward) -> None:
    model = nn.ModuleDict({"layer": feed_forward.module, "gates": LearnedGates(PLAN)}).eval()
    x = torch.randn(3, 4)
    with attached(model["gates"], sublayers={"EF": [feed_forward]}, layers={}):
        twin = copy.deepcopy(model)
        set_log_alpha(twin["gates"], EF_0=[-9.0] * 5)
        torch.testing.assert_close(twin["layer"](x), twin["layer"][2].bias.expand(3, 4))
        assert not torch.equal(model["layer"](x), twin["layer"](x))


def test_expected_open_units_and_the_l0_penalty() -> None:
    gates = LearnedGates(PruningPlan.full({"ES": (2, 3), "EF": (4,)}))
    set_log_alpha(gates, ES_0=[0, 0], ES_1=[-50, 50, 50], EF_0=[50] * 4)
    half = 1 / (1 + 11**-0.33)
    expected = {name: float(number.detach()) for name, number in gates.expected_open().items()}
    assert expected == pytest.approx({"ES": 2 * half + 2, "EF": 4})
    assert float(L0Penalty(0.5)(gates, update=0).detach()) == pytest.approx(0.5 * (2 * half + 6))


SIZES = Sizes(
    encoder_width=8,
    decoder_width=8,
    encoder_feed_forward=6,
    decoder_feed_forward=5,
    encoder_head_dim=4,
    decoder_head_dim=2,
    vocabulary=10,
)
SHAPES = [
    {"ES": (2, 2), "ED": (4, 4), "DS": (4, 4)},
    {"EF": (6, 6), "DF": (5, 5)},
    {"EL": (1, 1), "DL": (1, 1)},
    {"ES": (2, 2), "EF": (6, 6), "EL": (1, 1)},
    {"ES": (2, 2), "ED": (4, 4), "DS": (4, 4), "DL": (1, 1)},
]


@pytest.mark.parametrize("measure", ["units", "parameters", "flops"])
@pytest.mark.parametrize("shape", SHAPES)
def test_the_expected_share_of_certain_gates_is_the_share_of_their_plan(
    shape: dict[str, tuple[int, ...]], measure: str
) -> None:
    full = PruningPlan.full(shape)
    share = expected_share(full, Budget(50, measure), sizes=lambda: SIZES)
    generator = torch.Generator().manual_seed(3)
    for _ in range(5):
        drawn = {
            name: [torch.rand(n, generator=generator).round() for n in layers]
            for name, layers in shape.items()
        }
        plan = PruningPlan(
            kept={
                c: [t.nonzero().flatten().tolist() for t in layers] for c, layers in drawn.items()
            },
            units=shape,
        ).without_units_of_dropped_layers()
        if measure == "units":
            expected = plan.total_kept / plan.total
        else:
            cost = unit_cost(measure, sizes=SIZES, shape=shape)
            expected = cost(plan) / cost(full)
        assert float(share(drawn)) == pytest.approx(expected)


def test_a_target_is_reached_by_its_multiplier() -> None:
    torch.manual_seed(0)
    plan = PruningPlan.full({"ES": (8, 8)})
    gates = LearnedGates(plan, speed=20)
    target = TargetPenalty(Budget(60), ExpectedShare.of_units(plan), warmup=60)
    optimizer = torch.optim.Adam(gates.parameters(), lr=0.01)
    worth = torch.linspace(0.0, 0.3, 16).split(8)  # what the loss of the task has from each unit
    for update in range(120):
        gates.constrain()
        loss = target(gates, update=update)
        for layer in range(2):
            loss = loss - (gates.factors("ES", layer) * worth[layer]).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if update == 80:
            assert float(gates.multiplier) > 0
    share = float(target.share(gates.probabilities()).detach())
    assert share == pytest.approx(0.4, abs=0.05)
    kept = closed(gates, target=target.budget, sizes=lambda: SIZES).plan
    assert kept.total_kept == 6
    # Units that are worth more stay.
    assert kept.counts["ES"][0] < kept.counts["ES"][1]


def test_the_target_rises_during_the_warm_up() -> None:
    for pruned, start in ((0, 1), (2, 0.8)):
        plan = PruningPlan(kept={"EF": [range(pruned, 10)]}, units={"EF": (10,)})
        target = TargetPenalty.of_plan(plan, Budget(60), warmup=10, sizes=lambda: SIZES)
        assert [target.kept_share(update) for update in (0, 5, 10, 99)] == pytest.approx(
            [start, (start + 0.4) / 2, 0.4, 0.4]
        )


def test_numbers_out_of_range_are_refused() -> None:
    share = ExpectedShare.of_units(PLAN)
    with pytest.raises(UsageError, match="the warm-up of the target is -1 updates"):
        TargetPenalty(Budget(60), share, warmup=-1)
    for weight in (-1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match=r"the L0 weight \(lambda\) is .*, it has to be 0 or"):
            L0Penalty(weight)
    for speed in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(UsageError, match="the speed of the gates is .*, it has to be positive"):
            LearnedGates(PLAN, speed=speed)


def test_a_new_training_starts_with_a_new_multiplier() -> None:
    gates = LearnedGates(PLAN)
    for update in (0, 1, 2):
        gates.raise_multiplier(1.0, update=update)
    gates.raise_multiplier(0.5, update=0)
    assert float(gates.multiplier) == 0.5


def test_a_target_below_what_is_pruned_already_is_refused() -> None:
    pruned = PruningPlan(kept={"ES": [(0,)]}, units={"ES": (4,)})
    with pytest.raises(UsageError, match="target of 60% cannot be met: 75.0% are pruned already"):
        expected_share(pruned, Budget(60), sizes=lambda: SIZES)


def test_the_multiplier_moves_once_an_update_and_keeps_its_precision() -> None:
    gates = LearnedGates(PLAN).half()
    penalty = TargetPenalty(Budget(100), ExpectedShare.of_units(PLAN))
    for update in (0, 0, 1):
        penalty(gates, update=update)
    share = float(penalty.share(gates.probabilities()).detach())
    assert float(gates.multiplier) == pytest.approx(2 * 0.1 * share, rel=1e-6)
    penalty(gates.eval(), update=2)
    assert float(gates.multiplier) == pytest.approx(2 * 0.1 * share, rel=1e-6)
