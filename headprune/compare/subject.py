"""A trained model as the comparison and iterative pruning see it: a protocol."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from headprune.plan import HeadPlan
from headprune.scores.head_scores import HeadScores


@dataclass(frozen=True)
class Cost:
    """Parameters of a whole model, and floating-point operations of a forward pass of 30 tokens."""

    parameters: int
    flops: int


@dataclass(frozen=True)
class Measurement:
    """The metric of a model.

    Attributes:
        value: of the metric.
        constant: whether the model gives the same output for every example although the
            references differ; None where it is not known.
    """

    value: float
    constant: bool | None = None


class Subject(Protocol):
    """A model, the data it is scored on, and the data it is measured on, which are others."""

    @property
    def name(self) -> str:
        """The folder or file of the model."""

    @property
    def metric(self) -> str:
        """Name of the metric of ``measure``: accuracy, BLEU, ...; high is good."""

    @property
    def plan(self) -> HeadPlan:
        """The heads that the model has left."""

    @property
    def settings(self) -> Mapping[str, Any]:
        """All that decides the outcome of scores, measurements and fine-tunings, as JSON values."""

    @property
    def data_name(self) -> str:
        """The data of fine-tuning and measuring, as signatures write them."""

    @property
    def finetune_name(self) -> str:
        """The length of the fine-tuning, as signatures write it; ``none`` without one."""

    @property
    def can_finetune(self) -> bool:
        """Whether it was said how to fine-tune."""

    def scores(self, names: Sequence[str], *, seed: int) -> dict[str, HeadScores]:
        """Scores of the model; ``ablation`` is of ``metric`` where that can be afforded."""

    def measure(self) -> Measurement:
        """The metric of the model as it is."""

    def pruned(self, plan: HeadPlan, folder: Path) -> Subject:
        """The model with the heads of ``plan`` alone, in a folder that is not there yet."""

    def finetuned(self, plan: HeadPlan, *, seed: int, folder: Path) -> Subject:
        """The same, fine-tuned; goes on in ``folder`` where a fine-tuning was cut short."""

    def cost(self, plan: HeadPlan) -> Cost:
        """What the model costs with the heads of ``plan`` alone."""

    def seconds(self, plans: Sequence[HeadPlan], *, rounds: int) -> list[list[float]]:
        """For each plan, how long the model took in each round, in which all plans take turns."""


def is_resumed(folder: Path) -> bool:
    """Tell if the fine-tuning in ``folder``, about to start, resumes an interrupted one.

    The file ``resumed`` in it keeps the answer over further interruptions.
    """
    mark = folder / "resumed"
    if any(folder.rglob("checkpoint*")):
        mark.touch()
    return mark.exists()
