"""Scoring the heads of a checkpoint on sentence pairs that fairseq-preprocess has binarised."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from fairseq.data.language_pair_dataset import collate
from fairseq.dataclass.configs import GenerationConfig
from fairseq.models.transformer import TransformerModel
from fairseq.utils import move_to_cuda

from data_prep.lib.text import TextProcessing
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import fairseq_silent, load_model, load_split, trained_on
from fairseq_plugin.scores.bleu_ablation import Translator, bleu_ablation
from fairseq_plugin.scores.model import Batch, FairseqModel
from headprune.errors import DataError, UsageError
from headprune.plan import HeadPlan
from headprune.scores.ablation import Ablation
from headprune.scores.combination import ATTENTION_GUIDED
from headprune.scores.compute import (
    ABLATION,
    Origin,
    Watch,
    compute_scores,
    needs_data,
    syntactic_scores,
)
from headprune.scores.head_scores import HeadScores
from headprune.scores.names import require_known
from headprune.scores.syntax import Parse, ParsedBatch

METRICS = ("loss", "bleu")
SUBSET_SEED = 1
PARTS = ("scoring", "ablation")
FEWEST = 2
"""Sentence pairs that each part needs at least: ablation tests differences over them."""


def score_heads(
    path: Path,
    *,
    scores: Sequence[str],
    data: Path | None = None,
    split: str = "valid",
    max_examples: int | None = None,
    batch_size: int = 32,
    seed: int = 1,
    metric: str = "loss",
    beam: int = 5,
    weights: Mapping[str, float] = ATTENTION_GUIDED,
    watch: Watch = lambda batches, *_: batches,
) -> dict[str, HeadScores]:
    """Compute the scores called ``scores`` of a checkpoint, stock fairseq's or head-pruned.

    Of the valid set, one half is for scores and the other for the ablation that judges them.

    Args:
        path: the checkpoint.
        scores: see ``headprune.scores.names``.
        data: the binarised data folder; default: the one that the checkpoint was trained on.
        split: of the data.
        max_examples: a random subset of this size, the same every time.
        seed: of the score ``random``.
        metric: of ablations: ``loss``, the translation being given, or ``bleu``, by beam search.
        beam: of that search.
        weights: of the combination.
        watch: for a progress bar.

    Raises:
        UsageError: no such score or metric, or a model of another task.
        DataError: a checkpoint or data that cannot be read, or numbers that are not finite.
    """
    require_known(scores)
    if metric not in METRICS:
        raise UsageError(f"metric {metric}: of translations it is one of {', '.join(METRICS)}")
    checkpoint = Checkpoint.load(path)
    folder = data or trained_on(checkpoint)
    with fairseq_silent():
        model, task = load_scored(checkpoint, folder)
        batches: dict[str, list[Batch]] = dict.fromkeys(PARTS, [])
        fingerprint = checkpoint.fingerprint
        origins = dict.fromkeys(PARTS, Origin(model=str(path), fingerprint=fingerprint))
        if needs_data(scores):
            in_parts = split == "valid"
            for part in PARTS:
                items = load_items(
                    task,
                    split,
                    folder,
                    max_examples=max_examples,
                    part=part if in_parts else None,
                )
                batches[part] = batches_of(items, model, size=batch_size)
                origins[part] = Origin(
                    model=str(path),
                    fingerprint=fingerprint,
                    data=f"{data_name(folder)}.{split}[{len(items)}]",
                    settings={
                        **({"subset_seed": SUBSET_SEED} if max_examples is not None else {}),
                        **({"part": part} if in_parts else {}),
                        **({"beam": beam} if metric == "bleu" else {}),
                    },
                )
        scored = FairseqModel(model)

        def ablate(kinds: Sequence[str]) -> Mapping[str, Ablation]:
            made = translator(scored, task, folder, beam=beam)
            return bleu_ablation(made, batches["ablation"], kinds=kinds, watch=watch)

        def pass_over(purpose: str) -> Iterator[Batch]:
            data = batches["ablation" if purpose == ABLATION else "scoring"]
            return watch(iter(data), len(data), purpose)

        return compute_scores(
            scored,
            scores,
            batches=pass_over,
            origin=origins["scoring"],
            ablation_origin=origins["ablation"],
            metric=metric,
            seed=seed,
            weights=weights,
            ablate=ablate if metric == "bleu" else None,
        )


def score_syntax(
    path: Path,
    parses: Sequence[Parse],
    *,
    file_name: str,
    data: Path | None = None,
    batch_size: int = 32,
) -> dict[str, HeadScores]:
    """The syntactic roles of the encoder's heads, on parsed sentences of the source language.

    Args:
        path: the checkpoint.
        parses: the sentences.
        file_name: of the file that they come from, for the signature.
        data: the binarised data folder, prepared by data_prep; default: the one that the
            checkpoint was trained on.

    Raises:
        UsageError: nothing says how the data's text was prepared, or a model of another task.
        DataError: files that cannot be read, or none of the relations in them.
    """
    checkpoint = Checkpoint.load(path)
    folder = data or trained_on(checkpoint)
    with fairseq_silent():
        model, task = load_scored(checkpoint, folder)
        split = _prepared(task, folder, use="words cannot be split").splitter()
        most = model.max_positions()[0]
        dictionary = task.source_dictionary
        items = []
        for number, parse in enumerate(parses):
            pieces = [split(word) for word in parse.words]
            tokens = [dictionary.index(piece) for word in pieces for piece in word]
            words = [place for place, word in enumerate(pieces) for _ in word]
            source = torch.tensor([*tokens[: most - 1], dictionary.eos()])
            # Only the encoder is looked at: the shortest target will do.
            target = torch.tensor([task.target_dictionary.eos()])
            items.append(({"id": number, "source": source, "target": target}, words[: most - 1]))

        def batches() -> Iterator[ParsedBatch]:
            for start in range(0, len(items), batch_size):
                part = items[start : start + batch_size]
                yield _parsed_batch(part, parses[start : start + batch_size], dictionary)

        return syntactic_scores(
            FairseqModel(model),
            batches(),
            parses=parses,
            origin=Origin(
                model=str(path),
                fingerprint=checkpoint.fingerprint,
                data=f"{file_name}[{len(parses)}]",
            ),
        )


def _parsed_batch(
    part: Sequence[tuple[dict[str, Any], list[int]]], parses: Sequence[Parse], dictionary: Any
) -> ParsedBatch:
    # In the given order, which collate changes when it knows it by length.
    batch = on_device(
        collate(
            [item for item, _ in part],
            pad_idx=dictionary.pad(),
            eos_idx=dictionary.eos(),
            left_pad_source=False,
        )
    )
    length = batch["net_input"]["src_tokens"].size(1)
    by_id = dict(zip((item["id"] for item, _ in part), zip(part, parses, strict=True), strict=True))
    ordered = [by_id[number] for number in batch["id"].tolist()]
    words = [[*words, *[-1] * (length - len(words))] for (_, words), _ in ordered]
    found = torch.tensor(words, device=batch["net_input"]["src_tokens"].device)
    return ParsedBatch(batch, found, [parse for _, parse in ordered])


def data_name(folder: Path) -> str:
    """What signatures call a binarised data folder."""
    return ".".join(folder.absolute().parts[-2:])


def load_scored(checkpoint: Checkpoint, data: Path) -> tuple[TransformerModel, Any]:
    """The model with attention of this plugin, whoever's it is, and its task."""
    if checkpoint.form is None:
        checkpoint = checkpoint.prune(HeadPlan.full(checkpoint.shape))
    model, task = load_model(checkpoint, data)
    return (model.cuda() if torch.cuda.is_available() else model), task


def on_device(sample: Batch) -> Batch:
    """A sample where models are scored: on a GPU where there is one."""
    moved: Batch = move_to_cuda(sample) if torch.cuda.is_available() else sample
    return moved


def load_items(
    task: Any, split: str, folder: Path, *, max_examples: int | None, part: str | None = None
) -> list[dict[str, Any]]:
    """The sentence pairs of a split, or a random subset of them.

    Args:
        part: ``scoring`` or ``ablation``, one random half of the split each; None for all of it.
    """

    def choose(size: int) -> list[int]:
        numbers = list(range(size))
        if part is not None and len(numbers) >= 2 * FEWEST:
            order = random.Random(SUBSET_SEED).sample(numbers, len(numbers))
            half = (len(order) + 1) // 2
            numbers = sorted(order[:half] if part == PARTS[0] else order[half:])
        if max_examples is not None and max_examples < len(numbers):
            numbers = sorted(random.Random(SUBSET_SEED).sample(numbers, max_examples))
        return numbers

    try:
        items = load_split(task, split, folder, choose=choose)
    except FileNotFoundError:
        raise UsageError(f"{folder}: there is no split {split}") from None
    if not items:
        raise DataError(f"{folder}: the split {split} is empty")
    return items


def batches_of(
    items: Sequence[dict[str, Any]], model: TransformerModel, *, size: int
) -> list[Batch]:
    """Sentence pairs, those of like length together.

    Raises:
        DataError: a sentence that is too long for the model.
    """
    dictionary = model.decoder.dictionary
    most = min(model.max_positions())
    longest = max(max(len(item["source"]), len(item["target"])) for item in items)
    if longest > most:
        raise DataError(f"a sentence has {longest} tokens, the model takes {most} at most")
    ordered = sorted(items, key=lambda item: (len(item["source"]), len(item["target"])))
    return [
        on_device(
            collate(
                ordered[start : start + size], pad_idx=dictionary.pad(), eos_idx=dictionary.eos()
            )
        )
        for start in range(0, len(ordered), size)
    ]


def translator(
    scored: FairseqModel, task: Any, folder: Path, *, beam: int, length: int | None = None
) -> Translator:
    """Beam search that ends in text, as the data preparation and fairseq undo their steps.

    Args:
        scored: the model to translate with.
        task: that it was loaded with.
        folder: the binarised data.
        beam: hypotheses at a time.
        length: make every translation so many tokens long, for equal work.

    Raises:
        UsageError: nothing says how the data's text was prepared.
    """
    prepared = _prepared(task, folder, use="BLEU cannot be computed; give --metric loss")
    search = GenerationConfig(beam=beam)
    if length is not None:
        search = GenerationConfig(beam=beam, max_len_a=0, max_len_b=length, min_len=length)
    return Translator(
        scored,
        generator=task.build_generator([scored.model], search),
        dictionary=task.target_dictionary,
        join=prepared.joiner(),
        target_lang=prepared.target_lang,
    )


def _prepared(task: Any, folder: Path, *, use: str) -> TextProcessing:
    prepared = TextProcessing.of_preparation(
        folder, source_lang=task.cfg.source_lang, target_lang=task.cfg.target_lang
    )
    if prepared is None:
        raise UsageError(
            f"{folder}: no prep.json beside it says how its text was prepared, so {use}"
        )
    return prepared
