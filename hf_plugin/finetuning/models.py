"""Load pretrained models for fine-tuning on a task."""

from __future__ import annotations

import inspect
import sys
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForImageClassification,
    AutoModelForSeq2SeqLM,
    AutoModelForSequenceClassification,
    AutoModelForTokenClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headprune.errors import DataError, UsageError
from hf_plugin.folder_check import check_config, require_finite
from hf_plugin.places import place, reporting
from hf_plugin.random_batches import most_tokens
from hf_plugin.tasks.heads import require_head
from hf_plugin.tasks.labels import shown
from hf_plugin.tasks.task import Task, TaskType
from hf_plugin.tokenizers import Reader

_PROBLEM_TYPES = {
    TaskType.single_label: "single_label_classification",
    TaskType.images: "single_label_classification",
    TaskType.multi_label: "multi_label_classification",
    TaskType.regression: "regression",
}
"""transformers' names, which choose the loss; token classifiers have one loss alone."""


def auto_class(task: Task) -> Any:
    """transformers' Auto class of models for a task."""
    if task.is_of_images:
        return AutoModelForImageClassification
    if task.is_of_text:
        return AutoModelForCausalLM
    if task.is_translation:
        return AutoModelForSeq2SeqLM
    return (
        AutoModelForTokenClassification if task.is_of_words else AutoModelForSequenceClassification
    )


def keeps_classifier(name: str, task: Task) -> bool:
    """True if the saved model is a classifier, which ``load_classifier`` keeps for this task.

    Somebody has fine-tuned it, perhaps on the same examples.
    """
    config = AutoConfig.from_pretrained(place(name), trust_remote_code=False)
    is_classifier = any(each.endswith("Classification") for each in config.architectures or ())
    return is_classifier and len(config.id2label) == max(1, len(task.labels))


def load_classifier(name: str, task: Task, *, untrained: bool) -> PreTrainedModel:
    """Load the model in the folder, or the hub's model, ``name`` with a classifier for ``task``.

    Where the task is language modelling or translation, it is a model that writes text, all of
    whose weights are there.

    Args:
        name: the folder, or the name on the hub.
        task: the task.
        untrained: whether the classifier may be missing, or belong to another task. A classifier
            with the same number of labels is kept; otherwise a new one is created with random
            weights, so set a seed before.

    Raises:
        DataError: there is no model, or some of its weights are missing.
        UsageError: ``name`` is the default model, and is not installed; or ``untrained`` is false
            and the classifier has other labels, or takes none; or an X-MOD has no language.
    """
    folder = place(name)
    check_config(folder)
    with reporting(f"{name}: cannot load the model"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False)
        require_head(config, auto_class(task), name=name)
        _require_language(config, name=name)
        if task.has_classifier:
            if untrained:
                _warn_of_other_labels(config.id2label, task, name=name)
            else:
                _require_kind(config, task, name=name)
                _require_labels(config.id2label, task, name=name)
        model, info = auto_class(task).from_pretrained(
            folder,
            **_label_options(task),
            **_class_options(config, auto_class(task), untrained=untrained, name=name),
            # Some models are saved in half precision, in which small updates would be lost.
            dtype=torch.float32,
            ignore_mismatched_sizes=True,  # mismatches are checked below
            output_loading_info=True,
            trust_remote_code=False,
        )
    assert isinstance(model, PreTrainedModel)
    encoder = f"{model.base_model_prefix}."
    not_loaded = {*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])}
    # Some encoders are published without a pooler, which is then trained with the classifier.
    may_be_new = untrained and task.has_classifier
    missing = [key for key in not_loaded if not (may_be_new and _is_new(key, encoder))]
    if missing:
        raise DataError(
            f"{name}: {len(missing)} of its weights are missing or of another shape, "
            f"{min(missing)} for one"
        )
    require_finite(model, name=name)
    return model


def _label_options(task: Task) -> dict[str, Any]:
    """The entries of a classifier's config for its labels; none for a model that writes text."""
    if not task.has_classifier:
        return {}
    labels = dict(enumerate(task.labels)) or {0: task.label}
    return {
        "id2label": labels,
        "label2id": {label: number for number, label in labels.items()},
        "problem_type": _PROBLEM_TYPES.get(task.type),
    }


def _class_options(
    config: PreTrainedConfig, auto: Any, *, untrained: bool, name: str
) -> dict[str, Any]:
    """The entry of a config that makes the Auto class choose a class that takes labels.

    Of the families with several classes, it chooses the one that was saved. Published DeiTs are
    distilled from a teacher, and their class has no loss.

    Raises:
        UsageError: a model of the saved class would have to be kept.
    """
    listed = auto._model_mapping[type(config)]
    if not isinstance(listed, (list, tuple)):
        return {}
    by_name = {each.__name__: each for each in listed}
    saved = [by_name[each] for each in config.architectures or () if each in by_name]
    chosen = next(iter(saved), listed[0])
    with_labels = [
        each for each in listed if "labels" in inspect.signature(each.forward).parameters
    ]
    if chosen in with_labels or not with_labels:
        return {}
    if not untrained:
        raise UsageError(
            f"{name}: its classifier ({chosen.__name__}) takes no labels; fine-tune it for one "
            "epoch or more, which makes another one"
        )
    return {"architectures": [with_labels[0].__name__]}


def _require_language(config: PreTrainedConfig, *, name: str) -> None:
    """Check that an X-MOD, which has adapters for many languages, knows that of its texts."""
    if config.model_type != "xmod":
        return
    if config.default_language not in config.languages:
        raise UsageError(
            f"{name}: the language of the texts is not known; save this X-MOD in a folder and set "
            f"default_language in its config.json, to one of {shown(config.languages)}"
        )


def _require_kind(config: PreTrainedConfig, task: Task, *, name: str) -> None:
    """Check that a classifier's outputs are for words, or for texts, as the task's labels are."""
    saved = next(iter(config.architectures or ()), "")
    for_words, for_texts = (
        saved.endswith(f"For{kind}Classification") for kind in ("Token", "Sequence")
    )
    if for_texts if task.is_of_words else for_words:
        given, wanted = ("texts", "words") if for_texts else ("words", "texts")
        raise UsageError(
            f"{name}: its classifier ({saved}) is for {given}, the task has labels of {wanted}; "
            "fine-tune it for one epoch or more, or give another --task-type"
        )


def _require_labels(model_labels: dict[int, str], task: Task, *, name: str) -> None:
    """Check that a classifier has the task's labels in the same order."""
    task_labels = dict(enumerate(task.labels)) or {0: task.label}
    if (_are_default(model_labels) or task.is_regression) and len(model_labels) == len(task_labels):
        return
    if _folded(model_labels) != _folded(task_labels):
        raise UsageError(
            f"{name}: its classifier is for {', '.join(model_labels.values())}, the task has "
            f"{', '.join(task_labels.values())}, in this order; fine-tune it for one epoch or more"
        )


def _warn_of_other_labels(model_labels: dict[int, str], task: Task, *, name: str) -> None:
    """Say so if a classifier is kept whose outputs have other names than the task's labels."""
    labels = dict(enumerate(task.labels))
    numbers = {number: str(number) for number in labels}
    if len(labels) != len(model_labels) or labels == numbers or _are_default(model_labels):
        return
    if _folded(model_labels) != _folded(labels):
        print(
            f"warning: {name}: its classifier is for {shown(list(model_labels.values()))}; "
            f"fine-tuning for {shown(task.labels)} starts from its weights, in this order",
            file=sys.stderr,
        )


def _are_default(model_labels: dict[int, str]) -> bool:
    """True if the names are those that transformers gives by default."""
    return all(label == f"LABEL_{number}" for number, label in model_labels.items())


def _folded(labels: dict[int, str]) -> dict[int, str]:
    return {number: label.casefold() for number, label in labels.items()}


def _is_new(key: str, encoder: str) -> bool:
    return not key.startswith(encoder) or key.startswith(f"{encoder}pooler.")


def require_length(length: int, model: PreTrainedModel, reader: Reader, *, name: str) -> None:
    """Raise a UsageError if the model accepts fewer tokens than ``length``; images have none."""
    if not isinstance(reader, PreTrainedTokenizerBase):
        return
    longest = longest_text(model, reader)
    if length > longest:
        raise UsageError(
            f"max length {length}: {name} takes {longest} tokens at most; give --max-length "
            f"{longest}, or less"
        )


def longest_text(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> int:
    """The largest number of tokens of a text that a model accepts; very large without a limit."""
    longest = tokenizer.model_max_length
    return min(longest, most_tokens(model) or longest)
