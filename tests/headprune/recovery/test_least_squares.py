"""Normal equations in parts, against one least squares over all data."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from headprune.recovery.least_squares import LeastSquares


def naive(x: Tensor, residuals: Tensor, *, bias: bool, ridge: float) -> Tensor:
    """(I + bias) x O by QR: the penalty as further rows of data."""
    inputs = x.size(1)
    penalty = (ridge * x.square().sum(0).mean()).sqrt() * torch.eye(inputs, dtype=x.dtype)
    if bias:
        x = torch.cat([x, torch.ones(len(x), 1, dtype=x.dtype)], dim=1)
        penalty = torch.cat([penalty, torch.zeros(inputs, 1, dtype=x.dtype)], dim=1)
    zeros = residuals.new_zeros(inputs, residuals.size(1))
    return torch.linalg.lstsq(torch.cat([x, penalty]), torch.cat([residuals, zeros])).solution


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("ridge", [1e-6, 0.1])
def test_the_correction_is_that_of_one_least_squares(bias: bool, ridge: float) -> None:
    torch.manual_seed(1)
    x = torch.randn(40, 6, dtype=torch.float64) @ torch.randn(6, 6, dtype=torch.float64) + 1
    residuals = torch.randn(40, 3, dtype=torch.float64) + 2
    sums = LeastSquares(6, 3, bias=bias, device=x.device)
    for start in (0, 7, 30):
        end = {0: 7, 7: 30, 30: 40}[start]
        sums.add(x[start:end], residuals[start:end])
    correction = sums.solve(ridge)
    expected = naive(x, residuals, bias=bias, ridge=ridge)
    torch.testing.assert_close(correction.weight.T, expected[:6])
    rest = residuals - x @ correction.weight.T
    if bias:
        assert correction.bias is not None
        torch.testing.assert_close(correction.bias, expected[6])
        rest = rest - correction.bias
    assert sums.tokens == 40 and sums.unknowns == 6 + bias
    assert correction.before == pytest.approx(residuals.square().mean().item())
    assert correction.after == pytest.approx(rest.square().mean().item())
    assert correction.after < correction.before


def test_inputs_that_are_always_zero_and_no_input_at_all() -> None:
    residuals = torch.randn(9, 2, dtype=torch.float64)
    for inputs in (0, 3):
        sums = LeastSquares(inputs, 2, bias=True, device=residuals.device)
        sums.add(torch.zeros(9, inputs), residuals)
        correction = sums.solve(1e-3)
        assert correction.weight.shape == (2, inputs) and not correction.weight.any()
        torch.testing.assert_close(correction.bias, residuals.mean(0))
