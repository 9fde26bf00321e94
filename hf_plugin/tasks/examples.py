"""Labelled examples in memory."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from headprune.scores.parts import SUBSET_SEED


@dataclass(frozen=True)
class Examples:
    """The examples of one split.

    Attributes:
        texts: the sentence, or the two sentences, of each example; or its words.
        labels: the index of each example's label, or the number to predict; with several labels,
            a tuple of 0 and 1 for each label of the task; with words, a tuple of the index of each
            word's label; of translations, the reference.
        left_out: the number of lines that were left out because fields are missing.
        of_words: whether the texts are words, each of which has a label.
        images: the folder of the images that the texts are the paths of; None for texts.
        of_text: whether the texts themselves are predicted; all labels are 0 and stand for nothing.
        of_translation: whether the labels are texts, which the model writes.
    """

    texts: Sequence[tuple[str, ...]]
    labels: Sequence[Any]
    left_out: int = 0
    of_words: bool = False
    of_text: bool = False
    of_translation: bool = False
    images: Path | None = None

    def __len__(self) -> int:
        return len(self.labels)

    def subset(self, size: int) -> Examples:
        """Draw ``size`` random examples, in their original order, or all if there are fewer."""
        return self if size >= len(self) else self.select(self.subset_indices(size))

    def subset_indices(self, size: int) -> list[int]:
        """Draw the indices of the examples of ``subset(size)``, in ascending order."""
        if size >= len(self):
            return list(range(len(self)))
        return sorted(random.Random(SUBSET_SEED).sample(range(len(self)), size))

    def select(self, indices: Sequence[int]) -> Examples:
        """Select the examples with these indices."""
        return replace(
            self,
            texts=[self.texts[i] for i in indices],
            labels=[self.labels[i] for i in indices],
        )
