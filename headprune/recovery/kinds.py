"""The kinds of recovery."""

from __future__ import annotations

from enum import StrEnum

BEFORE = "before"
"""The moment of measurements right after pruning, before any recovery."""


class Recovery(StrEnum):
    """The treatment of a model after pruning."""

    NONE = "none"
    FINETUNE = "finetune"
    REFIT = "refit"
    DISTILL = "distill"
    SCRATCH = "scratch"

    @property
    def trains(self) -> bool:
        """True if it is a training."""
        return self in (Recovery.FINETUNE, Recovery.DISTILL, Recovery.SCRATCH)

    @property
    def moment(self) -> str:
        """The moment of a measurement after it: ``after re-fitting``."""
        return {
            Recovery.NONE: "right after pruning",
            Recovery.FINETUNE: "after fine-tuning",
            Recovery.REFIT: "after re-fitting",
            Recovery.DISTILL: "after distillation",
            Recovery.SCRATCH: "trained from scratch in the pruned shape",
        }[self]


def words_for(moment: str) -> str:
    """A moment in words: ``BEFORE``, or the name of the recovery that has ended.

    >>> words_for("before"), words_for("refit")
    ('right after pruning', 'after re-fitting')
    """
    return (Recovery.NONE if moment == BEFORE else Recovery(moment)).moment
