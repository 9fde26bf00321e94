"""Result files of GLUE: one JSON file for each classifier that was fine-tuned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from headprune.report.record import Record, are_numbers

KINDS = ("control", "pruned", "before-finetune")
"""The unpruned model, fine-tuned; a pruned and fine-tuned one; one right after pruning."""


@dataclass(frozen=True, kw_only=True)
class GlueResult(Record):
    """What was measured of one model on one task's development set.

    Attributes:
        task: the task's name on the command line, such as `sst2`.
        form: how its heads are pruned: `remove`, `mask`, `uniform`; `none` where none is;
            `remove+uniform` where some are in the one way and some in the other.
        model: the pretrained model that it comes from.
        metric: the name of the task's first metric, as in `metrics`.
        value: that metric, 0 to 100 (correlations -100 to 100).
        metrics: all metrics of the task, in the same unit; for MNLI those of the mismatched set
            begin with `mismatched_`.
        examples: number of examples of each split that was used.
        epochs, batch_size, learning_rate, max_length: of the fine-tuning.
        predictions: the file with the predictions, relative to the result file's folder.
        training: facts about the training, such as `parameters` (weights of the model).
    """

    format = "headprune.glue-result"
    kinds = KINDS

    task: str
    form: str
    model: str
    metric: str
    value: float
    metrics: dict[str, float]
    examples: dict[str, int]
    epochs: float
    batch_size: int
    learning_rate: float
    max_length: int
    predictions: str
    training: dict[str, Any] = field(default_factory=dict)

    @property
    def parameters(self) -> int | None:
        """Number of weights of the model, where it is known."""
        return self.training.get("parameters")

    def _makes_sense(self) -> bool:
        objects = (self.plan, self.metrics, self.examples, self.training)
        return (
            super()._makes_sense()
            and all(isinstance(value, dict) for value in objects)
            and are_numbers(self.value, *self.metrics.values())
        )
