"""The criterion ``label_smoothed_cross_entropy_with_distillation``: learn from a teacher too."""

# No `from __future__ import annotations`: fairseq reads the fields' types as types, not as text.
import math
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Optional

import torch
from fairseq.criterions import register_criterion
from fairseq.criterions.label_smoothed_cross_entropy import (
    LabelSmoothedCrossEntropyCriterion,
    LabelSmoothedCrossEntropyCriterionConfig,
)
from fairseq.logging import metrics
from fairseq.models.transformer import TransformerModel
from torch import Tensor

from fairseq_plugin import autocast
from fairseq_plugin.scores.model import FairseqModel
from fairseq_plugin.teacher import load_teacher
from headprune.divergences import divergence
from headprune.errors import UsageError
from headprune.recovery.distillation import Distillation
from headprune.recovery.distillation_loss import (
    LayerOutputs,
    hidden_difference,
    recorded,
    require_comparable,
)

NAME = "label_smoothed_cross_entropy_with_distillation"

_DEFAULT = Distillation()


@dataclass
class DistillationCriterionConfig(LabelSmoothedCrossEntropyCriterionConfig):
    """Options of the criterion."""

    distill_from: Optional[str] = field(
        default=None,
        metadata={"help": "checkpoint of the teacher, usually the unpruned model"},
    )
    distill_weight: float = field(
        default=_DEFAULT.weight,
        metadata={
            "help": "share of the loss, from 0 to 1, that compares the distribution of each target "
            "token with the teacher's (Kim and Rush 2016); the loss on the labels has the rest"
        },
    )
    distill_temperature: float = field(
        default=_DEFAULT.temperature,
        metadata={"help": "temperature of the two distributions, above 0 (Hinton et al. 2015)"},
    )
    distill_hidden: float = field(
        default=_DEFAULT.hidden,
        metadata={
            "help": "weight of the mean squared difference of hidden states after each layer that "
            "both models have"
        },
    )


@register_criterion(NAME, dataclass=DistillationCriterionConfig)
class LabelSmoothedCrossEntropyWithDistillation(LabelSmoothedCrossEntropyCriterion):
    """fairseq's label-smoothed cross-entropy, and a teacher's part while training.

    The reported loss is that on the labels alone, so that it compares with other trainings; the
    log has the divergence from the teacher a token (``distill_loss``, base 2) and the difference of
    hidden states (``hidden_loss``).

    The teacher is loaded before the first update. It is no module of the criterion, so
    neither checkpoints nor the optimizer see it.

    Raises:
        UsageError: no teacher, or a number out of its range.
    """

    def __init__(
        self,
        task: Any,
        sentence_avg: bool,
        label_smoothing: float,
        ignore_prefix_size: int = 0,
        report_accuracy: bool = False,
        distill_from: Optional[str] = None,
        distill_weight: float = _DEFAULT.weight,
        distill_temperature: float = _DEFAULT.temperature,
        distill_hidden: float = _DEFAULT.hidden,
    ) -> None:
        super().__init__(task, sentence_avg, label_smoothing, ignore_prefix_size, report_accuracy)
        if not distill_from:
            raise UsageError(f"--criterion {NAME}: give --distill-from, the teacher's checkpoint")
        self.distillation = Distillation(
            weight=distill_weight, temperature=distill_temperature, hidden=distill_hidden
        )
        self.distill_from = distill_from
        # Lists, as attributes would become sub-modules.
        self._loaded: list[TransformerModel] = []
        self._pairs: list[_Pair] = []

    def train(self, mode: bool = True) -> "LabelSmoothedCrossEntropyWithDistillation":
        """Load the teacher before the first update: for errors in it fairseq writes crash.pt."""
        if mode and self.distillation.needs_teacher:
            self._teacher()
        super().train(mode)
        return self

    def forward(self, model: Any, sample: Any, reduce: bool = True) -> tuple[Any, int, Any]:
        """The loss, sample size and logging output, as fairseq's criteria return them."""
        chosen = self.distillation
        if not (model.training and reduce and chosen.needs_teacher):
            return super().forward(model, sample, reduce=reduce)  # type: ignore[no-any-return]
        pair = self._pair(model, sample)
        outputs: list[Any] = []
        with ExitStack() as stack:
            if pair.hidden:
                of_student = stack.enter_context(recorded(pair.hidden[0].layers))
                of_teacher = stack.enter_context(recorded(pair.hidden[1].layers))
            hook = model.register_forward_hook(lambda _, __, output: outputs.append(output))
            stack.callback(hook.remove)
            loss, sample_size, log = super().forward(model, sample, reduce=reduce)
            with torch.no_grad():
                targets = pair.teacher(**sample["net_input"])[0]  # B x T x V
        soft = self._divergence(outputs[-1][0], targets, model.get_targets(sample, outputs[-1]))
        loss = (1 - chosen.weight) * loss + chosen.weight * soft
        log |= {"distillations": 1, "distill_loss": soft.detach()}
        if pair.hidden:
            difference = _difference(pair.hidden[0], of_student, of_teacher, sample).to(loss)
            loss = loss + sample_size * chosen.hidden * difference
            log["hidden_loss"] = difference.detach()
        return loss, sample_size, log

    def _divergence(self, logits: Tensor, targets: Tensor, labels: Tensor) -> Tensor:
        """The sum of the divergences of all target tokens; logits B x T x V, labels B x T."""
        counted = labels.ne(self.padding_idx)
        counted[:, : self.ignore_prefix_size] = False
        temperature = self.distillation.temperature
        return divergence(logits[counted], targets[counted], temperature=temperature).sum()

    def _teacher(self) -> TransformerModel:
        if not self._loaded:
            self._loaded.append(load_teacher(self.distill_from, self.task))
        return self._loaded[0]

    def _pair(self, model: Any, sample: Any) -> "_Pair":
        if not self._pairs:
            self._pairs.append(self._load(_unwrapped(model), sample["target"].device))
        return self._pairs[0]

    def _load(self, student: Any, device: torch.device) -> "_Pair":
        if getattr(student.decoder, "adaptive_softmax", None) is not None:
            raise UsageError(f"--criterion {NAME}: not with --adaptive-softmax-cutoff")
        is_on = autocast.is_on(getattr(student, "cfg", None))
        teacher = self._teacher()
        for part in (teacher.encoder, teacher.decoder):
            part.cfg.autocast = "bf16" if is_on else "none"
        # With --fp16 and --bf16 fairseq casts the student.
        teacher.to(device=device, dtype=next(student.parameters()).dtype)
        if not self.distillation.hidden:
            return _Pair(teacher)
        if not hasattr(student, "plan"):
            raise UsageError("--distill-hidden needs --arch transformer_headpruned")
        parts = FairseqModel(student), FairseqModel(teacher)
        require_comparable(parts[0].layers, parts[1].layers)
        return _Pair(teacher, parts)

    @classmethod
    def reduce_metrics(cls, logging_outputs: Sequence[dict[str, Any]]) -> None:
        """Aggregate the logging outputs of batches and workers."""
        super().reduce_metrics(logging_outputs)
        batches = sum(log.get("distillations", 0) for log in logging_outputs)
        if not batches:
            return
        tokens = float(sum(log.get("ntokens", 0) for log in logging_outputs))
        total = float(sum(log.get("distill_loss", 0) for log in logging_outputs))
        metrics.log_scalar("distill_loss", total / tokens / math.log(2), tokens, round=3)
        if "hidden_loss" in logging_outputs[0]:
            total = float(sum(log.get("hidden_loss", 0) for log in logging_outputs))
            metrics.log_scalar("hidden_loss", total / batches, batches, round=4)


@dataclass(frozen=True)
class _Pair:
    """The teacher, and where hidden states are compared the parts of student and teacher."""

    teacher: TransformerModel
    hidden: tuple[FairseqModel, FairseqModel] | None = None


def _difference(
    student: FairseqModel, of_student: LayerOutputs, of_teacher: LayerOutputs, sample: Any
) -> Tensor:
    return hidden_difference(
        of_student,
        of_teacher,
        tokens=lambda component: student.queries(component, sample),
        batch_dim=student.batch_dim,
    )


def _unwrapped(model: Any) -> Any:
    """The model inside fairseq's wrappers for distributed training."""
    while isinstance(getattr(model, "module", None), torch.nn.Module):
        model = model.module
    return model
