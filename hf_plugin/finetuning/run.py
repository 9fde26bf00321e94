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

from transformers import PreTrainedModel, TrainerCallback

import hf_plugin
from headprune.errors import HeadpruneError
from headprune.files import write_text_atomically
from headprune.gates.closing import line_on_closed
from headprune.origin import Origin
from headprune.plan import HeadPlan
from headprune.recovery.distillation import distillation_name
from headprune.recovery.variant import L0_GATES, GateTraining
from headprune.results.environment import processor_name, versions_of
from headprune.results.labels import method_of, requested_percent_of, row_of
from headprune.results.marks import CONSTANT, is_constant
from headprune.results.record import Record
from headprune.results.record_files import REFERENCE, output_files
from headprune.results.signature import signature, with_method
from hf_plugin.distillation import Teacher
from hf_plugin.families import family_of, form_of
from hf_plugin.finetuning.facts import example_facts, training_facts
from hf_plugin.finetuning.held_out import copy_record, record_training
from hf_plugin.finetuning.loading import Loaded, data_of, load
from hf_plugin.finetuning.metrics import measure_task, signatures_of
from hf_plugin.finetuning.notices import described_examples, warn_of_cut_texts, warn_of_one_label
from hf_plugin.finetuning.run_folder import CLAIM, remove_unused_claim, require_own
from hf_plugin.finetuning.settings import Labels, Settings
from hf_plugin.finetuning.training import AfterEpochs, Training, fine_tune, predict, to_tensorboard
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.gates import close_gates
from hf_plugin.layerdrop import add_layerdrop
from hf_plugin.plans import model_shape, without_units_of_dropped_layers
from hf_plugin.tasks.predictions import lines, single, table
from hf_plugin.tasks.task import LabelledData, Task, dev_splits
from hf_plugin.translating import translations


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
class _Runner:
    """Trains the loaded model of a run, and predicts with it.

    Attributes:
        folder: the folder of the trainings.
        announce, tensorboard: see ``run``.
    """

    settings: Settings
    source: LabelledData
    loaded: Loaded
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
    source = data_of(settings, output)
    task, training_folder = source.task, output / "training"
    loaded = load(settings, source)
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
    files = _write_outputs(outcome.predicted, loaded, task, output)
    facts = {
        **outcome.metrics_before,
        **training_facts(settings, loaded, outcome.trainings),
        **example_facts(settings, task, loaded),
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


def _write_outputs(
    predicted: Mapping[str, Sequence[Any]], loaded: Loaded, task: Task, output: Path
) -> dict[str, str]:
    """Write the predictions of each split, or the translations with their references.

    Returns:
        The names of the record's files, by their roles.
    """
    if task.is_translation:
        places = output_files(output / "result.json")
        (split,) = predicted
        texts = {"hypotheses": predicted[split], REFERENCE: loaded.labels[split]}
        for role, each in texts.items():
            write_text_atomically(places[role], lines(each))
        return {role: places[role].name for role in texts}
    for split, values in predicted.items():
        content = table(values, loaded.labels[split], task)
        write_text_atomically(output / _prediction_file(split), content)
    return {"predictions": _prediction_file("dev")}


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


def _announce(loaded: Loaded, task: Task, *, max_length: int) -> None:
    """Say how many examples and labels there are, and how many texts are cut."""
    for split, part in loaded.examples.items():
        described = described_examples(part, loaded.labels[split], task)
        print(f"{split}: {described}", file=sys.stderr)
        warn_of_cut_texts(split, part, loaded.encoded[split], loaded.reader, max_length=max_length)


def _predicts_a_constant(
    task: Task, labels: Mapping[str, Sequence[Any]], predicted: Mapping[str, list[Any]]
) -> bool:
    """Check if a model predicts the same for all examples of a split."""
    return not task.is_of_text and any(
        is_constant(single(values, task), single(labels[split], task))
        for split, values in predicted.items()
    )


def _save_model(loaded: Loaded, folder: Path, *, start: Path, max_length: int) -> None:
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


def _prune(model: PreTrainedModel, settings: Settings, stack: ExitStack) -> tuple[HeadPlan, str]:
    """Prune the model, and return its plan and form; masks last until ``stack`` is closed.

    The plan names the units that were pruned before, too, as the plan of the saved model does.
    """
    requested, form, current = settings.plan, settings.form, hf_plugin.plan(model)
    if requested is None:
        return current, form_of(model)
    plan = without_units_of_dropped_layers(
        current.replaced_by(requested).normalised(model_shape(model)), family_of(model)
    )
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
