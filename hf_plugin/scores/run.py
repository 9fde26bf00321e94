"""Scoring the heads of a classifier on a task's examples."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import DataCollatorWithPadding, PreTrainedModel

from headprune.errors import UsageError
from headprune.scores.head_scores import HeadScores, Values
from headprune.select.random import lot
from hf_plugin.glue.data import SUBSET_SEED, load_splits
from hf_plugin.glue.models import load_classifier, load_tokenizer
from hf_plugin.glue.tasks import task_named
from hf_plugin.glue.training import encode
from hf_plugin.scores.attention_statistics import STATISTICS, attention_statistics
from hf_plugin.scores.gradients import gradient_scores
from hf_plugin.scores.magnitude import magnitude
from hf_plugin.surgery import head_plan

GRADIENTS = ("gradient", "taylor")
SCORES = (*GRADIENTS, *STATISTICS, "magnitude", "random")
_WITHOUT_DATA = ("magnitude", "random")


def score_heads(
    model_name: str,
    *,
    scores: Sequence[str],
    task: str,
    data_dir: Path | None,
    split: str = "train",
    max_examples: int | None = None,
    batch_size: int = 32,
    max_length: int = 128,
    seed: int = 1,
    watch: Callable[[Iterator[Any], int], Iterator[Any]] = lambda batches, _: batches,
) -> dict[str, HeadScores]:
    """The scores called ``scores`` of a fine-tuned classifier.

    Args:
        model_name: a Hugging Face folder, or a name on the hub.
        scores: of ``SCORES``.
        task: a task of GLUE.
        data_dir: GLUE's tsv files; without it, the hub.
        split: ``train`` or ``dev``.
        max_examples: a random subset of so many, the same every time.
        seed: of the score ``random``.
        watch: wraps the batches of each pass, of which there are so many; for a progress bar.

    Raises:
        UsageError: no such score, task or split, or a model that cannot be pruned.
        DataError: a model or data that cannot be read, or numbers that are not finite.
    """
    for name in scores:
        if name not in SCORES:
            raise UsageError(f"there is no score {name!r}; there are {', '.join(SCORES)}")
    chosen = task_named(task)
    if split not in chosen.files:
        raise UsageError(f"{task} has no split {split!r}; it has {', '.join(chosen.files)}")
    model = load_classifier(model_name, chosen, untrained=False)
    values: dict[str, Values] = {}
    data = ""
    settings: dict[str, Any] = {}
    if any(name not in _WITHOUT_DATA for name in scores):
        examples = load_splits(chosen, data_dir, splits=[split])[split]
        if max_examples is not None:
            examples = examples.subset(max_examples)
        tokenizer = load_tokenizer(model_name)
        encoded = encode(examples, tokenizer, max_length=max_length).remove_columns("length")
        collate = DataCollatorWithPadding(tokenizer)

        def batches() -> Iterator[Mapping[str, torch.Tensor]]:
            starts = range(0, len(encoded), batch_size)
            cut = (encoded.select(range(i, min(i + batch_size, len(encoded)))) for i in starts)
            return watch((dict(collate(list(part))) for part in cut), len(starts))

        data = f"{chosen.data_name}.{split}[{len(examples)}]"
        settings = {"max_length": max_length, "subset_seed": SUBSET_SEED}
        if any(name in GRADIENTS for name in scores):
            found = gradient_scores(model, batches())
            values |= {"gradient": found.gradient, "taylor": found.taylor}
        if any(name in STATISTICS for name in scores):
            values |= attention_statistics(model, batches())
    values |= {"magnitude": magnitude(model), "random": _random(model, seed=seed)}
    of_weights = fingerprint(model)
    of_data = {"random": ("", {"seed": seed}), "magnitude": ("", {})}
    made = {}
    for name in scores:
        its_data, its_settings = of_data.get(name, (data, settings))
        made[name] = HeadScores(
            name=name,
            values=values[name],
            model=model_name,
            fingerprint=of_weights,
            data=its_data,
            settings=its_settings,
        )
    return made


def fingerprint(model: PreTrainedModel) -> str:
    """The SHA-256 of the model's weights, in the order of their names."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(name.encode())
        digest.update(tensor.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _random(model: PreTrainedModel, *, seed: int) -> Values:
    """The lots of ``select.at_random``, from 0 to 1; the heads that it keeps have the highest."""
    plan = head_plan(model)
    return {
        name: [
            [
                1 - lot(seed, (name, layer, head)) / 2**256 if head in kept else None
                for head in range(plan.heads[name][layer])
            ]
            for layer, kept in enumerate(layers)
        ]
        for name, layers in plan.kept.items()
    }
