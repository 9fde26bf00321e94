"""The model and the examples of a run, before its pruning."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import transformers
from datasets import Dataset
from transformers import PreTrainedModel

import hf_plugin
from headprune.recovery.distillation import TEACHER
from headprune.recovery.translated_text import read_translations
from hf_plugin.distillation import Teacher, load_teacher
from hf_plugin.finetuning.models import (
    auto_class,
    keeps_classifier,
    load_classifier,
    require_length,
)
from hf_plugin.finetuning.pooling import pool_by_mean
from hf_plugin.finetuning.settings import Settings
from hf_plugin.finetuning.start_weights import START, start_fingerprint
from hf_plugin.finetuning.training import encode, labels_of
from hf_plugin.glue import entailment
from hf_plugin.glue.data import GlueData
from hf_plugin.layerdrop import require_layers
from hf_plugin.plans import plan_after
from hf_plugin.tasks.examples import Examples
from hf_plugin.tasks.task import LabelledData, dev_splits
from hf_plugin.tokenizers import Reader, load_reader, set_padding
from hf_plugin.translating import set_target_language


@dataclass(frozen=True, kw_only=True)
class Loaded:
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


def data_of(settings: Settings, output: Path) -> LabelledData:
    """The data of the settings; those of the generated task are written to ``output`` first."""
    data = settings.data
    if isinstance(data, GlueData) and data.is_to_be_generated:
        data = replace(data, data_dir=output / "data")
        entailment.write(output / "data")
    return data


def load(settings: Settings, source: LabelledData) -> Loaded:
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
    return Loaded(
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
