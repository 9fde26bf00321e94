"""Ridge regression by normal equations, whose memory does not grow with the data."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor


@dataclass(frozen=True, kw_only=True)
class Correction:
    """A change of the weights of a linear layer.

    Attributes:
        weight: O x I, float64.
        bias: O, float64; None for a layer without a bias.
        before, after: the mean squared residual of an output without and with the correction.
    """

    weight: Tensor
    bias: Tensor | None
    before: float
    after: float


class LeastSquares:
    """The correction of a linear layer that brings its outputs close to others, over many tokens.

    With x_t the layer's input (I,) and r_t the residual (O,), the wanted minus the given output,
    it minimises over W (O x I) and b (O,)

        sum_t |r_t - W x_t - b|^2 + lambda |W|^2

    by its normal equations, whose sums are in float64. As no correction at all (W = 0, b = 0) is
    among the candidates, the sum of squares never rises. The bias has no penalty.

    Args:
        inputs, outputs: I and O.
        bias: whether there is a b.
        device: where the sums are kept.
    """

    def __init__(self, inputs: int, outputs: int, *, bias: bool, device: torch.device) -> None:
        self._bias = bias
        self._inputs = inputs
        zeros = partial(torch.zeros, dtype=torch.float64, device=device)
        self._gram = zeros(inputs + bias, inputs + bias)  # X^T X
        self._products = zeros(inputs + bias, outputs)  # X^T R
        self._squares = zeros(())
        self.tokens = 0

    @property
    def unknowns(self) -> int:
        """The number of unknowns of one output."""
        return self._inputs + self._bias

    @property
    def finite(self) -> bool:
        """True if all sums are finite."""
        return all(bool(each.isfinite().all()) for each in (self._gram, self._products))

    def add(self, x: Tensor, residuals: Tensor) -> None:
        """Add tokens: their inputs, N x I, and residuals, N x O."""
        x, residuals = x.double(), residuals.double()
        if self._bias:
            x = torch.cat([x, x.new_ones(len(x), 1)], dim=1)  # N x (I + 1)
        self._gram.addmm_(x.T, x)
        self._products.addmm_(x.T, residuals)
        self._squares += residuals.square().sum()
        self.tokens += len(x)

    def solve(self, ridge: float) -> Correction:
        """The correction.

        Args:
            ridge: lambda divided by the mean of sum_t x_ti^2 over the inputs i; above 0.
        """
        diagonal = self._gram.diagonal()[: self._inputs]
        mean = float(diagonal.mean()) if self._inputs else 0.0
        regularised = self._gram.clone()
        # Inputs that are 0 everywhere have a correction of 0 by any penalty.
        regularised.diagonal()[: self._inputs] += ridge * mean or 1.0
        solution = torch.cholesky_solve(
            self._products, torch.linalg.cholesky(regularised)
        )  # (I + 1) x O
        gain = 2 * (solution * self._products).sum() - (solution * (self._gram @ solution)).sum()
        values = max(self.tokens * self._products.size(1), 1)
        return Correction(
            weight=solution[: self._inputs].T,
            bias=solution[-1] if self._bias else None,
            before=float(self._squares) / values,
            after=max(float(self._squares - gain), 0.0) / values,
        )
