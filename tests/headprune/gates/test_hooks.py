"""Gates on a plain feed-forward layer, against weights that are cut."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from headprune import PruningPlan
from headprune.gates import gated, gated_by_component, gated_layers, mask_of, masked_units
from headprune.surgery import COLUMNS, ROWS, cut


@dataclass(frozen=True)
class FeedForward:
    """A PrunableSublayer of a width of 6 neurons, of which number 4 was removed before."""

    module: nn.Sequential
    unit_size: int = 1
    units: int = 6
    kept: tuple[int, ...] = (0, 1, 2, 3, 5)
    present: tuple[int, ...] = (0, 1, 2, 3, 5)

    @property
    def output(self) -> nn.Linear:
        layer = self.module[2]
        assert isinstance(layer, nn.Linear)
        return layer

    def weights_by_unit(self) -> Iterable[Tensor]:
        yield self.output.weight.T


@dataclass(frozen=True)
class Layer:
    """A PrunableLayer."""

    module: nn.Module
    is_kept: bool = True


@pytest.fixture
def feed_forward() -> FeedForward:
    torch.manual_seed(0)
    return FeedForward(nn.Sequential(nn.Linear(4, 5), nn.ReLU(), nn.Linear(5, 4)))


def test_masked_units_contribute_nothing(feed_forward: FeedForward) -> None:
    plan = PruningPlan(kept={"EF": [(0, 3)]}, units={"EF": (6,)})
    x = torch.randn(2, 3, 4)
    first, _, second = feed_forward.module
    places = [feed_forward.present.index(neuron) for neuron in (0, 3)]
    hidden = torch.relu(
        x @ cut(first.weight, places, units=5, dim=ROWS).T
        + cut(first.bias, places, units=5, dim=ROWS)
    )
    expected = hidden @ cut(second.weight, places, units=5, dim=COLUMNS).T + second.bias
    with gated_by_component(mask_of(plan), sublayers={"EF": [feed_forward]}, layers={}):
        assert masked_units(feed_forward) == {1, 2, 4, 5}
        torch.testing.assert_close(feed_forward.module(x), expected)
    assert not masked_units(feed_forward)


def test_gates_multiply_and_have_gradients(feed_forward: FeedForward) -> None:
    x = torch.randn(2, 4)
    xi = torch.ones(6, requires_grad=True)
    half = torch.full((6,), 0.5)
    with gated([(feed_forward, xi)]), gated([(feed_forward, half)]):
        out = feed_forward.module(x)
    out.sum().backward()
    assert xi.grad is not None
    assert xi.grad[4] == 0 and xi.grad[[0, 1, 2, 3, 5]].any()
    bias = feed_forward.output.bias
    torch.testing.assert_close(2 * (out - bias), feed_forward.module(x) - bias)


@pytest.mark.parametrize("xi", [0.0, 0.25, 1.0])
def test_a_layers_gate_mixes_its_output_with_its_input(
    feed_forward: FeedForward, xi: float
) -> None:
    x = torch.randn(2, 4)
    out = feed_forward.module(x)
    with gated_layers([(Layer(feed_forward.module), torch.tensor(xi))]):
        torch.testing.assert_close(feed_forward.module(x), xi * out + (1 - xi) * x)
    plan = PruningPlan(kept={"EL": [()]}, units={"EL": (1,)})
    with gated_by_component(
        mask_of(plan), sublayers={}, layers={"EL": [Layer(feed_forward.module)]}
    ):
        assert torch.equal(feed_forward.module(x), x)
