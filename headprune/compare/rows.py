"""What was measured of one plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from headprune.stats import Spread, spread

CONTROL = "control"
"""The score of rows in which nothing is pruned, and the model only fine-tuned."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One plan and one seed.

    Attributes:
        score: what ranked the heads, or ``control``.
        percent: share of heads that was to be pruned.
        pruned: share of heads that is pruned.
        seed: of the fine-tuning, and of the draw where the score is ``random``.
        plan: the heads kept, as JSON.
        before: the metric right after pruning.
        after: the metric after fine-tuning; None without one.
        parameters, flops: of the pruned model.
        resumed: whether the fine-tuning was interrupted and resumed; None where it is not known.
        constant: whether the model of the last figure (``after``, or ``before`` without a
            fine-tuning) gives the same output for every example; None where it is not known.
        constant_before: the same of ``before``.
    """

    score: str
    percent: float
    pruned: float
    seed: int
    plan: dict[str, Any]
    before: float
    after: float | None
    parameters: int
    flops: int
    resumed: bool | None = None
    constant: bool | None = None
    constant_before: bool | None = None

    def as_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A score at a percentage, over seeds.

    Attributes:
        before, after: the metric right after pruning, and after fine-tuning.
        constant: which of ``before`` and ``after`` are of a model, in one seed or more, that gives
            the same output for every example.
    """

    before: Spread
    after: Spread | None
    constant: frozenset[str] = frozenset()


def cell(rows: Sequence[Row], score: str, percent: float) -> Cell:
    """Mean and standard deviation over seeds.

    A plan that is the same for all seeds has one value before fine-tuning, and no spread there.
    """
    mine = [row for row in rows if row.score == score and row.percent == percent]
    plans = {str(row.plan) for row in mine}
    before = [row.before for row in mine]
    after = [row.after for row in mine if row.after is not None]
    constant = {
        *("before" for row in mine if row.constant_before),
        *("after" for row in mine if row.after is not None and row.constant),
    }
    return Cell(
        before=spread(before if len(plans) > 1 else before[:1]),
        after=spread(after) if after else None,
        constant=frozenset(constant),
    )
