"""All claims, in the order of the report."""

from __future__ import annotations

from headprune.claims import (
    attention_scores,
    classification,
    compensation,
    deviation,
    gates,
    gradient_importance,
    importance,
    prunability,
    single_heads,
)
from headprune.claims.claim import Claim

_MODULES = (
    *(prunability, importance, classification, compensation, deviation),
    *(gradient_importance, single_heads, gates, attention_scores),
)


def all_claims() -> list[Claim]:
    """Every claim that the toolkit knows."""
    return [claim for module in _MODULES for claim in module.claims()]
