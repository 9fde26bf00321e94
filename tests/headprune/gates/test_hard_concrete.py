"""The Hard Concrete distribution, against values worked out by hand and against samples."""

from __future__ import annotations

import math

import pytest
import torch

from headprune.gates.hard_concrete import deterministic, probability_open, sample


def test_values_worked_out_by_hand() -> None:
    # P(z > 0) = 1 / (1 + exp(0.33 log(1/11) - a)) = 1 / (1 + 11^-0.33 exp(-a))
    assert probability_open(torch.tensor([0.0, 2.0])).tolist() == pytest.approx(
        [1 / (1 + 11**-0.33), 1 / (1 + 11**-0.33 * math.exp(-2))]
    )
    # sigmoid(0) = 1/2 is stretched to 1.2 / 2 - 0.1; sigmoid(log 11) = 11/12 to exactly 1, and
    # sigmoid(-log 11) = 1/12 to 0.
    gates = deterministic(
        torch.tensor([0.0, math.log(11) + 1e-3, -math.log(11) - 1e-3, math.log(3)])
    )
    assert gates.tolist() == pytest.approx([0.5, 1.0, 0.0, 0.8])
    assert gates[1] == 1 and gates[2] == 0


def test_samples_agree_with_the_probability_that_a_gate_is_open() -> None:
    torch.manual_seed(0)
    log_alpha = torch.tensor([-3.0, -1.0, 0.0, 2.0])
    drawn = sample(log_alpha.expand(20_000, 4))
    torch.testing.assert_close(
        (drawn > 0).float().mean(0), probability_open(log_alpha), atol=0.015, rtol=0
    )
    assert drawn.min() >= 0 and drawn.max() <= 1
    # By symmetry z and 1 - z of -log alpha have one distribution.
    assert (drawn[:, 3] == 1).float().mean() == pytest.approx(
        float(1 - probability_open(torch.tensor(-2.0))), abs=0.015
    )


def test_gradients_are_those_of_the_formula() -> None:
    log_alpha = torch.tensor([0.3, -0.4], dtype=torch.float64, requires_grad=True)

    def drawn(parameter: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(5)
        return sample(parameter)

    assert torch.autograd.gradcheck(drawn, log_alpha)
    assert torch.autograd.gradcheck(probability_open, log_alpha)
