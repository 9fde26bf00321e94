"""Result files of GLUE: one JSON file for each classifier that was fine-tuned."""

from __future__ import annotations

from dataclasses import dataclass

from headprune.report.record import Record, outside

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

    def _problem(self) -> str | None:
        metrics = {"value": self.value, **self.metrics}
        problems = (outside(name, number, -100, 100) for name, number in metrics.items())
        return super()._problem() or next(filter(None, problems), None)
