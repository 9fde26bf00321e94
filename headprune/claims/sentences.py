"""One plain sentence on the outcome of a claim."""

from __future__ import annotations

import math

from headprune.claims.estimate import Estimate
from headprune.claims.outcome import Assessed, Outcome


def effect(value: float, unit: str) -> str:
    """An effect with its unit: `-0.68 BLEU`; shares have no sign: `1.59%`, `0.49`, `infinite`."""
    if math.isinf(value):
        return "infinite"
    if not unit:
        return f"{value:.2f}"
    return f"{value:.2f}%" if unit == "%" else f"{value:+z.2f} {unit}"


def distance(value: float, unit: str) -> str:
    """A distance with its unit: `0.68 BLEU`."""
    return f"{value:.2f}%" if unit == "%" else f"{value:.2f} {unit}"


def interval(estimate: Estimate, unit: str) -> str:
    """The 95% interval of an effect: `-1.20 to +0.30`; `14.07 or more` without an upper bound."""
    sign = "" if unit == "%" else "+"
    low, high = estimate.interval()
    if math.isinf(high):
        return f"{low:{sign}.2f} or more"
    return f"{low:{sign}.2f} to {high:{sign}.2f}"


def sentence(assessed: Assessed) -> str:
    """The claim, its outcome and the reason."""
    claim = assessed.claim
    start = f"“{claim.sentence}” ({claim.source.paper}, {claim.source.place}): {assessed.outcome}"
    if assessed.outcome is Outcome.NOT_RUN:
        run = f"To run it: `{claim.command}`" if claim.command else "No command runs it yet."
        return f"{start}. Needed: {claim.rows}. {run}"
    where = "" if assessed.runs is None else f" in {assessed.runs.title}"
    return " ".join([f"{start}{where}.", *_reasons(assessed)])


def _reasons(assessed: Assessed) -> list[str]:
    claim, part = assessed.claim, assessed.weakest
    assert part is not None and assessed.measurement is not None
    measured = f"{part.name}: {effect(part.effect, claim.unit)}"
    if part.estimate is None:
        reasons = [f"{measured}; no interval without {part.needed}."]
    else:
        reasons = [
            f"{measured}, 95% interval {interval(part.estimate, claim.unit)}, "
            f"n = {part.estimate.n}; claimed: {claim.region.text(claim.unit)}."
        ]
    reasons += [
        f"{each.name}: {effect(each.effect, claim.unit)}; no interval without {each.needed}."
        for each in assessed.measurement.parts
        if each.estimate is None and each is not part
    ]
    reasons += [f"{count[0].upper()}{count[1:]}." for count in assessed.measurement.counts]
    if assessed.outcome is Outcome.UNKNOWN and assessed.detectable is not None:
        reasons.append(
            f"An effect {distance(assessed.detectable, claim.unit)} outside the claimed region "
            "would have been found in four of five such studies."
        )
    return reasons
