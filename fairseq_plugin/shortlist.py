"""Make shortlists from a checkpoint's training data."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from fairseq.data import Dictionary
from numpy.typing import NDArray

from fairseq_plugin.checkpoints import Checkpoint
from fairseq_plugin.loading import fairseq_silent, load_model, load_split, trained_on
from headprune.errors import DataError
from headprune.shortlist import Coverage, Shortlist

Numbers = NDArray[np.int64]


def make_shortlist(
    path: Path, *, best: int, frequent: int, data: Path | None = None
) -> tuple[Shortlist, Coverage]:
    """Count which target words occur in the translations of each source word.

    A source word s gets the target words t of the highest p(t | s), the share of the sentences with
    s whose translation has t. Dice coefficients and likelihood ratios prefer rare words: their
    lists have more of a sentence's own words, but the lists of a batch of sentences have fewer
    words in common, and together are longer for the same share of the model's translations.

    Args:
        path: a checkpoint.
        best: the largest number of target words of a source word.
        frequent: the number of target words of all sentences: those in most of them.
        data: the folder of the binarised data; default: the data that it was trained on.

    Returns:
        The shortlist, and how much of the validation set's references it has.

    Raises:
        UsageError: a model of another task.
        DataError: data that are missing, damaged or empty.
    """
    checkpoint = Checkpoint.load(path)
    folder = data or trained_on(checkpoint)
    with fairseq_silent():
        _, task = load_model(checkpoint, folder)
        train = _sentences(task, "train", folder)
        valid = _sentences(task, "valid", folder)
    source, target = task.source_dictionary, task.target_dictionary
    counts = _Counts.of(train, words=(len(source), len(target)))
    always = _highest(counts.target_sentences, frequent, special=target.nspecial)
    lists = {
        int(word): _highest(counts.together(int(word)), best, special=target.nspecial)
        for word in np.unique(counts.source_words)
        if word >= source.nspecial
    }
    if not len(always):
        raise DataError(f"{folder}: the training data have no words")
    shortlist = Shortlist(
        frequent=_names(always, target),
        best={source[word]: _names(words, target) for word, words in lists.items()},
    )
    return shortlist, _coverage(valid, lists, always, target)


@dataclass(frozen=True)
class _Pair:
    """The different words of a sentence and of its translation."""

    source: Numbers
    target: Numbers


def _sentences(task: Any, split: str, data: Path) -> list[_Pair]:
    try:
        pairs = load_split(task, split, data, choose=range)
    except FileNotFoundError:
        raise DataError(f"{data}: no binarised data of the split {split}") from None
    if not pairs:
        raise DataError(f"{data}: the split {split} is empty")
    return [
        _Pair(np.unique(pair["source"].numpy()), np.unique(pair["target"].numpy()))
        for pair in pairs
    ]


@dataclass(frozen=True, kw_only=True)
class _Counts:
    """Sentences by source word, and the target words of sentences.

    Attributes:
        source_words: the source words of all sentences, in ascending order.
        sentences: for each of them the number of its sentence.
        target_words: the target words of all sentences, sentence by sentence.
        starts: for each sentence, the place of its first one in ``target_words``.
        lengths: for each sentence, their number.
        target_sentences: for each target word, the number of sentences that have it.
    """

    source_words: Numbers
    sentences: Numbers
    target_words: Numbers
    starts: Numbers
    lengths: Numbers
    target_sentences: Numbers

    @classmethod
    def of(cls, pairs: Sequence[_Pair], *, words: tuple[int, int]) -> _Counts:
        source = np.concatenate([pair.source for pair in pairs])
        sizes = [len(pair.source) for pair in pairs]
        order = np.argsort(source, kind="stable")
        target = np.concatenate([pair.target for pair in pairs])
        lengths = np.array([len(pair.target) for pair in pairs])
        return cls(
            source_words=source[order],
            sentences=np.repeat(np.arange(len(pairs)), sizes)[order],
            target_words=target,
            starts=np.cumsum(lengths) - lengths,
            lengths=lengths,
            target_sentences=np.bincount(target, minlength=words[1]),
        )

    def together(self, word: int) -> Numbers:
        """For each target word, the number of sentences that have it and the source word."""
        first, last = np.searchsorted(self.source_words, [word, word + 1])
        rows = self.sentences[first:last]
        lengths = self.lengths[rows]
        # The places of the target words of these sentences: each sentence's start, and onwards.
        within = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        places = np.repeat(self.starts[rows], lengths) + within
        return np.bincount(self.target_words[places], minlength=len(self.target_sentences))


def _highest(counts: Numbers, number: int, *, special: int) -> Numbers:
    """The words with the highest counts above 0, without the ``special`` first ones."""
    words = special + np.argsort(-counts[special:], kind="stable")[:number]
    return words[counts[words] > 0]


def _names(words: Numbers, dictionary: Dictionary) -> tuple[str, ...]:
    return tuple(dictionary[word] for word in words.tolist())


def _coverage(
    pairs: Sequence[_Pair], lists: dict[int, Numbers], always: Numbers, target: Dictionary
) -> Coverage:
    """The share of the references' different words that are in their sentences' lists."""
    inside = total = size = 0
    nothing = np.array([], dtype=np.int64)
    for pair in pairs:
        listed = np.unique(
            np.concatenate([always, *(lists.get(word, nothing) for word in pair.source.tolist())])
        )
        words = pair.target[pair.target >= target.nspecial]
        inside += int(np.isin(words, listed).sum())
        total += len(words)
        size += len(listed)
    return Coverage(
        split="valid",
        share=inside / max(1, total),
        words=size / len(pairs),
        vocabulary=len(target),
    )
