"""The models of a translation study, each with the folder that its files are in."""

from __future__ import annotations

from dataclasses import dataclass

from studies.plans import Row

BASELINE = "baseline"
GATES = "gates"
"""The folder of the models that were trained with gates."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """One model that is measured.

    Attributes:
        kind: the kind of its record: `baseline`, `control`, `pruned`, `scratch` or
            `before-finetune`.
        row: its row; the control's for the baseline.
        seed: the seed of its plan and training.
        finetune: the length of the training after pruning, as in signatures.
    """

    kind: str
    row: Row
    seed: int
    finetune: str

    @property
    def folder(self) -> str:
        """Its folder in the run folder."""
        if self.kind == BASELINE:
            return self.kind
        folder = "finetuned" if self.kind in ("control", "pruned") else self.kind
        if self.row.learns_gates:
            folder = GATES
        return f"{folder}/{self.row.key}/seed{self.seed}"

    @property
    def label(self) -> str:
        """The row's label in its record."""
        return self.kind if self.kind == BASELINE else self.row.label

    @property
    def is_trained(self) -> bool:
        """True if the model has a training of its own."""
        return self.kind != "before-finetune"
