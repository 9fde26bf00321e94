"""A classifier with its task and data."""

from __future__ import annotations

import copy
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from operator import itemgetter
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel

from headprune.backends import ScoreRequest
from headprune.errors import DataError
from headprune.plan import PruningPlan
from headprune.recovery.calibration import EXAMPLES, Calibration
from headprune.recovery.distillation import DISTILL_SETTINGS
from headprune.recovery.refit import RefittedModel, Target
from headprune.recovery.translated_text import translate_texts
from headprune.recovery.variant import PLAIN, Variant
from headprune.results.marks import is_constant
from headprune.results.record_files import REFERENCE
from headprune.scores.combination import ATTENTION_GUIDED
from headprune.scores.compute import Watch, unwatched
from headprune.scores.head_scores import HeadScores
from headprune.scores.registry import ABLATION
from headprune.speed.turns import taking_turns
from headprune.task_model import Measurement, TaskModel
from hf_plugin.finetuning.held_out import TrainingPart, held_out
from hf_plugin.finetuning.metrics import measure_task, signatures_of
from hf_plugin.finetuning.models import load_classifier, require_length
from hf_plugin.finetuning.notices import warn_of_cut_texts
from hf_plugin.finetuning.run import run
from hf_plugin.finetuning.settings import Labels, Settings
from hf_plugin.finetuning.training import Schedule, encode
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.folders import Folder
from hf_plugin.modeling import prune
from hf_plugin.places import device
from hf_plugin.recovery import calibration_of, refitted
from hf_plugin.scores.losses import predicted_tokens, text_losses
from hf_plugin.scores.model import HuggingFaceModel, on_device_of
from hf_plugin.scores.movement import require_schedule
from hf_plugin.scores.run import batch_size_of, batches_of, order_in_batches, score_heads
from hf_plugin.tasks.examples import Examples
from hf_plugin.tasks.predictions import (
    labels_of_words,
    lines,
    on_one_line,
    predicted,
    single,
    table,
)
from hf_plugin.tasks.task import Task, TaskType, cut_name, dev_splits
from hf_plugin.timed_translations import translate_to_length
from hf_plugin.tokenizers import Reader, load_reader, set_padding
from hf_plugin.translating import set_target_language, source_of, translations

_TIMED_BATCHES = 4
_OF_TRAININGS = (
    *("epochs", "batch_size", "learning_rate", "bf16"),
    *("max_train_examples", "hold_out"),
)
_LATER = {"weight_decay": 0.0, "adam_epsilon": 1e-8}
"""Settings that the folders of older versions lack, with the values that these versions used."""


@dataclass(frozen=True, kw_only=True)
class Classifier:
    """Implements ``headprune.task_model.TaskModel`` for a task of GLUE or of the user's.

    Scores are computed on training examples that no fine-tuning uses, the metric on the (first)
    development set.

    Attributes:
        path: folder of the fine-tuned model.
        finetuning: the settings of the fine-tuning after pruning: the task, the data, the length in
            tokens, and the number of epochs; 0 disables it.
        max_examples: the size of a random subset of examples to compute scores on.
        watch: see ``ScoreRequest``.
        teacher: the model whose translations others learn from; None for the model itself.
        counted: the splits whose cut texts were counted; those of models that are made of this one
            too.
    """

    path: Path
    finetuning: Settings
    max_examples: int | None = None
    teacher: Path | None = None
    watch: Watch = field(default=unwatched, compare=False)
    counted: set[str] = field(default_factory=set, compare=False, repr=False)

    @cached_property
    def model(self) -> Folder:
        """The folder."""
        return Folder.load(self.path)

    @property
    def task(self) -> str:
        """The name of the task."""
        return self.finetuning.task

    @property
    def metric(self) -> str:
        """The task's first metric."""
        return self._task.metrics[0]

    @property
    def data_name(self) -> str:
        """The name of the task and the part of its training set, as in signatures."""
        return self.finetuning.data_name

    @property
    def measured_data_name(self) -> str:
        """The name of the task, as in signatures."""
        return cut_name(self.finetuning.data.name(part=""), self.finetuning.max_length)

    @property
    def finetune_name(self) -> str:
        """The number of epochs."""
        return self.finetuning.finetune

    @property
    def translates(self) -> bool:
        """True if it can be fine-tuned on its own translations."""
        return self._task.is_translation

    @property
    def can_finetune(self) -> bool:
        """True if the number of fine-tuning epochs is above 0."""
        return self.finetuning.epochs > 0

    @cached_property
    def settings(self) -> Mapping[str, Any]:
        """The settings that scores, measurements and fine-tunings depend on."""
        chosen = self.finetuning.as_json()
        for name in ("plan", "seed", "model"):
            del chosen[name]
        chosen.pop("distill_from", None)  # the model itself, which its fingerprint names
        for name, value in _LATER.items():
            if chosen[name] == value:
                del chosen[name]
        return {
            **chosen,
            "fingerprint": model_fingerprint(self._classifier),
            "max_examples": self.max_examples,
        }

    @property
    def training_settings(self) -> Mapping[str, Any]:
        """The schedule of a fine-tuning and its examples, and the weights of a distillation."""
        return {name: self.settings.get(name) for name in (*_OF_TRAININGS, *DISTILL_SETTINGS)}

    def holds_out_the_same(self, settings: Mapping[str, Any]) -> bool:
        """Tell if fine-tunings with other settings leave the same examples for scores."""
        part = TrainingPart(settings.get("max_train_examples"), settings.get("hold_out", 0.0))
        train = self.finetuning.data.load("train")
        held_now, held_then = (
            held_out(train, model=self.path, parts=parts)
            for parts in (self._parts, [part] if settings.get("epochs") else [])
        )
        return held_now == held_then

    def require_scores(self, names: Sequence[str]) -> None:
        """Raise a UsageError for movement with a learning rate that is not above 0."""
        if "movement" in names:
            require_schedule(self._schedule_of_movement(seed=0))

    def _schedule_of_movement(self, *, seed: int) -> Schedule:
        return replace(self.finetuning.schedule, epochs=self.finetuning.epochs or 1.0, seed=seed)

    def scores(
        self, names: Sequence[str], *, seed: int, components: Sequence[str] | None = None
    ) -> dict[str, HeadScores]:
        """Scores on training examples that neither this model nor its fine-tunings use.

        The fine-tuning of the score movement has the schedule of those after pruning; one epoch
        where these are disabled.
        """
        return score_heads(
            str(self.path),
            ScoreRequest(
                scores=names,
                components=components,
                max_examples=self.max_examples,
                seed=seed,
                weights=ATTENTION_GUIDED,
                watch=self.watch,
            ),
            data=self.finetuning.data,
            metric=self._task.metric_of_ablation,
            parts=self._parts,
            max_length=self.finetuning.max_length,
            schedule=self._schedule_of_movement(seed=seed),
            counted=self.counted,
        )

    def measure(self, plan: PruningPlan | None = None) -> Measurement:
        """The metric on the development set, in percent (perplexity and loss are not)."""
        split, examples = self._dev_examples()
        return self._measured(plan, examples, split=split)

    def measure_held_out(self, plan: PruningPlan | None = None) -> Measurement:
        """The metric on the held-out training examples of ablation, in percent.

        They are all training examples where the model was fine-tuned on all of them.
        """
        train = self.finetuning.data.load("train")
        divided = held_out(train, model=self.path, parts=self._parts)
        return self._measured(plan, train.select(divided.part(ABLATION, most=self.max_examples)))

    @torch.no_grad()
    def _measured(
        self, plan: PruningPlan | None, examples: Examples, *, split: str | None = None
    ) -> Measurement:
        """The metric on some examples, in percent; see ``_encoded``."""
        model, task = self._classifier, self._task
        if task.is_translation:
            return self._translated(plan, examples, split=split)
        if plan is not None and plan != self.model.plan:
            model = prune(copy.deepcopy(model), plan)
        scored = HuggingFaceModel(model)
        encoded, reader = self._encoded(examples, split=split)
        predictions: list[Any] = []
        labels: list[Any] = []
        with scored.evaluating():
            for batch in self._batches(encoded, reader):
                given = batch["labels"]
                logits = model(**_inputs(batch)).logits
                if not bool(logits.isfinite().all()):
                    raise DataError(f"{self.path}: its outputs are not finite (NaN or infinity)")
                if task.is_of_text:
                    predictions += text_losses(logits, given).tolist()
                    labels += map(predicted_tokens, given.tolist())
                    continue
                predictions += predicted(logits, task.type, labels=given)
                if task.is_of_words:
                    labels += labels_of_words(given, given)
                elif task.type is TaskType.multi_label:
                    labels += [tuple(row) for row in given.int().tolist()]
                else:
                    labels += given.tolist()
        # As in the file, so that models are tested against those of other commands.
        order = order_in_batches(encoded, reader)
        predictions, labels = _put_back(predictions, order), _put_back(labels, order)
        metrics = measure_task(task, labels=labels, predictions=predictions)
        constant = not task.is_of_text and is_constant(
            single(predictions, task), single(labels, task)
        )
        value = metrics.pop(self.metric)
        return Measurement(
            value,
            constant,
            fingerprint=model_fingerprint(model),
            others=metrics,
            outputs={"predictions": table(predictions, labels, task)},
            packages=("transformers",),
        )

    def _translated(
        self, plan: PruningPlan | None, examples: Examples, *, split: str | None
    ) -> Measurement:
        """BLEU and chrF of the translations of some examples."""
        model, task = self._classifier, self._task
        if plan is not None and plan != self.model.plan:
            model = prune(copy.deepcopy(model), plan)
        encoded, reader = self._encoded(examples, split=split)
        hypotheses = translations(model, reader, encoded, max_length=self.finetuning.max_length)
        metrics = measure_task(task, labels=examples.labels, predictions=hypotheses)
        signatures = signatures_of(task)
        return Measurement(
            metrics.pop(self.metric),
            is_constant(hypotheses, examples.labels),
            signature=signatures.pop(self.metric),
            fingerprint=model_fingerprint(model),
            others=metrics,
            other_signatures=signatures,
            outputs={"hypotheses": lines(hypotheses), REFERENCE: lines(examples.labels)},
            packages=("transformers", "sacrebleu"),
        )

    def pruned(self, plan: PruningPlan, folder: Path) -> Classifier:
        """The model with the units of ``plan`` alone."""
        folder = Path(folder)
        self.model.prune(plan).save(folder)
        return replace(self, path=folder)

    def calibration(self) -> Calibration:
        """The classifier with training examples that neither it nor its fine-tunings use."""
        return self._calibration

    def refitted(
        self,
        plan: PruningPlan,
        *,
        target: Target = "output",
        trained: TaskModel | None = None,
    ) -> RefittedModel:
        """The pruned classifier, re-fitted."""
        model = self if trained is None else self.opened(trained.model.path)
        return refitted(model.model, plan, self._calibration, target=target)

    def opened(self, path: Path) -> Classifier:
        """The classifier of another folder, with the same teacher."""
        return replace(self, path=path, teacher=self.teacher or self.path)

    def finetuned(
        self, plan: PruningPlan, *, seed: int, folder: Path, variant: Variant = PLAIN
    ) -> Classifier:
        """The pruned model, fine-tuned."""
        folder = Path(folder)
        if variant.translations is not None:
            self._translate_training_set(variant.translations)
        settings = replace(
            self.finetuning,
            model=str(self.path),
            plan=plan,
            seed=seed,
            distill_from=self.finetuning.distill_from if variant.distilled else None,
            variant=replace(variant, distilled=False),
        )
        with redirect_stdout(sys.stderr):  # the Trainer's words on its progress
            run(settings, Labels(), folder, warn=False)  # whoever measures it names it
        return replace(self, path=folder / "model")

    @torch.no_grad()
    def seconds(self, plans: Sequence[PruningPlan], *, rounds: int) -> list[list[float]]:
        """The run time of some batches of the development set.

        Translations are as long as the longest reference of their batch.
        """
        models = [prune(copy.deepcopy(self._classifier), plan).eval() for plan in plans]
        encoded, reader = self._encoded(self._dev_examples()[1])
        batches = list(self._batches(encoded, reader, most=_TIMED_BATCHES))

        def work(model: PreTrainedModel) -> None:
            for batch in batches:
                if self._task.is_translation:
                    inputs = source_of(model, batch)
                    translate_to_length(model, inputs, length=batch["labels"].size(1))
                else:
                    model(**_inputs(batch))

        return taking_turns([partial(work, model) for model in models], rounds=rounds)

    def _translate_training_set(self, folder: Path) -> None:
        """Write the teacher's translations of the examples that fine-tunings are trained on.

        What an interrupted run has translated is used again. Longer texts than ``max_length`` are
        cut, as they are for the student.
        """
        teacher = self if self.teacher is None else replace(self, path=self.teacher)
        whole = self.finetuning.data.load("train")
        examples = whole.subset(self.finetuning.training_part.size(len(whole)))

        def translate(numbers: Sequence[int]) -> list[str]:
            return list(map(on_one_line, teacher._translations(examples.select(numbers))))

        translate_texts(folder, len(examples), translate, watch=self.watch)

    def _translations(self, examples: Examples) -> list[str]:
        encoded, reader = self._encoded(examples)
        length = self.finetuning.max_length
        return translations(self._classifier, reader, encoded, max_length=length)

    @property
    def _task(self) -> Task:
        return self.finetuning.data.task

    @cached_property
    def _classifier(self) -> PreTrainedModel:
        model = load_classifier(str(self.path), self._task, untrained=False)
        set_padding(model, self._reader)
        if self._task.is_translation:
            set_target_language(model, self._reader, name=str(self.path))
        model.to(device())  # type: ignore[arg-type]
        return model

    @cached_property
    def _reader(self) -> Reader:
        return load_reader(str(self.path), self._task)

    @cached_property
    def _calibration(self) -> Calibration:
        return calibration_of(
            str(self.path),
            data=self.finetuning.data,
            examples=self.max_examples or EXAMPLES,
            max_length=self.finetuning.max_length,
            parts=self._parts,
            watch=self.watch,
        )

    @property
    def _parts(self) -> list[TrainingPart]:
        """The parts of the training set that fine-tunings of the pruned models use."""
        return [self.finetuning.training_part] if self.can_finetune else []

    def _dev_examples(self) -> tuple[str, Examples]:
        """The name of the (first) development set, and its examples."""
        data = self.finetuning.data
        split = next(iter(dev_splits(data)), "dev")
        examples = data.load(split)
        if not len(examples):
            raise DataError(f"{self.finetuning.task}: the split {split} is empty")
        return split, examples

    def _encoded(self, examples: Examples, *, split: str | None = None) -> tuple[Dataset, Reader]:
        """The examples as inputs of the model, and its tokenizer or image processor.

        Args:
            split: the name of the examples, whose cut texts are counted once; None for others.
        """
        length = self.finetuning.max_length
        require_length(length, self._classifier, self._reader, name=str(self.path))
        encoded = encode(examples, self._reader, max_length=length)
        if split is not None:
            warn_of_cut_texts(
                *(split, examples, encoded, self._reader), max_length=length, counted=self.counted
            )
        return encoded, self._reader

    def _batches(
        self, encoded: Dataset, reader: Reader, *, most: int | None = None
    ) -> Iterator[Mapping[str, torch.Tensor]]:
        """The batches, each made when it is needed: many images do not fit into memory at once."""
        size = batch_size_of(self._classifier)
        batches = batches_of(encoded, reader, size=size, most=most)
        return (on_device_of(self._classifier, batch) for batch in batches)


def _put_back(values: Sequence[Any], order: Sequence[int]) -> list[Any]:
    """The values in the order of the numbers that ``order`` gives them."""
    return [value for _, value in sorted(zip(order, values, strict=True), key=itemgetter(0))]


def _inputs(batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """A batch without its labels, for which the model would compute a loss."""
    return {name: each for name, each in batch.items() if name != "labels"}
