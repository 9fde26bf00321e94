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

from data_prep.lib.prepared import PreparedCorpus, not_prepared
from data_prep.lib.text import TextProcessing
from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import fairseq_silent, load_model, load_split, trained_on
from fairseq_plugin.scores.bleu_ablation import Translator, bleu_ablation
from fairseq_plugin.scores.model import Batch, FairseqModel
from fairseq_plugin.scores.movement import fine_tuned
from headprune.backends import BATCH_SIZE, ScoreRequest
from headprune.components import HEADS
from headprune.errors import DataError, UsageError
from headprune.model import evaluating
from headprune.plan import HeadPlan
from headprune.results.bleu_tokenizers import tokenizer_of_reference
from headprune.scores.ablation import Ablation
from headprune.scores.compute import (
    Origin,
    compute_scores,
    syntactic_scores,
)
from headprune.scores.head_scores import HeadScores
from headprune.scores.movement import FineTuned
from headprune.scores.names import COMBINATION, require_known, with_combined
from headprune.scores.parts import PARTS, SUBSET_SEED, in_parts, parts_of
from headprune.scores.registry import ABLATION, SCORING, Need, score_named
from headprune.scores.syntax import Parse, ParsedBatch

METRICS = ("loss", "bleu")
"""Metrics of ablation with references."""


def score_heads(
    path: Path,
    request: ScoreRequest,
    *,
    split: str = "valid",
    metric: str = "loss",
    data: Path | None = None,
    beam: int = 5,
    finetuning: Sequence[str] = (),
) -> dict[str, HeadScores]:
    """Compute the scores of a checkpoint, stock fairseq's or head-pruned.

    Scores are computed on one half of the validation set, ablation on the other half.

    Args:
        path: the checkpoint.
        request: the scores to compute, and how. A random subset of the examples is the same every
            time. Without labels, the model's own outputs along its own greedy translations stand in
            the place of references.
        split: the split of the data, in the place of the request's.
        metric: the metric of ablations, in the place of the request's: ``loss`` on the references,
            ``bleu`` of a beam search, or ``divergence`` without labels.
        data: the binarised data folder; default: the one that the checkpoint was trained on.
        beam: the width of the beam search.
        finetuning: flags for fairseq-train, for the score ``movement``.

    Raises:
        UsageError: no such score or metric, or a model of another task.
        DataError: a checkpoint or data that cannot be read, or numbers that are not finite.
    """
    require_known(request.scores)
    if metric not in METRICS and not request.without_labels:
        raise UsageError(f"metric {metric}: of translations it is one of {', '.join(METRICS)}")
    components, max_examples, watch = request.components, request.max_examples, request.watch
    batch_size = request.batch_size or BATCH_SIZE
    checkpoint = Checkpoint.load(path)
    if checkpoint.options.get("cross_self_attention"):
        _require_no_weights(request, path)
    folder = data or trained_on(checkpoint)
    with fairseq_silent():
        model, task = load_scored(checkpoint, folder)
        pairs: dict[str, list[dict[str, Any]]] = {}
        batches: dict[str, list[Batch]] = dict.fromkeys(PARTS, [])
        fingerprint = checkpoint.fingerprint
        origins = dict.fromkeys(PARTS, Origin(model=str(path), fingerprint=fingerprint))
        needed = parts_of(request.scores, request.weights)
        if needed:
            divided = split == "valid"
            for part in needed:
                items = load_items(
                    task,
                    split,
                    folder,
                    max_examples=max_examples,
                    part=part if divided else None,
                )
                if request.without_labels:
                    items = _with_own_translations(items, model, task, size=batch_size)
                pairs[part] = items
                batches[part] = batches_of(items, model, size=batch_size)
                origins[part] = Origin(
                    model=str(path),
                    fingerprint=fingerprint,
                    data=f"{data_name(folder)}.{split}[{len(items)}]",
                    settings={
                        **({"subset_seed": SUBSET_SEED} if max_examples is not None else {}),
                        **({"part": part} if divided else {}),
                        **({"beam": beam} if metric == "bleu" else {}),
                    },
                )
        scored = FairseqModel(model)

        def ablate(kinds: Sequence[str]) -> Mapping[str, Ablation]:
            translator = beam_search(scored, task, folder, beam=beam)
            return bleu_ablation(
                translator,
                batches[ABLATION],
                kinds=kinds,
                components=HEADS if components is None else components,
                watch=watch,
            )

        def fine_tune(components: Sequence[str]) -> FineTuned:
            try:
                task.load_dataset("train")
            except FileNotFoundError:
                raise UsageError(f"{folder}: there is no split train, for movement") from None
            return fine_tuned(
                path,
                finetuning,
                components=components,
                data=folder,
                data_name=f"{data_name(folder)}.train[{len(task.dataset('train'))}]",
                seed=request.seed,
            )

        def pass_over(purpose: str) -> Iterator[Batch]:
            data = batches[ABLATION if purpose == ABLATION else SCORING]
            size = request.batch_size_for(purpose)
            if size != batch_size:
                data = batches_of(pairs[SCORING], model, size=size)
            return watch(iter(data), len(data), purpose)

        return compute_scores(
            scored,
            request.scores,
            batches=pass_over,
            origin=origins[SCORING],
            ablation_origin=origins[ABLATION],
            metric=metric,
            seed=request.seed,
            components=components,
            weights=request.weights,
            ablate=ablate if metric == "bleu" else None,
            own_outputs=request.without_labels,
            fine_tune=fine_tune if finetuning and not request.without_labels else None,
            permutations=request.permutations,
            watch=watch,
        )


def _require_no_weights(request: ScoreRequest, path: Path) -> None:
    """Refuse scores of attention weights, whose keys are tokens of one sentence each."""
    names = with_combined(request.scores, request.weights)
    found = [n for n in names if n != COMBINATION and Need.ATTENTION in score_named(n).needs]
    if found:
        raise UsageError(
            f"{path}: its decoder's self-attention looks at the source too "
            f"(--cross-self-attention), for which {', '.join(found)} are not defined; give --score "
            "with others, such as fisher or ablation"
        )


@torch.no_grad()
def _with_own_translations(
    items: Sequence[dict[str, Any]], model: TransformerModel, task: Any, *, size: int
) -> list[dict[str, Any]]:
    """The source sentences with the model's own greedy translations as their targets."""
    by_id = {item["id"]: item for item in items}
    # A translation may be as long as the model allows, </s> included.
    longest = min(200, model.max_decoder_positions() - 1)
    generator = task.build_generator([model], GenerationConfig(beam=1, max_len_b=longest))
    translated = []
    with evaluating(model):
        for batch in batches_of(items, model, size=size):
            numbers = batch["id"].tolist()
            for number, found in zip(numbers, generator.generate([model], batch), strict=True):
                translated.append({**by_id[number], "target": found[0]["tokens"].cpu()})
    return translated


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
        file_name: the name of their file, for the signature.
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
    word_numbers = torch.tensor(words, device=batch["net_input"]["src_tokens"].device)
    return ParsedBatch(batch, word_numbers, [parse for _, parse in ordered])


def data_name(folder: Path) -> str:
    """The name of binarised data in signatures: the corpus's, such as ``multi30k.en-de``.

    Where nothing describes the corpus, it is the last two parts of the folder's path.
    """
    corpus = PreparedCorpus.of_binarised(folder)
    return (corpus and corpus.name) or ".".join(folder.absolute().parts[-2:])


def load_scored(checkpoint: Checkpoint, data: Path) -> tuple[TransformerModel, Any]:
    """Load a model, stock or pruned, with the attention modules of this plugin, and its task."""
    if checkpoint.form is None:
        checkpoint = checkpoint.prune(HeadPlan.full(checkpoint.shape))
    model, task = load_model(checkpoint, data)
    return (model.cuda() if torch.cuda.is_available() else model), task


def on_device(sample: Batch) -> Batch:
    """The sample on the device for scoring: a GPU if available."""
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
        if part is not None:
            order = random.Random(SUBSET_SEED).sample(numbers, len(numbers))
            numbers = sorted(in_parts(order)[part])
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
    """Batches of sentence pairs of similar length.

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


def beam_search(
    scored: FairseqModel, task: Any, folder: Path, *, beam: int, length: int | None = None
) -> Translator:
    """Make a beam search that returns detokenised text.

    Args:
        scored: the model to translate with.
        task: the task that it was loaded with.
        folder: the binarised data.
        beam: the width of the beam search.
        length: the exact number of tokens of every translation, for equal run times.

    Raises:
        UsageError: the preparation of the data's text is not known.
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
        tokenizer=tokenizer_of_reference(
            folder.absolute().parent / "raw" / f"test.{prepared.target_lang}"
        ),
    )


def _prepared(task: Any, folder: Path, *, use: str) -> TextProcessing:
    prepared = TextProcessing.of_preparation(
        folder, source_lang=task.cfg.source_lang, target_lang=task.cfg.target_lang
    )
    if prepared is None:
        raise not_prepared(folder, use=use)
    return prepared
