"""One run: prune a pretrained model, fine-tune it on a task, measure it, write the result."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import transformers
from transformers import PreTrainedModel

import hf_plugin
from headprune.errors import UsageError
from headprune.files import write_text_atomically
from headprune.json_files import json_object
from headprune.plan import HeadPlan
from headprune.report.glue_results import GlueResult
from headprune.report.marks import CONSTANT, RESUMED, is_constant
from headprune.report.signature import signature
from hf_plugin.families import form_of
from hf_plugin.glue import entailment
from hf_plugin.glue.data import SUBSET_SEED, Examples, load_splits
from hf_plugin.glue.held_out import copy_record, record_training
from hf_plugin.glue.metrics import measure
from hf_plugin.glue.models import load_classifier, require_length
from hf_plugin.glue.pooling import pool_by_mean
from hf_plugin.glue.settings import Labels, Settings
from hf_plugin.glue.tasks import Task, task_named
from hf_plugin.glue.training import WARM_UP, Training, encode, fine_tune, predict
from hf_plugin.surgery import plan_after
from hf_plugin.tokenizers import load_tokenizer

_OLDER = {"hold_out": 0.0, "pooling": "first"}
"""Values of settings that runs of older versions do not name."""


def run(settings: Settings, labels: Labels, output: Path) -> GlueResult:
    """Do one run and write to ``output``: result.json, predictions.tsv and the folder model.

    Heads that were masked are removed from the saved model, which computes the same.

    A run that was killed goes on after its last whole epoch; one that is finished is not done
    again, only labelled anew.

    Raises:
        UsageError: settings that make no sense, a plan that does not fit, a model that cannot be
            pruned, labels that contradict the plan, or other settings' files in ``output``.
        DataError: a model or data that cannot be read, a model whose weights are not finite, or a
            fine-tuning that diverges.
    """
    settings.check()
    labels.check(settings.plan)
    path = output / "result.json"
    if path.exists():
        old = GlueResult.load(path)
        require_same(old.training.get("settings"), settings, where=path)
        measured = Measured(old.head_plan, old.form, old.metrics, old.examples, old.training)
    else:
        measured = _measure(settings, output)
    result = _result(settings, labels, measured)
    result.save(path)
    shutil.rmtree(output / "training", ignore_errors=True)
    return result


@dataclass(frozen=True)
class Measured:
    """What comes out of a run, without its labels."""

    plan: HeadPlan
    form: str
    metrics: dict[str, float]
    examples: dict[str, int]
    training: dict[str, Any]


def _measure(settings: Settings, output: Path) -> Measured:
    task, folder = task_named(settings.task), output / "training"
    claim = folder / "settings.json"
    if any(folder.glob("*/checkpoint-*")):
        require_same(json_object(claim), settings, where=folder)
    examples = _examples(settings, task, output)
    whole_training_set = examples.get("train")
    if whole_training_set is not None:
        size = settings.training_part.size(len(whole_training_set))
        examples["train"] = whole_training_set.subset(size)
    transformers.set_seed(settings.seed)
    tokenizer = load_tokenizer(settings.model)
    model = load_classifier(settings.model, task, untrained=settings.epochs > 0)
    require_length(settings.max_length, model, tokenizer, name=settings.model)
    if settings.pooling == "mean":
        pool_by_mean(model)
    plan_after(model, settings.plan or hf_plugin.head_plan(model))  # before hours of training
    data = {
        split: encode(part, tokenizer, max_length=settings.max_length)
        for split, part in examples.items()
    }

    trainings: list[Training] = []

    def train(name: str) -> None:
        if not settings.epochs:
            return
        write_text_atomically(claim, json.dumps(settings.as_json()))
        trainings.append(
            fine_tune(
                model, tokenizer, data["train"], schedule=settings.schedule, folder=folder / name
            )
        )

    def predictions() -> dict[str, list[float]]:
        return {
            split: predict(
                model, tokenizer, data[split], schedule=settings.schedule, folder=folder / "dev"
            )
            for split in task.dev_splits
        }

    facts: dict[str, Any] = {}
    with ExitStack() as stack:
        if settings.protocol == "finetune-prune-finetune":
            train("before")
            facts["metrics_before_pruning"] = _metrics(task, examples, predictions())
        plan, form = _prune(model, settings, stack)
        if settings.protocol == "finetune-prune-finetune":
            facts["metrics_before_finetune"] = _metrics(task, examples, predictions())
        train("after")
        predicted = predictions()
    for split, values in predicted.items():
        _write_predictions(output / _prediction_file(split), task, values, examples[split].labels)
    facts |= {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "seconds": round(sum(training.seconds for training in trainings), 1),
        RESUMED: any(training.resumed for training in trainings),
        "protocol": settings.protocol,
        "rate": f"linear, {WARM_UP:.0%} warm-up",
        "settings": settings.as_json(),
    }
    if any(is_constant(made, examples[split].labels) for split, made in predicted.items()):
        facts[CONSTANT] = True
        print(
            "warning: the model predicts the same for every example: it has learnt nothing",
            file=sys.stderr,
        )
    if settings.max_train_examples is not None:
        facts["subset_seed"] = SUBSET_SEED
    if left_out := {split: part.left_out for split, part in examples.items() if part.left_out}:
        facts["left_out"] = left_out
    if form == "mask":
        hf_plugin.prune_heads(model, plan)  # a folder cannot say that heads are masked
    if settings.pooling == "first":
        # transformers has no class that would read the model of another pooling rightly.
        folder = output / "model"
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
        start = Path(settings.model)
        if whole_training_set is not None:
            size = len(examples["train"])
            record_training(folder, whole_training_set, size=size, start=start)
        else:
            copy_record(start, folder)
    sizes = {split: len(part) for split, part in examples.items()}
    return Measured(plan, form, _metrics(task, examples, predicted), sizes, facts)


def _result(settings: Settings, labels: Labels, measured: Measured) -> GlueResult:
    task, plan = task_named(settings.task), measured.plan
    kind = labels.kind or (
        "control" if plan.is_full else "pruned" if settings.epochs else "before-finetune"
    )
    select = labels.select or ("none" if plan.is_full else "given")
    return GlueResult(
        study=labels.study,
        kind=kind,
        row=labels.row or ("control" if plan.is_full else f"{plan.percent_pruned:.0f}%"),
        percent=plan.percent_pruned,
        requested_percent=labels.requested_percent,
        seed=settings.seed,
        plan=json.loads(plan.to_json()),
        counts=str(plan),
        heads_kept=plan.total_kept,
        signature=signature(
            plan,
            select=select,
            seed=settings.seed,
            form=measured.form,
            finetune=settings.finetune,
            data=settings.data_name,
        ),
        finetune=settings.finetune,
        task=task.name,
        form=measured.form,
        model=settings.model,
        metric=task.metrics[0],
        value=measured.metrics[task.metrics[0]],
        metrics=measured.metrics,
        examples=measured.examples,
        epochs=settings.epochs,
        batch_size=settings.batch_size,
        learning_rate=settings.learning_rate,
        max_length=settings.max_length,
        predictions=_prediction_file("dev"),
        training=measured.training,
    )


def _examples(settings: Settings, task: Task, output: Path) -> dict[str, Examples]:
    data_dir = settings.data_dir
    if data_dir is None and not task.hub_text:
        data_dir = output / "data"
        entailment.write(data_dir)
    wanted = ("train", *task.dev_splits) if settings.epochs else task.dev_splits
    examples = load_splits(task, data_dir, splits=wanted)
    return examples


def _prune(model: PreTrainedModel, settings: Settings, stack: ExitStack) -> tuple[HeadPlan, str]:
    """Carry out the plan, a mask until ``stack`` is closed; the plan and form that hold then."""
    plan, form = settings.plan, settings.form
    if plan is None:
        plan = hf_plugin.head_plan(model)
    elif form != "mask":
        hf_plugin.prune_heads(model, plan, form=form)
    elif plan != hf_plugin.head_plan(model):
        stack.enter_context(hf_plugin.masked(model, plan))
        return plan, form
    return plan, form_of(model)


def _metrics(
    task: Task, examples: dict[str, Examples], predicted: dict[str, list[float]]
) -> dict[str, float]:
    """All metrics of the development sets; those of MNLI's second one say so."""
    metrics = {}
    for split, values in predicted.items():
        prefix = split.removeprefix("dev").removeprefix("_")
        measured = measure(task.metrics, labels=examples[split].labels, predictions=values)
        for name, value in measured.items():
            metrics[f"{prefix}_{name}" if prefix else name] = value
    return metrics


def _prediction_file(split: str) -> str:
    return f"{split.replace('dev', 'predictions')}.tsv"


def _write_predictions(
    path: Path, task: Task, predictions: Sequence[float], labels: Sequence[float]
) -> None:
    def written(value: float) -> str:
        return f"{value:.9g}" if task.range else task.labels[int(value)]

    lines = [
        f"{index}\t{written(prediction)}\t{written(label)}\n"
        for index, (prediction, label) in enumerate(zip(predictions, labels, strict=True))
    ]
    write_text_atomically(path, "index\tprediction\tlabel\n" + "".join(lines))


def require_same(
    found: object, settings: Settings, *, where: Path, but: Sequence[str] = ()
) -> None:
    """Raise a UsageError where ``found`` are other settings, those named in ``but`` apart."""
    wanted = settings.as_json()
    differing = [
        name
        for name in wanted
        if name not in but
        and (not isinstance(found, dict) or found.get(name, _OLDER.get(name)) != wanted[name])
    ]
    if not differing:
        return
    raise UsageError(
        f"{where}: is of a run with other settings ({', '.join(differing)}); choose another "
        "output folder or delete this one"
    )
