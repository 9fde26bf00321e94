"""Results of exports whose outputs were compared with the model's."""

from __future__ import annotations

from dataclasses import dataclass

from headprune.plan import PruningPlan
from hf_plugin.random_batches import SHAPES


@dataclass(frozen=True, kw_only=True)
class CheckedExport:
    """The result of an export.

    Attributes:
        plan: the units that the model keeps.
        contents: the written model, in words.
        difference: the largest difference of an output, relative to the largest of the outputs
            where that is above 1.
    """

    plan: PruningPlan
    contents: str
    difference: float

    def __str__(self) -> str:
        return (
            f"{self.plan}, {self.contents}; outputs differ by at most {self.difference:.1e} "
            f"({len(SHAPES)} batches of random tokens)"
        )
