"""The Hard Concrete distribution of gates (Louizos, Welling and Kingma 2018, section 2.2).

A gate z in [0, 1] with the parameter log alpha is, for u uniform in (0, 1),

    s = sigmoid((log u - log(1 - u) + log alpha) / beta)                       (equation 10)
    z = min(1, max(0, s (zeta - gamma) + gamma))                               (equation 11)

It has mass at exactly 0 and exactly 1, and z is differentiable in log alpha between them. The
temperature beta and the stretch (gamma, zeta) are those of Voita et al. (2019).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

TEMPERATURE = 0.33
"""beta."""

LOWEST, HIGHEST = -0.1, 1.1
"""gamma and zeta, the limits to which the distribution is stretched before it is cut to [0, 1]."""

_SMALLEST = 1e-6
"""Distance of the uniform noise from 0 and 1, where its logarithms are infinite."""


def sample(log_alpha: Tensor) -> Tensor:
    """Draw a gate for each log alpha, of any shape, from torch's random state."""
    noise = torch.rand_like(log_alpha).clamp(_SMALLEST, 1 - _SMALLEST)
    return _stretched(torch.sigmoid((torch.logit(noise) + log_alpha) / TEMPERATURE))


def probability_open(log_alpha: Tensor) -> Tensor:
    """Compute P(z > 0), whose sum over units is the expected L0 norm (equation 12)."""
    return torch.sigmoid(log_alpha - TEMPERATURE * math.log(-LOWEST / HIGHEST))


def deterministic(log_alpha: Tensor) -> Tensor:
    """Compute the gate for evaluation (equation 13): exactly 0 or 1 for most trained gates."""
    return _stretched(torch.sigmoid(log_alpha))


def _stretched(share: Tensor) -> Tensor:
    return (share * (HIGHEST - LOWEST) + LOWEST).clamp(0, 1)
