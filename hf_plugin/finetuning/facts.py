"""The facts of a run in its record, under ``training``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from headprune.results.curves import CURVE
from headprune.results.marks import RESUMED
from headprune.scores.parts import SUBSET_SEED
from hf_plugin.finetuning.loading import Loaded
from hf_plugin.finetuning.settings import Settings
from hf_plugin.finetuning.training import WARM_UP, Training
from hf_plugin.tasks.predictions import single
from hf_plugin.tasks.task import Task


def training_facts(
    settings: Settings, loaded: Loaded, trainings: Sequence[Training]
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


def example_facts(settings: Settings, task: Task, loaded: Loaded) -> dict[str, Any]:
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
