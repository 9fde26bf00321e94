"""Scoring the heads of a classifier on a task's examples."""

from __future__ import annotations

import bisect
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from headprune.backends import BATCH_SIZE, ScoreRequest
from headprune.errors import DataError, UsageError
from headprune.scores.compute import (
    Origin,
    compute_scores,
    syntactic_scores,
    unwatched,
)
from headprune.scores.head_scores import HeadScores
from headprune.scores.movement import FineTuned
from headprune.scores.names import require_known
from headprune.scores.parts import PARTS, SUBSET_SEED, parts_of
from headprune.scores.registry import ABLATION, SCORING
from headprune.scores.syntax import Parse, ParsedBatch
from hf_plugin.families import require_family
from hf_plugin.finetuning.held_out import TrainingPart, held_out
from hf_plugin.finetuning.models import load_classifier, require_length
from hf_plugin.finetuning.notices import warn_of_cut_texts
from hf_plugin.finetuning.training import TEXTS_AT_ONCE, Schedule, collator_for, encode
from hf_plugin.fingerprints import model_fingerprint
from hf_plugin.folder_check import require_finite
from hf_plugin.glue.data import GlueData
from hf_plugin.loading import complete_model, read_config
from hf_plugin.places import device, place, reporting
from hf_plugin.scores.model import HuggingFaceModel, is_language_model, on_device_of
from hf_plugin.scores.movement import fine_tuned
from hf_plugin.scores.own_outputs import translates, with_translations
from hf_plugin.tasks.task import LabelledData, cut_name
from hf_plugin.tokenizers import (
    Reader,
    load_reader,
    load_tokenizer,
    require_vocabulary,
    set_padding,
)

_SEEN = {
    "yes": "warning: {model} was fine-tuned on all training examples, so scores and ablation are "
    "computed on examples that it has seen; to hold some out, fine-tune it with "
    "`headprune {command} --hold-out 10`",
    "unknown": "warning: nothing says which training examples {model} was fine-tuned on; scores "
    "and ablation may be computed on examples that it has seen",
}


def score_heads(
    model_name: str,
    request: ScoreRequest,
    *,
    data: LabelledData,
    split: str = "train",
    metric: str = "accuracy",
    parts: Sequence[TrainingPart] = (),
    max_length: int = 128,
    schedule: Schedule | None = None,
    counted: set[str] | None = None,
) -> dict[str, HeadScores]:
    """Compute the scores of a fine-tuned classifier.

    On the training set, they are computed on examples that the model was not fine-tuned on.
    Ablation uses other examples than the other scores (see ``hf_plugin.finetuning.held_out``).

    Args:
        model_name: a Hugging Face folder, or a name on the hub.
        request: the scores to compute, and how. A random subset of the examples is the same every
            time. Without labels, any model with outputs for text will do. The default size of a
            batch is that of ``batch_size_of``.
        data: the task and its examples.
        split: ``train`` or ``dev``, in the place of the request's.
        metric: the metric of ablations, in the place of the request's: ``accuracy`` or ``loss``,
            or ``divergence`` without labels.
        parts: the parts of the training set that later fine-tunings will use; left out, too.
        max_length: the largest number of tokens of an example.
        schedule: of the fine-tuning of the score ``movement``; None for one epoch with a peak
            learning rate of 2e-5.
        counted: see ``warn_of_cut_texts``.

    Raises:
        UsageError: no such score, task or split, or a model that cannot be pruned.
        DataError: a model or data that cannot be read, or numbers that are not finite.
    """
    require_known(request.scores)
    needed = parts_of(request.scores, request.weights)
    if needed:
        data.require(split)
    if request.without_labels:
        model = whole_model(model_name)
    else:
        model = load_classifier(model_name, data.task, untrained=False)
        model.to(device())  # type: ignore[arg-type]
    default_size = batch_size_of(model)
    origin = Origin(model=model_name, fingerprint=model_fingerprint(model))
    inputs = None
    if needed:
        inputs = _inputs(
            model,
            needed,
            origin=origin,
            data=data,
            split=split,
            parts=parts,
            max_examples=request.max_examples,
            max_length=max_length,
            without_labels=request.without_labels,
            counted=counted,
        )
    origins = {**dict.fromkeys(PARTS, origin), **({} if inputs is None else inputs.origins)}
    scored = HuggingFaceModel(
        model, special_tokens=frozenset() if inputs is None else inputs.special_tokens
    )
    translating = request.without_labels and translates(model)

    def translated(batch: Mapping[str, torch.Tensor]) -> Mapping[str, torch.Tensor]:
        with scored.evaluating():
            return with_translations(model, on_device_of(model, batch))

    def batches(purpose: str) -> Iterator[Mapping[str, torch.Tensor]]:
        part = ABLATION if purpose == ABLATION else SCORING
        if inputs is None or not (examples := inputs.encoded.get(part)):
            raise DataError("no example to compute scores on")
        found = batches_of(
            examples,
            inputs.reader,
            size=request.batch_size_for(purpose, default=default_size),
            watch=lambda batches, number: request.watch(batches, number, purpose),
        )
        return map(translated, found) if translating else found

    def fine_tune(components: Sequence[str]) -> FineTuned:
        assert inputs is not None  # movement is computed on data
        train = data.load("train")
        divided = held_out(train, model=Path(model_name), parts=parts)
        return fine_tuned(
            model,
            inputs.reader,
            train.select(divided.training(len(train), most=request.max_examples)),
            components=components,
            name=data.name_of("train"),
            max_length=max_length,
            schedule=schedule
            or Schedule(
                epochs=1.0,
                batch_size=request.batch_size or BATCH_SIZE,
                learning_rate=2e-5,
                seed=request.seed,
            ),
        )

    return compute_scores(
        scored,
        request.scores,
        batches=batches,
        origin=origins[SCORING],
        ablation_origin=origins[ABLATION],
        metric=metric,
        seed=request.seed,
        components=request.components,
        weights=request.weights,
        own_outputs=request.without_labels,
        permutations=request.permutations,
        watch=request.watch,
        fine_tune=None if request.without_labels else fine_tune,
    )


@dataclass(frozen=True, kw_only=True)
class _Inputs:
    """Examples as inputs of a model.

    Attributes:
        reader: the model's tokenizer or image processor.
        encoded: the examples of each part of ``PARTS`` that is needed.
        origins: the origin of the scores on each of these parts.
        special_tokens: the numbers of tokens that stand for no text.
    """

    reader: Reader
    encoded: Mapping[str, Dataset]
    origins: Mapping[str, Origin]
    special_tokens: frozenset[int]


def _inputs(
    model: PreTrainedModel,
    needed: Sequence[str],
    *,
    origin: Origin,
    data: LabelledData,
    split: str,
    parts: Sequence[TrainingPart],
    max_examples: int | None,
    max_length: int,
    without_labels: bool,
    counted: set[str] | None,
) -> _Inputs:
    """Load and encode the examples of the needed parts.

    Args:
        model: the model.
        needed: some of ``PARTS``.
        origin: the name and the weights of the model.
        data, split, parts, max_length, counted: see ``score_heads``.
        max_examples, without_labels: see ``ScoreRequest``.
    """
    name = origin.model
    reader = load_reader(name, data.task)
    require_length(max_length, model, reader, name=name)
    set_padding(model, reader)
    whole = data.load(split)
    split_in_two = held_out(whole, model=Path(name), parts=parts) if split == "train" else None
    encoded: dict[str, Dataset] = {}
    origins: dict[str, Origin] = {}
    for part in needed:
        settings: dict[str, Any] = {"max_length": max_length}
        settings |= {"subset_seed": SUBSET_SEED} if max_examples is not None else {}
        if split_in_two is None:
            examples = whole if max_examples is None else whole.subset(max_examples)
        else:
            examples = whole.select(split_in_two.part(part, most=max_examples))
            settings |= {"part": part, "trained-on": split_in_two.trained_on}
        # Now, so that text which the tokenizer does not know is refused before the first pass.
        if split_in_two is not None or not encoded:
            encoded[part] = encode(examples, reader, max_length=max_length)
            named = split if split_in_two is None else f"{split}, for {part}"
            warn_of_cut_texts(
                *(named, examples, encoded[part], reader), max_length=max_length, counted=counted
            )
            if without_labels:
                encoded[part] = encoded[part].remove_columns("label")
        else:
            encoded[part] = next(iter(encoded.values()))  # the same examples
        data_name = cut_name(f"{data.name_of(split)}[{len(examples)}]", max_length)
        origins[part] = replace(origin, data=data_name, settings=settings)
    unseen = ("no", "unknown") if without_labels else ("no",)
    if split_in_two is not None and split_in_two.trained_on not in unseen:
        warning = _SEEN[split_in_two.trained_on]
        command = "glue" if isinstance(data, GlueData) else "finetune"
        print(warning.format(model=name, command=command), file=sys.stderr)
    special_tokens: frozenset[int] = frozenset()
    if isinstance(reader, PreTrainedTokenizerBase):
        # The unknown word does stand for text.
        special_tokens = frozenset(reader.all_special_ids) - {reader.unk_token_id}
    return _Inputs(reader=reader, encoded=encoded, origins=origins, special_tokens=special_tokens)


def score_weights(
    model_name: str,
    *,
    scores: Sequence[str],
    seed: int = 1,
    components: Sequence[str] | None = None,
) -> dict[str, HeadScores]:
    """Compute scores that need no data, of a model with or without a classifier.

    Args:
        model_name: a Hugging Face folder, or a name on the hub.
        scores, seed, components: see ``ScoreRequest``.

    Raises:
        UsageError: a score that needs data, or a model that cannot be pruned.
        DataError: a model that cannot be read.
    """
    model = whole_model(model_name)

    def batches(_: str) -> Iterator[Mapping[str, torch.Tensor]]:
        raise UsageError(f"{', '.join(scores)}: give data to compute scores on")

    return compute_scores(
        HuggingFaceModel(model),
        scores,
        batches=batches,
        origin=Origin(model=model_name, fingerprint=model_fingerprint(model)),
        metric="loss",
        seed=seed,
        components=components,
    )


def score_syntax(
    model_name: str,
    parses: Sequence[Parse],
    *,
    file_name: str,
    batch_size: int = 32,
    max_length: int = 128,
) -> dict[str, HeadScores]:
    """The syntactic roles of the heads of a model, on parsed sentences.

    Args:
        model_name: a Hugging Face folder, or a name on the hub.
        parses: the sentences.
        file_name: the name of their file, for the signature.

    Raises:
        UsageError: a model that cannot be pruned, or a tokenizer that does not tell words.
        DataError: a model or file that cannot be read, or none of the relations in it.
    """
    model = whole_model(model_name)
    tokenizer = load_tokenizer(model_name)
    if not tokenizer.is_fast:
        raise UsageError(f"{model_name}: its tokenizer does not tell which word a token is of")
    require_vocabulary(tokenizer, (word for parse in parses for word in parse.words))

    def batches() -> Iterator[ParsedBatch]:
        for start in range(0, len(parses), batch_size):
            part = parses[start : start + batch_size]
            encoded = tokenizer(
                [" ".join(parse.words) for parse in part],
                truncation=True,
                max_length=max_length,
                padding=True,
                return_tensors="pt",
                return_offsets_mapping=True,
            )
            offsets = encoded.pop("offset_mapping").tolist()
            words = [
                words_of(parse.words, spans) for parse, spans in zip(part, offsets, strict=True)
            ]
            yield ParsedBatch(dict(encoded), torch.tensor(words, device=model.device), part)

    return syntactic_scores(
        HuggingFaceModel(model),
        batches(),
        parses=parses,
        origin=Origin(
            model=model_name,
            fingerprint=model_fingerprint(model),
            data=cut_name(f"{file_name}[{len(parses)}]", max_length),
            settings={"max_length": max_length},
        ),
    )


def whole_model(name: str, *, prunable: bool = True) -> PreTrainedModel:
    """The model of a folder, or of the hub, with all weights that were saved.

    Args:
        name: the folder, or the name on the hub.
        prunable: refuse families that cannot be pruned.

    Raises:
        UsageError: a family that cannot be pruned.
        DataError: a model that cannot be read, or weights that are missing or not finite.
    """
    folder = place(name)
    with reporting(f"{name}: cannot read the model"):
        config, _ = read_config(folder)
    if prunable:
        require_family(config.model_type)  # before its weights are read
    model = complete_model(folder, name=name)
    require_finite(model, name=name)
    model.float().to(device())  # type: ignore[arg-type]
    return model


def words_of(words: Sequence[str], spans: Sequence[Sequence[int]]) -> list[int]:
    """The index of the word to which each token belongs; -1 for tokens outside of words.

    Args:
        words: the words of a sentence, which was joined by spaces before tokenisation.
        spans: the start and end of each token in that text; (0, 0) for special tokens.
    """
    starts = [0]
    for word in words:
        starts.append(starts[-1] + len(word) + 1)
    # The last character: some tokenizers count the space before a word in.
    return [bisect.bisect_right(starts, end - 1) - 1 if end > start else -1 for start, end in spans]


def batch_size_of(model: PreTrainedModel) -> int:
    """The number of examples that a model scores or predicts at once, where nothing else is said.

    A language model has an output for each entry of its vocabulary, for each token.
    """
    return TEXTS_AT_ONCE if is_language_model(model) else BATCH_SIZE


def batches_of(
    encoded: Dataset,
    reader: Reader,
    *,
    size: int,
    most: int | None = None,
    watch: Callable[[Iterator[Any], int], Iterator[Any]] = unwatched,
) -> Iterator[Mapping[str, torch.Tensor]]:
    """Group encoded examples of similar length into padded batches.

    Args:
        encoded: the tokenized texts, or the paths of images, with a column ``label`` or
            ``labels`` for scores that need labels.
        reader: the tokenizer, for padding, or the image processor.
        size: the number of examples in a batch.
        most: the largest number of batches, with lengths from short to long; None: all.
        watch: function that wraps the batches, given their number, for a progress bar.
    """
    collate = collator_for(encoded, reader)
    order = order_in_batches(encoded, reader)
    names: tuple[str, ...] = ("label", "labels", "image")
    if isinstance(reader, PreTrainedTokenizerBase):
        names = (*names, *reader.model_input_names)
    inputs = encoded.select_columns([name for name in encoded.column_names if name in names])
    starts = range(0, len(order), size)
    if most is not None:
        starts = starts[:: max(1, len(starts) // most)][:most]
    cut = (inputs.select(order[start : start + size]) for start in starts)
    return watch((collate(list(part)) for part in cut), len(starts))


def order_in_batches(encoded: Dataset, reader: Reader) -> list[int]:
    """The numbers of the examples in the order of ``batches_of``: by length, images as they are."""
    if not isinstance(reader, PreTrainedTokenizerBase):
        return list(range(len(encoded)))
    lengths = torch.tensor([len(tokens) for tokens in encoded["input_ids"]])
    order: list[int] = lengths.argsort(stable=True).tolist()
    return order
