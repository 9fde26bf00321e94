"""The kinds of recovery."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from headprune.recovery.refit import Target

BEFORE = "before"
"""The moment of measurements right after pruning, before any recovery."""


class Recovery(StrEnum):
    """The treatment of a model after pruning."""

    NONE = "none"
    FINETUNE = "finetune"
    REFIT = "refit"
    REFIT_RESIDUAL = "refit-residual"
    DISTILL = "distill"
    DISTILL_SEQUENCES = "distill-sequences"
    SCRATCH = "scratch"

    @property
    def trains(self) -> bool:
        """True if it is a training."""
        return self not in (Recovery.NONE, Recovery.REFIT, Recovery.REFIT_RESIDUAL)

    @property
    def refit_target(self) -> Target | None:
        """The target of a re-fitting; None for other recoveries."""
        if self is Recovery.REFIT_RESIDUAL:
            return "residual"
        return "output" if self is Recovery.REFIT else None

    @property
    def moment(self) -> str:
        """The moment of a measurement after it: ``after re-fitting``."""
        return {
            Recovery.NONE: "right after pruning",
            Recovery.FINETUNE: "after fine-tuning",
            Recovery.REFIT: "after re-fitting",
            Recovery.REFIT_RESIDUAL: "after re-fitting with the residual connection",
            Recovery.DISTILL: "after distillation",
            Recovery.DISTILL_SEQUENCES: "after sequence-level distillation",
            Recovery.SCRATCH: "trained from scratch in the pruned shape",
        }[self]


def is_untrained(moment: str) -> bool:
    """Tell if no training belongs to a moment: ``BEFORE``, or after a recovery without training."""
    return moment == BEFORE or not Recovery(moment).trains


def refit_name(recovery: Recovery, calibrated_on: int | None) -> str:
    """A re-fit in signatures, with the number of its examples where it is known.

    >>> refit_name(Recovery.REFIT, 500), refit_name(Recovery.REFIT, None)
    ('refit[500]', 'refit')
    """
    return str(recovery) if calibrated_on is None else f"{recovery}[{calibrated_on}]"


def words_for(moment: str) -> str:
    """A moment in words: ``BEFORE``, or the name of the recovery that has ended.

    >>> words_for("before"), words_for("refit")
    ('right after pruning', 'after re-fitting')
    """
    return (Recovery.NONE if moment == BEFORE else Recovery(moment)).moment
