"""A classifier to compare scores on."""

from __future__ import annotations

import copy
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from headprune.compare.subject import Cost, Measurement
from headprune.compare.turns import taking_turns
from headprune.cost import forward_flops
from headprune.errors import DataError, UsageError
from headprune.plan import HeadPlan
from headprune.report.marks import is_constant
from headprune.scores.compute import Watch
from headprune.scores.head_scores import HeadScores
from hf_plugin.families import attentions
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.folders import Folder
from hf_plugin.glue.data import load_splits
from hf_plugin.glue.metrics import measure
from hf_plugin.glue.models import load_classifier, require_length
from hf_plugin.glue.run import run
from hf_plugin.glue.settings import Labels, Settings
from hf_plugin.glue.tasks import Task, task_named
from hf_plugin.glue.training import encode
from hf_plugin.modeling import prune_heads
from hf_plugin.places import device
from hf_plugin.scores.model import HuggingFaceModel, on_device_of
from hf_plugin.scores.run import batches_of, score_heads
from hf_plugin.tokenizers import load_tokenizer

_TIMED_BATCHES = 4


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """Implements ``headprune.compare.subject.Subject`` for a task of GLUE.

    Scores are computed on training examples that no fine-tuning uses, the metric on the (first)
    development set.

    Attributes:
        path: folder of the fine-tuned model.
        finetuning: how to fine-tune after pruning: settings with the task, the data, the length in
            tokens, and the number of epochs, 0 for not at all.
        max_examples: compute scores on a random subset of so many.
        watch: of ``score_heads``.
    """

    path: Path
    finetuning: Settings
    max_examples: int | None = None
    watch: Watch = field(default=lambda batches, *_: batches, compare=False)

    def __post_init__(self) -> None:
        if "uniform" in self._folder.form:
            raise UsageError(
                f"{self.path}: has uniform heads, which would be removed with the pruned ones; "
                "give the unpruned model"
            )

    @property
    def name(self) -> str:
        """The folder."""
        return str(self.path)

    @property
    def metric(self) -> str:
        """The task's first metric."""
        return self._task.metrics[0]

    @property
    def plan(self) -> HeadPlan:
        """The heads that the model has left."""
        return self._folder.plan

    @property
    def data_name(self) -> str:
        """The task, and how much of its training set."""
        return self.finetuning.data_name

    @property
    def finetune_name(self) -> str:
        """The number of epochs."""
        return self.finetuning.finetune

    @property
    def can_finetune(self) -> bool:
        """Whether there are epochs to fine-tune for."""
        return self.finetuning.epochs > 0

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """All that decides the outcome."""
        chosen = self.finetuning.as_json()
        for name in ("plan", "seed", "model"):
            del chosen[name]
        return {
            **chosen,
            "fingerprint": model_fingerprint(self._model),
            "max_examples": self.max_examples,
        }

    def scores(self, names: Sequence[str], *, seed: int) -> dict[str, HeadScores]:
        """Scores on training examples that neither this model nor its fine-tunings use."""
        return score_heads(
            str(self.path),
            scores=names,
            task=self.finetuning.task,
            data_dir=self.finetuning.data_dir,
            max_examples=self.max_examples,
            max_length=self.finetuning.max_length,
            parts=[self.finetuning.training_part] if self.can_finetune else [],
            seed=seed,
            metric=self._task.metric_of_ablation,
            watch=self.watch,
        )

    @torch.no_grad()
    def measure(self) -> Measurement:
        """The metric on the development set, in percent."""
        scored = HuggingFaceModel(self._model)
        predicted: list[float] = []
        labels: list[float] = []
        with scored.evaluating():
            for batch in self._batches():
                logits = self._model(**batch).logits
                if not bool(logits.isfinite().all()):
                    raise DataError(f"{self.path}: its outputs are not finite (NaN or infinity)")
                chosen = logits.squeeze(-1) if self._task.range else logits.argmax(-1)
                predicted += chosen.tolist()
                labels += batch["labels"].tolist()
        metrics = measure(self._task.metrics, labels=labels, predictions=predicted)
        constant = is_constant(predicted, labels)
        if constant:
            print(f"warning: {self.path} predicts the same for every example", file=sys.stderr)
        return Measurement(metrics[self.metric], constant)

    def pruned(self, plan: HeadPlan, folder: Path) -> Classifier:
        """The model with the heads of ``plan`` alone."""
        Folder.load(self.path).prune(plan, form="remove").save(folder)
        return replace(self, path=folder)

    def finetuned(self, plan: HeadPlan, *, seed: int, folder: Path) -> Classifier:
        """The same, fine-tuned."""
        settings = replace(self.finetuning, model=str(self.path), plan=plan, seed=seed)
        with redirect_stdout(sys.stderr):  # the Trainer's words on its progress
            run(settings, Labels(), folder)
        return replace(self, path=folder / "model")

    def cost(self, plan: HeadPlan) -> Cost:
        """What the model costs with the heads of ``plan`` alone."""
        pruned = sum(
            (attention.heads - len(kept)) * attention.head_parameters
            for name, layers in attentions(self._folder.outline).items()
            for attention, kept in zip(layers, plan.kept[name], strict=True)
        )
        return Cost(
            parameters=self._folder.unpruned_parameters - pruned,
            flops=forward_flops(plan, self._folder.sizes),
        )

    @torch.no_grad()
    def seconds(self, plans: Sequence[HeadPlan], *, rounds: int) -> list[list[float]]:
        """How long some batches of the development set take."""
        models = [prune_heads(copy.deepcopy(self._model), plan).eval() for plan in plans]
        batches = self._batches()
        spread = batches[:: max(1, len(batches) // _TIMED_BATCHES)][:_TIMED_BATCHES]

        def work(model: PreTrainedModel) -> None:
            for batch in spread:
                model(**batch)

        return taking_turns([partial(work, model) for model in models], rounds=rounds)

    @property
    def _task(self) -> Task:
        return task_named(self.finetuning.task)

    @cached_property
    def _folder(self) -> Folder:
        return Folder.load(self.path)

    @cached_property
    def _model(self) -> PreTrainedModel:
        model = load_classifier(str(self.path), self._task, untrained=False)
        model.to(device())  # type: ignore[arg-type]
        return model

    def _batches(self) -> list[Mapping[str, torch.Tensor]]:
        split = self._task.dev_splits[0]
        examples = load_splits(self._task, self.finetuning.data_dir, splits=[split])[split]
        if not len(examples):
            raise DataError(f"{self.finetuning.task}: the split {split} is empty")
        tokenizer = load_tokenizer(str(self.path))
        length = self.finetuning.max_length
        require_length(length, self._model, tokenizer, name=self.name)
        encoded = encode(examples, tokenizer, max_length=length)
        batches = batches_of(encoded, tokenizer, size=32)
        return [on_device_of(self._model, batch) for batch in batches]
