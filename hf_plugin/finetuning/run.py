"""A run: prune a pretrained model, fine-tune it on a task, measure it and write the result."""

from __future__ import annotations

import json
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import transformers
from datasets import Dataset
from transformers import PreTrainedModel, TrainerCallback

import hf_plugin
from headprune.errors import HeadpruneError
from headprune.files import write_text_atomically
from headprune.gates.closing import line_on_closed
from headprune.origin import Origin
from headprune.plan import HeadPlan
from headprune.recovery.distillation import TEACHER, distillation_name
from headprune.recovery.translated_text import read_translations
from headprune.recovery.variant import L0_GATES, GateTraining
from headprune.results.curves import CURVE
from headprune.results.environment import processor_name, versions_of
from headprune.results.labels import method_of, requested_percent_of, row_of
from headprune.results.marks import CONSTANT, RESUMED, is_constant
from headprune.results.record import Record
from headprune.results.record_files import REFERENCE, output_files
from headprune.results.signature import signature, with_method
from hf_plugin.distillation import Teacher, load_teacher
from hf_plugin.families import form_of
from hf_plugin.finetuning.held_out import copy_record, record_training
from hf_plugin.finetuning.metrics import measure_task, signatures_of
from hf_plugin.finetuning.models import (
    auto_class,
    keeps_classifier,
    load_classifier,
    require_length,
)
from hf_plugin.finetuning.notices import described_examples, warn_of_cut_texts, warn_of_one_label
from hf_plugin.finetuning.pooling import pool_by_mean
from hf_plugin.finetuning.run_folder import CLAIM, remove_unused_claim, require_own
from hf_plugin.finetuning.settings import Labels, Settings
from hf_plugin.finetuning.start_weights import START, start_fingerprint
from hf_plugin.finetuning.training import (
    WARM_UP,
    AfterEpochs,
    Training,
    encode,
    fine_tune,
    labels_of,
    predict,
    to_tensorboard,
)
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.gates import close_gates
from hf_plugin.glue import entailment
from hf_plugin.glue.data import GlueData
from hf_plugin.layerdrop import add_layerdrop, require_layers
from hf_plugin.plans import plan_after
from hf_plugin.tasks.examples import SUBSET_SEED, Examples
from hf_plugin.tasks.predictions import lines, single, table
from hf_plugin.tasks.task import LabelledData, Task, dev_splits
from hf_plugin.tokenizers import Reader, load_reader, set_padding
from hf_plugin.translating import set_target_language, translations


def run(
    settings: Settings,
    labels: Labels,
    output: Path,
    *,
    warn: bool = True,
    overwrite: bool = False,
    announce: bool = False,
    tensorboard: Path | None = None,
) -> Record:
    """Do one run and write to ``output``: result.json, predictions.tsv and the folder model.

    Masked heads are removed from the saved model, which computes the same.

    An interrupted run resumes after its last complete epoch. A finished run is not repeated; its
    result only gets the new labels.

    Args:
        settings: all that the outcome depends on.
        labels: the labels of the record.
        output: the folder.
        warn: whether to warn of a model that gives the same output for every example.
        overwrite: see ``require_own``.
        announce: whether to say how many examples and labels there are, what the first metric is
            after each epoch, or that the run was finished before.
        tensorboard: the folder for the curves of the training after pruning, for TensorBoard.

    Raises:
        UsageError: the settings are invalid, the plan does not fit the model, the model cannot be
            pruned or lacks layers for LayerDrop, the labels contradict the plan, or ``output`` has
            files of other settings or of a model with other weights.
        DataError: the model or the data cannot be read, weights are not finite, or the fine-tuning
            diverges.
    """
    settings.check()
    labels.check(settings.plan)
    require_own(settings, output, overwrite=overwrite)
    path = output / "result.json"
    if announce and path.exists():
        print(f"note: {path}: finished before; nothing is trained or measured", file=sys.stderr)
        if settings.pooling == "first" and not (output / "model").is_dir():
            print(
                f"warning: {output / 'model'}: is missing; delete {path} to train it again",
                file=sys.stderr,
            )
    if path.exists():
        measured = Record.load(path)
    else:
        try:
            measured = _measure(
                settings, output, warn=warn, announce=announce, tensorboard=tensorboard
            )
        except HeadpruneError:
            remove_unused_claim(output)
            raise
    record = _labelled(measured, settings, labels)
    record.save(path)
    shutil.rmtree(output / "training", ignore_errors=True)
    return record


@dataclass(frozen=True, kw_only=True)
class _Loaded:
    """The model of a run before its pruning, with the run's examples.

    Attributes:
        model: the model, which is pruned and trained in place.
        reader: its tokenizer or image processor.
        teacher: the model to distil from; None where there is none.
        whole_training_set: the training set before a part of it was chosen; None without training.
        examples: the examples of each split.
        encoded: the same as inputs of the model.
        labels: the labels of each split, as they are compared with predictions.
        fingerprints: facts that name the weights of the model and the teacher.
        from_classifier: whether the weights are those of a classifier for as many labels, not of an
            encoder alone.
    """

    model: PreTrainedModel
    reader: Reader
    teacher: Teacher | None
    whole_training_set: Examples | None
    examples: Mapping[str, Examples]
    encoded: Mapping[str, Dataset]
    labels: Mapping[str, Sequence[Any]]
    fingerprints: dict[str, str]
    from_classifier: bool


@dataclass(frozen=True, kw_only=True)
class _Runner:
    """Trains the loaded model of a run, and predicts with it.

    Attributes:
        folder: the folder of the trainings.
        announce, tensorboard: see ``run``.
    """

    settings: Settings
    source: LabelledData
    loaded: _Loaded
    folder: Path
    announce: bool
    tensorboard: Path | None

    def train(
        self,
        name: str,
        *,
        teacher: Teacher | None = None,
        gates: GateTraining | None = None,
        tensorboard: Path | None = None,
    ) -> list[Training]:
        """Fine-tune the model in place; without epochs there is no training."""
        if not self.settings.epochs:
            return []
        callbacks: list[TrainerCallback] = []
        if self.announce:
            callbacks.append(AfterEpochs(self._print_metric))
        if tensorboard is not None:
            callbacks.append(to_tensorboard(tensorboard))
        training = fine_tune(
            self.loaded.model,
            self.loaded.reader,
            self.loaded.encoded["train"],
            schedule=self.settings.schedule,
            folder=self.folder / name,
            teacher=teacher,
            gates=gates,
            callbacks=callbacks,
        )
        return [training]

    def predictions(self) -> dict[str, list[Any]]:
        """The predictions of each split to measure on."""
        return {split: self._predictions_of(split) for split in dev_splits(self.source)}

    def metrics(self, predicted: Mapping[str, list[Any]]) -> dict[str, float]:
        """All metrics of predictions; those of MNLI's mismatched set have a prefix."""
        metrics = {}
        for split, values in predicted.items():
            prefix = split.removeprefix("dev").removeprefix("_")
            for name, value in self._metrics_of(split, values).items():
                metrics[f"{prefix}_{name}" if prefix else name] = value
        return metrics

    def _predictions_of(self, split: str) -> list[Any]:
        model, reader = self.loaded.model, self.loaded.reader
        encoded = self.loaded.encoded[split]
        if self.source.task.is_translation:
            length = self.settings.max_length
            return [*translations(model, reader, encoded, max_length=length)]
        return predict(
            model,
            reader,
            encoded,
            schedule=self.settings.schedule,
            folder=self.folder / "dev",
            type_=self.source.task.type,
        )

    def _metrics_of(self, split: str, predictions: list[Any]) -> dict[str, float]:
        labels = self.loaded.labels[split]
        return measure_task(self.source.task, labels=labels, predictions=predictions)

    def _print_metric(self, epoch: int) -> None:
        split = dev_splits(self.source)[0]
        name, value = next(iter(self._metrics_of(split, self._predictions_of(split)).items()))
        print(f"epoch {epoch}: {split} {name} {value:.2f}", file=sys.stderr)


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """A trained model's predictions, and facts about it.

    Attributes:
        plan, form: the units that it keeps, and the form of the others.
        predicted: the predictions of each split to measure on.
        trainings: the trainings that it had.
        metrics_before: the metrics before and after the pruning, of the protocols that measure
            them.
    """

    plan: HeadPlan
    form: str
    predicted: Mapping[str, list[Any]]
    trainings: Sequence[Training]
    metrics_before: Mapping[str, Mapping[str, float]]


def _measure(
    settings: Settings, output: Path, *, warn: bool, announce: bool, tensorboard: Path | None
) -> Record:
    """Prune, fine-tune and measure; the record lacks its labels."""
    started = time.monotonic()
    source = _data(settings, output)
    task, training_folder = source.task, output / "training"
    loaded = _loaded(settings, source)
    claim = json.dumps(settings.as_json() | loaded.fingerprints)
    write_text_atomically(training_folder / CLAIM, claim)
    if announce:
        _announce(loaded, task, max_length=settings.max_length)
    runner = _Runner(
        settings=settings,
        source=source,
        loaded=loaded,
        folder=training_folder,
        announce=announce,
        tensorboard=tensorboard,
    )
    outcome = _pruned_and_tuned(runner)
    files = {"predictions": _prediction_file("dev")}
    for split, values in outcome.predicted.items():
        if task.is_translation:
            written = {"hypotheses": values, REFERENCE: loaded.labels[split]}
            places = output_files(output / "result.json")
            for name, texts in written.items():
                write_text_atomically(places[name], lines(texts))
            files = {name: places[name].name for name in written}
            continue
        content = table(values, loaded.labels[split], task)
        write_text_atomically(output / _prediction_file(split), content)
    facts = {
        **outcome.metrics_before,
        **_training_facts(settings, loaded, outcome.trainings),
        **_example_facts(settings, task, loaded),
    }
    if _predicts_a_constant(task, loaded.labels, outcome.predicted):
        facts[CONSTANT] = True
        if warn:
            what = "word" if task.is_of_words else "example"
            print(
                f"warning: the model predicts the same for every {what}: it has learnt nothing",
                file=sys.stderr,
            )
    if warn and task.has_classifier:
        warn_of_one_label(loaded.labels, outcome.predicted, task)
    fingerprint = model_fingerprint(loaded.model)
    if outcome.form == "mask":
        # A folder cannot say that heads are masked.
        hf_plugin.prune_heads(loaded.model, outcome.plan)
    if settings.pooling == "first":
        # transformers has no class that would load a model with another pooling correctly.
        _save_model(
            loaded,
            output / "model",
            start=Path(settings.model),
            max_length=settings.max_length,
        )
    return Record(
        task=task.name,
        metrics=runner.metrics(outcome.predicted),
        metric_signatures=signatures_of(task),
        plan=outcome.plan,
        form=outcome.form,
        signature="",
        seed=settings.seed,
        finetune=settings.finetune,
        model=settings.model,
        fingerprint=fingerprint,
        examples={split: len(part) for split, part in loaded.examples.items()},
        files=files,
        seconds=round(time.monotonic() - started, 1),
        device=processor_name(),
        versions=versions_of(
            *("torch", "transformers"), *(["sacrebleu"] if task.is_translation else [])
        ),
        training=facts,
    )


def _pruned_and_tuned(runner: _Runner) -> _Outcome:
    """Prune and fine-tune the model in the order of the protocol, and predict."""
    settings, loaded = runner.settings, runner.loaded
    tunes_before = settings.protocol == "finetune-prune-finetune"
    trainings: list[Training] = []
    metrics: dict[str, Mapping[str, float]] = {}
    with ExitStack() as stack:
        if tunes_before:
            trainings += runner.train("before")
            metrics["metrics_before_pruning"] = runner.metrics(runner.predictions())
        plan, form = _prune(loaded.model, settings, stack)
        if tunes_before:
            metrics["metrics_before_finetune"] = runner.metrics(runner.predictions())
        with _layerdrop(loaded.model, settings.variant.layerdrop):
            trainings += runner.train(
                "after",
                teacher=loaded.teacher,
                gates=settings.variant.gates,
                tensorboard=runner.tensorboard,
            )
        if settings.variant.gates is not None:
            plan, form = _closed(loaded.model, settings), form_of(loaded.model)
        predicted = runner.predictions()
    return _Outcome(
        plan=plan, form=form, predicted=predicted, trainings=trainings, metrics_before=metrics
    )


def _announce(loaded: _Loaded, task: Task, *, max_length: int) -> None:
    """Say how many examples and labels there are, and how many texts are cut."""
    for split, part in loaded.examples.items():
        described = described_examples(part, loaded.labels[split], task)
        print(f"{split}: {described}", file=sys.stderr)
        warn_of_cut_texts(split, part, loaded.encoded[split], loaded.reader, max_length=max_length)


def _loaded(settings: Settings, source: LabelledData) -> _Loaded:
    """Load and check the model and the examples; sets the seed."""
    task = source.task
    # Before the seed is set, since loading a model may draw random numbers.
    start_weights = start_fingerprint(settings.model)
    fingerprints = {} if start_weights is None else {START: start_weights}
    splits = ("train", *dev_splits(source)) if settings.epochs else dev_splits(source)
    examples = {split: source.load(split) for split in splits}
    whole_training_set = examples.get("train")
    if whole_training_set is not None:
        size = settings.training_part.size(len(whole_training_set))
        examples["train"] = whole_training_set.subset(size)
        if (folder := settings.variant.translations) is not None:
            examples["train"] = _with_translations(examples["train"], folder)
    transformers.set_seed(settings.seed)
    reader = load_reader(settings.model, task)
    model = load_classifier(settings.model, task, untrained=settings.epochs > 0)
    require_length(settings.max_length, model, reader, name=settings.model)
    set_padding(model, reader)
    if task.is_translation:
        set_target_language(model, reader, name=settings.model)
    from_classifier = not settings.variant.from_scratch and keeps_classifier(settings.model, task)
    if settings.variant.from_scratch:
        generation = getattr(model, "generation_config", None)
        model = auto_class(task).from_config(model.config)
        model.generation_config = generation
    if settings.pooling == "mean":
        pool_by_mean(model)
    plan_after(model, settings.plan or hf_plugin.plan(model))  # before hours of training
    if settings.variant.layerdrop:
        require_layers(model)
    teacher = None
    if settings.distill_from is not None:
        teacher = load_teacher(
            settings.distill_from,
            task,
            settings.distillation,
            reader=reader,
            max_length=settings.max_length,
        )
        fingerprints[TEACHER] = teacher.fingerprint
    encoded = {
        split: encode(part, reader, max_length=settings.max_length)
        for split, part in examples.items()
    }
    return _Loaded(
        model=model,
        reader=reader,
        teacher=teacher,
        whole_training_set=whole_training_set,
        examples=examples,
        encoded=encoded,
        labels={split: labels_of(part, encoded[split]) for split, part in examples.items()},
        fingerprints=fingerprints,
        from_classifier=from_classifier,
    )


def _with_translations(examples: Examples, folder: Path) -> Examples:
    """The examples with the translations in ``folder`` as references, where these are not empty."""
    written = read_translations(folder, len(examples))
    pairs = zip(written, examples.labels, strict=True)
    return replace(examples, labels=[text or reference for text, reference in pairs])


def _predicts_a_constant(
    task: Task, labels: Mapping[str, Sequence[Any]], predicted: Mapping[str, list[Any]]
) -> bool:
    """Check if a model predicts the same for all examples of a split."""
    return not task.is_of_text and any(
        is_constant(single(values, task), single(labels[split], task))
        for split, values in predicted.items()
    )


def _training_facts(
    settings: Settings, loaded: _Loaded, trainings: Sequence[Training]
) -> dict[str, Any]:
    """The facts for the record about the trained model and its trainings."""
    facts = {
        "parameters": sum(parameter.numel() for parameter in loaded.model.parameters()),
        "seconds": round(sum(training.seconds for training in trainings), 1),
        RESUMED: any(training.resumed for training in trainings),
        "protocol": settings.protocol,
        "rate": f"linear, {WARM_UP:.0%} warm-up",
        "settings": settings.as_json(),
        **loaded.fingerprints,
    }
    if trainings and trainings[-1].curve:
        facts[CURVE] = trainings[-1].curve.as_json()
    return facts


def _example_facts(settings: Settings, task: Task, loaded: _Loaded) -> dict[str, Any]:
    """The facts for the record about examples and words that were left out."""
    facts: dict[str, Any] = {}
    examples = loaded.examples
    if settings.max_train_examples is not None:
        facts["subset_seed"] = SUBSET_SEED
    if left_out := {split: part.left_out for split, part in examples.items() if part.left_out}:
        facts["left_out"] = left_out
    words_left_out = {
        split: len(single(part.labels, task)) - len(single(loaded.labels[split], task))
        for split, part in examples.items()
    }
    if task.is_of_words and any(words_left_out.values()):
        facts["words_left_out"] = words_left_out
    return facts


def _save_model(loaded: _Loaded, folder: Path, *, start: Path, max_length: int) -> None:
    """Save the model, its reader and the record of the examples that it was trained on.

    Args:
        start: the model that the training started from.
        max_length: the maximum number of tokens of an example in the training.
    """
    loaded.model.save_pretrained(folder)
    loaded.reader.save_pretrained(folder)
    if loaded.whole_training_set is not None:
        size = len(loaded.examples["train"])
        record_training(
            folder,
            loaded.whole_training_set,
            size=size,
            start=start,
            is_classifier=loaded.from_classifier,
            max_length=max_length,
        )
    else:
        copy_record(start, folder)


def _labelled(record: Record, settings: Settings, labels: Labels) -> Record:
    """Add the labels for tables to a record; they may differ from those of an earlier run.

    The method is the only label in the signature; that of a finished run keeps all else, as a later
    version may write it in another way.
    """
    plan = record.plan
    # A training with gates that closed none is no control: its penalty was part of the loss.
    is_control = plan.is_full and settings.variant.gates is None
    kind = labels.kind or (
        "control" if is_control else "pruned" if settings.epochs else "before-finetune"
    )
    select = labels.select or method_of(plan, default="given")
    row = "control" if is_control else row_of(plan, default=f"{plan.percent_pruned:.0f}%")
    if settings.variant.l0_lambda is not None:
        row = f"lambda {settings.variant.l0_lambda:g}"
    requested_percent = labels.requested_percent
    if requested_percent is None:
        requested_percent = requested_percent_of(plan)
    return replace(
        record,
        study=labels.study,
        task=labels.task or settings.data.task.name,
        kind=kind,
        row=labels.row or row,
        requested_percent=requested_percent,
        signature=with_method(record.signature, select)
        if record.signature
        else signature(
            plan,
            select=select,
            seed=settings.seed,
            form=record.form,
            finetune=settings.finetune,
            data=settings.data_name,
            recovery=distillation_name(record.training, record.settings),
        ),
    )


def _data(settings: Settings, output: Path) -> LabelledData:
    """The data of the settings; those of the generated task are written to ``output`` first."""
    data = settings.data
    if isinstance(data, GlueData) and data.is_to_be_generated:
        data = replace(data, data_dir=output / "data")
        entailment.write(output / "data")
    return data


def _prune(model: PreTrainedModel, settings: Settings, stack: ExitStack) -> tuple[HeadPlan, str]:
    """Prune the model, and return its plan and form; masks last until ``stack`` is closed.

    The plan names the units that were pruned before, too.
    """
    requested, form, current = settings.plan, settings.form, hf_plugin.plan(model)
    if requested is None:
        return current, form_of(model)
    plan = requested if current.is_full else current.replaced_by(requested)
    if form != "mask":
        hf_plugin.prune_heads(model, requested, form=form)
    elif requested != current:
        stack.enter_context(hf_plugin.masked(model, requested))
        return plan, form
    return plan, form_of(model)


@contextmanager
def _layerdrop(model: PreTrainedModel, probability: float) -> Iterator[None]:
    """LayerDrop within this context; none with probability 0."""
    hooks = add_layerdrop(model, probability) if probability else []
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def _closed(model: PreTrainedModel, settings: Settings) -> HeadPlan:
    """Close the learned gates of a trained model, in place, and return its plan."""
    gates = settings.variant.gates
    assert gates is not None
    close_gates(model)
    budget = None if gates.budget is None else str(gates.budget)
    origin = Origin(method=L0_GATES, seed=settings.seed, budget=budget)
    plan = hf_plugin.plan(model).with_origin(origin)
    if plan.is_full:
        print(
            "warning: no gate is closed, so that nothing is pruned: give a higher --l0-lambda, "
            "more epochs or a higher --learning-rate",
            file=sys.stderr,
        )
    gated = plan.part(gates.components)
    if gated is not None and (line := line_on_closed(gated, target=gates.budget)):
        print(f"warning: {line}", file=sys.stderr)
    return plan


def _prediction_file(split: str) -> str:
    return f"{split.replace('dev', 'predictions')}.tsv"
