"""Settings of a run, and the labels of its result in a study."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from headprune.errors import UsageError
from headprune.form import Form
from headprune.plan import HeadPlan
from headprune.recovery.distillation import Distillation
from headprune.recovery.variant import PLAIN, Variant
from headprune.results.signature import require_field
from hf_plugin.finetuning.held_out import TrainingPart
from hf_plugin.finetuning.pooling import POOLINGS
from hf_plugin.finetuning.training import Schedule
from hf_plugin.glue.data import GlueData
from hf_plugin.glue.tasks import task_named
from hf_plugin.tasks.own import OwnData
from hf_plugin.tasks.task import LabelledData, cut_name

FORMS = tuple(form.value for form in Form)
KINDS = ("control", "pruned", "before-finetune")
"""Kinds of records. There is no baseline, because the pretrained encoder has no classifier."""
PROTOCOLS = ("prune-finetune", "finetune-prune-finetune")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings that determine the outcome of a run.

    Attributes:
        task: a name in ``tasks.TASKS``; with ``own``, the name of its task.
        model: folder of the pretrained model and its tokenizer, or its name on the hub.
        plan: the heads to keep; None keeps all heads of the model.
        form: ``remove``, ``mask`` or ``uniform``.
        protocol: ``prune-finetune``, or ``finetune-prune-finetune``, which fine-tunes for the same
            number of epochs before pruning too.
        epochs: number of epochs of each fine-tuning; 0 measures a fine-tuned model as it is, or
            right after pruning.
        batch_size, learning_rate: batch size and highest learning rate of the fine-tuning.
        max_length: maximum length of an example in tokens.
        seed: seed of the classifier's initialisation, the data order and dropout.
        data_dir: see ``data.load_splits``; None for the hub, or for the generated task.
        max_train_examples: size of the random subset to train on; None for the whole set.
        hold_out: percentage of the training set that is held out for scores; see ``held_out``.
        pooling: a name in ``pooling.POOLINGS``.
        bf16: whether to compute in bfloat16 where it is precise enough (autocast).
        weight_decay, adam_epsilon: see ``training.Schedule``.
        own: the user's data; None for a task of GLUE.
        distill_from: the teacher of the fine-tuning after pruning, a folder or a name on the hub;
            None for none.
        distillation: the weights of the loss with a teacher.
        variant: learned gates, LayerDrop or random weights in the fine-tuning after pruning.
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
    weight_decay: float = 0.0
    adam_epsilon: float = 1e-8
    own: OwnData | None = None
    distill_from: str | None = None
    distillation: Distillation = Distillation()
    variant: Variant = PLAIN

    @property
    def schedule(self) -> Schedule:
        """Schedule of each fine-tuning."""
        return Schedule(
            epochs=self.epochs,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            seed=self.seed,
            bf16=self.bf16,
            weight_decay=self.weight_decay,
            adam_epsilon=self.adam_epsilon,
        )

    @property
    def finetune(self) -> str:
        """Length of the fine-tuning, in the notation of signatures."""
        if not self.epochs:
            return "none"
        once = f"{self.epochs:g}ep"
        length = once if self.protocol == "prune-finetune" else f"{once}+{once}"
        penalty, speed = self.variant.l0_lambda, self.variant.gates_speed
        variant = [
            *(["from-scratch"] if self.variant.from_scratch else []),
            *([f"layerdrop={self.variant.layerdrop:g}"] if self.variant.layerdrop else []),
            *([] if penalty is None else [f"l0-lambda={penalty:g}"]),
            *([] if speed is None else [f"gates-speed={speed:g}"]),
            *([] if self.pooling == "first" else [f"{self.pooling}-pooled"]),
        ]
        return ",".join([length, *variant])

    @property
    def data_name(self) -> str:
        """Name of the data, in the notation of signatures."""
        parts = [] if self.max_train_examples is None else [f"{self.max_train_examples}"]
        parts += [f"-{self.hold_out:g}%"] if self.hold_out else []
        name = self.data.name(part=f"[{','.join(parts)}]" if parts else "")
        return cut_name(name, self.max_length)

    @property
    def data(self) -> LabelledData:
        """The task and its examples."""
        return self.own or GlueData(task_named(self.task), self.data_dir)

    @property
    def training_part(self) -> TrainingPart:
        """Part of the training set that the fine-tuning uses."""
        return TrainingPart(self.max_train_examples, self.hold_out)

    def as_json(self) -> dict[str, Any]:
        """Convert the settings to JSON values."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        plan, data_dir, own = self.plan, self.data_dir, values.pop("own")
        teacher, distillation = values.pop("distill_from"), values.pop("distillation")
        del values["variant"]
        return (
            values
            | self.variant.as_settings()
            | ({} if own is None else {"own": own.as_json()})
            | ({} if teacher is None else {"distill_from": teacher} | distillation.as_settings())
            | {
                "plan": None if plan is None else json.loads(plan.to_json(with_origin=False)),
                "data_dir": None if data_dir is None else str(data_dir),
            }
        )

    def check(self) -> None:
        """Raise a UsageError if settings are invalid or contradict each other."""
        for name, value, choices in (
            ("form", self.form, FORMS),
            ("protocol", self.protocol, PROTOCOLS),
            ("pooling", self.pooling, POOLINGS),
        ):
            if value not in choices:
                raise UsageError(f"{name}: {value!r} is not one of {', '.join(choices)}")
        if self.protocol != PROTOCOLS[0] and not self.epochs:
            raise UsageError(f"{self.protocol} needs one epoch or more")
        if not 0 < self.learning_rate < math.inf:
            raise UsageError(f"learning rate {self.learning_rate:g}: give one above 0")
        if not 0 <= self.weight_decay < math.inf:
            raise UsageError(f"weight decay {self.weight_decay:g}: give a number from 0")
        if not 0 < self.adam_epsilon < math.inf:
            raise UsageError(f"epsilon {self.adam_epsilon:g}: give one above 0")
        if not 0 <= self.epochs < math.inf:
            raise UsageError(f"{self.epochs:g} epochs: give a number from 0")
        if self.pooling != "first" and not self.epochs:
            raise UsageError(f"pooling {self.pooling}: the classifier must be trained for it")
        if not 0 <= self.hold_out < 100:
            raise UsageError(f"hold-out {self.hold_out:g}%: give a percentage from 0, below 100")
        if self.distill_from is not None and not self.epochs:
            raise UsageError(f"--distill-from {self.distill_from}: give one epoch or more")
        if self.variant != PLAIN and not self.epochs:
            raise UsageError(f"{', '.join(self.variant.as_settings())}: give one epoch or more")
        if self.variant.gates is not None and self.distill_from is not None:
            raise UsageError("--gates and --distill-from exclude each other; give one")
        if self.variant.gates is not None and self.form != "remove":
            raise UsageError(
                f"--gates: the form {self.form} is for given plans; give --form remove"
            )
        if self.form != "remove" and self.plan is None:
            raise UsageError(f"--form {self.form}: nothing is pruned; give a plan too")
        if self.batch_size < 1:
            raise UsageError(f"batch size {self.batch_size}: give one from 1")
        if not 0 <= self.seed < 2**32:
            raise UsageError(f"seed {self.seed}: give one from 0 to {2**32 - 1}")


@dataclass(frozen=True, kw_only=True)
class Labels:
    """Labels of a result in a study; see ``Record``.

    The task that is None has the name of its data; other labels that are None follow from the plan.
    """

    study: str = ""
    task: str | None = None
    kind: str | None = None
    row: str | None = None
    requested_percent: float | None = None
    select: str | None = None

    def check(self, plan: HeadPlan | None) -> None:
        """Raise a UsageError if the kind is unknown or contradicts the plan, or for a bad name."""
        if self.task is not None:
            require_field(self.task, name="--task-name")
        if self.kind is not None and self.kind not in KINDS:
            raise UsageError(f"kind: {self.kind!r} is not one of {', '.join(KINDS)}")
        if self.kind == "control" and plan is not None and not plan.is_full:
            raise UsageError(f"kind: a control keeps all heads, this plan keeps {plan}")
