"""The kinds of recovery."""

from __future__ import annotations

from enum import StrEnum


class Recovery(StrEnum):
    """The treatment of a model after pruning."""

    NONE = "none"
    FINETUNE = "finetune"
    REFIT = "refit"

    @property
    def moment(self) -> str:
        """The moment of a measurement after it: ``after re-fitting``."""
        return {
            Recovery.NONE: "right after pruning",
            Recovery.FINETUNE: "after fine-tuning",
            Recovery.REFIT: "after re-fitting",
        }[self]

    def words(self, when: str) -> str:
        """The moment of a measurement ``before`` or ``after`` it.

        >>> Recovery.REFIT.words("before"), Recovery.REFIT.words("after")
        ('right after pruning', 'after re-fitting')
        """
        return (Recovery.NONE if when == "before" else self).moment
