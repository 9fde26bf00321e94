"""What decides the outcome of a run, and where its result belongs in a study."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headprune.errors import UsageError
from headprune.form import Form
from headprune.plan import HeadPlan
from headprune.report.glue_results import KINDS
from hf_plugin.glue.held_out import TrainingPart
from hf_plugin.glue.pooling import POOLINGS
from hf_plugin.glue.tasks import task_named
from hf_plugin.glue.training import Schedule

FORMS = tuple(form.value for form in Form)
PROTOCOLS = ("prune-finetune", "finetune-prune-finetune")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What decides the outcome of a run.

    Attributes:
        task: a name of ``tasks.TASKS``.
        model: folder of the pretrained model, with its tokenizer, or its name on the hub.
        plan: the heads to keep; without one, all that the model has.
        form: ``remove``, ``mask`` or ``uniform``.
        protocol: ``prune-finetune``, or ``finetune-prune-finetune``, which fine-tunes for all
            epochs before pruning too.
        epochs: of each fine-tuning; 0 measures a fine-tuned model as it is, or right after
            pruning.
        data_dir: see ``data.load_splits``; without one the hub, or the generated task.
        max_train_examples: train on a random subset of this size.
        hold_out: percentage of the training set to train without, for scores; see ``held_out``.
        max_length: in tokens.
        pooling: what the classifier reads; see ``pooling.POOLINGS``.
        bf16: compute in bfloat16 where that is precise enough (autocast).
    """

    task: str
    model: str
    plan: HeadPlan | None = None
    form: str = "remove"
    protocol: str = "prune-finetune"
    epochs: float
    batch_size: int
    learning_rate: float
    max_length: int
    seed: int = 1
    data_dir: Path | None = None
    max_train_examples: int | None = None
    hold_out: float = 0.0
    pooling: str = "first"
    bf16: bool = False

    @property
    def schedule(self) -> Schedule:
        """How the model is fine-tuned."""
        return Schedule(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=self.seed,
            bf16=self.bf16,
        )

    @property
    def finetune(self) -> str:
        """The length of the fine-tuning, as signatures write it."""
        if not self.epochs:
            return "none"
        once = f"{self.epochs:g}ep"
        length = once if self.protocol == "prune-finetune" else f"{once}+{once}"
        return length if self.pooling == "first" else f"{length},{self.pooling}-pooled"

    @property
    def data_name(self) -> str:
        """The data, as signatures write it."""
        parts = [] if self.max_train_examples is None else [f"{self.max_train_examples}"]
        parts += [f"-{self.hold_out:g}%"] if self.hold_out else []
        return task_named(self.task).data_name + (f"[{','.join(parts)}]" if parts else "")

    @property
    def training_part(self) -> TrainingPart:
        """The examples of the training set that the fine-tuning uses."""
        return TrainingPart(self.max_train_examples, self.hold_out)

    def as_json(self) -> dict[str, Any]:
        """The settings as JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plan, data_dir = self.plan, self.data_dir
        return values | {
            "plan": None if plan is None else json.loads(plan.to_json()),
            "data_dir": None if data_dir is None else str(data_dir),
        }

    def check(self) -> None:
        """Raise a UsageError where the settings make no sense by themselves."""
        for name, value, known in (
            ("form", self.form, FORMS),
            ("protocol", self.protocol, PROTOCOLS),
            ("pooling", self.pooling, POOLINGS),
        ):
            if value not in known:
                raise UsageError(f"{name}: {value!r} is not one of {', '.join(known)}")
        if self.protocol != PROTOCOLS[0] and not self.epochs:
            raise UsageError(f"{self.protocol} needs one epoch or more")
        if not 0 < self.learning_rate < math.inf:
            raise UsageError(f"learning rate {self.learning_rate:g}: give one above 0")
        if not 0 <= self.epochs < math.inf:
            raise UsageError(f"{self.epochs:g} epochs: give a number from 0")
        if self.pooling != "first" and not self.epochs:
            raise UsageError(f"pooling {self.pooling}: the classifier must be trained for it")
        if not 0 <= self.hold_out < 100:
            raise UsageError(f"hold-out {self.hold_out:g}%: give a percentage from 0, below 100")
        if self.batch_size < 1:
            raise UsageError(f"batch size {self.batch_size}: give one from 1")
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"seed {self.seed}: give one from 0 to {2**32 - 1}")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Where a result belongs in a study; see ``Record``. What is None follows from the plan."""

    study: str = ""
    kind: str | None = None
    row: str | None = None
    requested_percent: float | None = None
    select: str | None = None

    def check(self, plan: HeadPlan | None) -> None:
        """Raise a UsageError where the kind is unknown, or contradicts the plan."""
        if self.kind is not None and self.kind not in KINDS:
            raise UsageError(f"kind: {self.kind!r} is not one of {', '.join(KINDS)}")
        if self.kind == "control" and plan is not None and not plan.is_full:
            raise UsageError(f"kind: a control keeps all heads, this plan keeps {plan}")
