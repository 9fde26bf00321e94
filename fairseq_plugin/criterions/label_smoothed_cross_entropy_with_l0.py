"""The criterion ``label_smoothed_cross_entropy_with_l0``: closes a model's learned gates."""

# No `from __future__ import annotations`: fairseq reads the fields' types as types, not as text.
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.dataclass import ChoiceEnum
from fairseq.logging import metrics
from torch import Tensor

from fairseq_plugin.learned_gates import target_budget
from fairseq_plugin.shape import sizes_of
from headprune.budget import MEASURES
from headprune.errors import UsageError
from headprune.gates.closing import ClosedGates, closed
from headprune.gates.learned import LearnedGates
from headprune.gates.penalty import L0Penalty, Penalty, TargetPenalty, require_warmup

NAME = "label_smoothed_cross_entropy_with_l0"


@dataclass
class L0CriterionConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of the criterion."""

    l0_lambda: Optional[float] = field(
        default=None,
        metadata={
            "help": "weight of the expected number of open gates in the loss (Voita et al. 2019)"
        },
    )
    l0_target: Optional[str] = field(
        default=None,
        metadata={
            "help": "instead of --l0-lambda: the share of the gated units to prune, 60%%; a "
            "Lagrange multiplier steers the gates to it (Xia et al. 2022)"
        },
    )
    l0_target_of: ChoiceEnum(MEASURES) = field(  # type: ignore[valid-type]
        default="units",
        metadata={"help": "what --l0-target is a share of"},
    )
    l0_warmup_updates: int = field(
        default=0,
        metadata={
            "help": "updates during which --l0-target rises evenly from the share that is "
            "pruned already"
        },
    )


@register_criterion(NAME, dataclass=L0CriterionConfig)
class LabelSmoothedCrossEntropyWithL0(LabelSmoothedCrossEntropyCriterion):
    """fairseq's label-smoothed cross-entropy, and a penalty on open gates while training.

    The reported loss does not contain the penalty, so that it compares with other trainings. The
    log has the expected number of open units of each component (``open_ES``), and in validations
    the number that the deterministic gates keep (``kept_ES``). With a target, which closes more
    gates or fewer, validations also have the loss after closing (``closed_loss``).

    Raises:
        UsageError: not one of ``l0_lambda`` and ``l0_target``, or a value that is out of range.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        l0_lambda: Optional[float] = None,
        l0_target: Optional[str] = None,
        l0_target_of: str = "units",
        l0_warmup_updates: int = 0,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        if (l0_lambda is None) == (l0_target is None):
            raise UsageError(f"--criterion {NAME}: give one of --l0-lambda and --l0-target")
        if l0_lambda is not None and (l0_warmup_updates or str(l0_target_of) != "units"):
            raise UsageError("--l0-target-of and --l0-warmup-updates go with --l0-target")
        require_warmup(l0_warmup_updates)
        self.fixed = None if l0_lambda is None else L0Penalty(l0_lambda)
        self.budget = None if l0_target is None else target_budget(l0_target, str(l0_target_of))
        self.warmup = l0_warmup_updates
        self._penalty: Penalty | None = None
        # The gates of an update, closed: one outcome for all batches of a validation.
        self._closed: tuple[int, ClosedGates] | None = None

    def forward(self, model: Any, sample: Any, reduce: bool = True) -> tuple[Any, int, Any]:
        """The loss, sample size and logging output, as fairseq's criteria return them."""
        gates: LearnedGates | None = getattr(model, "gates", None)
        if gates is None:
            raise UsageError(
                f"--criterion {NAME}: the model has no gates; give --arch transformer_headpruned "
                "and --gates, for example --gates ES,ED,DS"
            )
        if self._penalty is None:
            self._penalty = self._penalty_for(model, gates)
        if model.training:
            gates.constrain()
        loss, sample_size, log = super().forward(model, sample, reduce=reduce)
        penalty = self._penalty(gates, update=model.num_updates)
        if model.training:
            loss = loss + sample_size * penalty
        log |= self._report(gates, penalty.detach())
        if self.budget is not None and not model.training:
            log["closed_loss"] = self._closed_loss(model, gates, sample)
        return loss, sample_size, log

    def _penalty_for(self, model: Any, gates: LearnedGates) -> Penalty:
        if self.budget is None:
            assert self.fixed is not None
            return self.fixed
        return TargetPenalty.of_plan(
            gates.plan, self.budget, warmup=self.warmup, sizes=lambda: sizes_of(model.args)
        )

    def _closed_loss(self, model: Any, gates: LearnedGates, sample: Any) -> Tensor:
        """The loss of the model that `headprune gates` would write now, summed over tokens."""
        if self._closed is None or self._closed[0] != model.num_updates:
            outcome = closed(gates, target=self.budget, sizes=lambda: sizes_of(model.args))
            self._closed = (model.num_updates, outcome)
        with gates.set_to(self._closed[1].values):
            loss, _ = self.compute_loss(model, model(**sample["net_input"]), sample)
        return loss.detach()  # type: ignore[no-any-return]  # fairseq has no types

    def _report(self, gates: LearnedGates, penalty: Tensor) -> dict[str, Any]:
        """Numbers for the log; ``gates`` counts the batches that they are summed over."""
        report: dict[str, Any] = {"gates": 1, "l0_loss": penalty}
        for component, number in gates.expected_open().items():
            report[f"open_{component}"] = number.detach()
        if not gates.training:
            for component, layers in gates.values().items():
                report[f"kept_{component}"] = sum(z > 0 for layer in layers for z in layer)
        if isinstance(self._penalty, TargetPenalty):
            share = self._penalty.share(gates.probabilities()).detach()
            report |= {"l0_pruned": 100 * (1 - share), "l0_multiplier": gates.multiplier.clone()}
        return report

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Aggregate the logging outputs of batches and workers."""
        super().reduce_metrics(logging_outputs)
        batches = sum(log.get("gates", 0) for log in logging_outputs)
        for name in logging_outputs[0]:
            if batches and name.startswith(("open_", "kept_", "l0_")):
                total = float(sum(log.get(name, 0) for log in logging_outputs))
                metrics.log_scalar(name, total / batches, batches, round=3)
        if "closed_loss" in logging_outputs[0]:
            total = float(sum(log["closed_loss"] for log in logging_outputs))
            size = sum(log["sample_size"] for log in logging_outputs)
            metrics.log_scalar("closed_loss", total / size / math.log(2), size, round=3)
