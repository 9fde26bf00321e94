"""The effects that a claim says are possible, and tests for and against them."""

from __future__ import annotations

import math
from dataclasses import dataclass

from headprune.claims.estimate import Estimate, MeanDifference


@dataclass(frozen=True, kw_only=True)
class Region:
    """The range of true effects for which a claim holds."""

    low: float = -math.inf
    high: float = math.inf

    def p_inside(self, estimate: Estimate) -> float:
        """The p-value of the hypothesis that the true effect lies outside the region.

        With two bounds these are the two one-sided tests of equivalence (Schuirmann 1987).
        """
        above = 0.0 if math.isinf(self.low) else estimate.p_above(self.low)
        below = 0.0 if math.isinf(self.high) else estimate.p_below(self.high)
        return max(above, below)

    def p_outside(self, estimate: Estimate) -> float:
        """The p-value of the hypothesis that the true effect lies inside the region.

        With two bounds it is the probability, at the bound that is nearer to the estimate, of an
        estimate as far from the region's centre, on either side.
        """
        low, high = self.low, self.high
        if math.isinf(low):
            return estimate.p_above(high)
        if math.isinf(high):
            return estimate.p_below(low)
        return min(
            1.0,
            estimate.p_below(low) + estimate.p_below(high),
            estimate.p_above(high) + estimate.p_above(low),
        )

    def detectable(self, estimate: Estimate, level: float) -> float:
        """The smallest distance of the true effect from the region that would have been found."""
        if math.isinf(self.low) or math.isinf(self.high):
            bound = self.low if math.isinf(self.high) else self.high
            return estimate.detectable(bound, level)
        assert isinstance(estimate, MeanDifference)  # no other effect has two bounds
        return estimate.detectable_outside(self.low, self.high, level)

    def text(self, unit: str) -> str:
        """The region in words, such as `-0.15 BLEU or more`."""
        unit = f" {unit}" if unit and unit != "%" else unit
        if math.isinf(self.high):
            return f"above 0{unit}" if self.low == 0 else f"{self.low:g}{unit} or more"
        if math.isinf(self.low):
            return f"below 0{unit}" if self.high == 0 else f"{self.high:g}{unit} or less"
        return f"{self.low:g} to {self.high:g}{unit}"
