"""Shortlists: for each source word the target words that its translations contain.

A beam search that looks at the shortlists of a sentence's words alone computes the output layer for
a small part of the vocabulary (Jean et al. 2015, Mi et al. 2016).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, runtime_checkable

from headprune.errors import DataError, UsageError
from headprune.files import text_of, write_text_atomically

BEST = 100
FREQUENT = 1000
"""The default sizes: target words of a source word, and words that all sentences have."""


@dataclass(frozen=True, kw_only=True)
class Shortlist:
    """Target words by source word.

    The file is the vocabulary map of CTranslate2 (vmap.txt): a line for each source word, with the
    word, a tab, and its target words with spaces between them. The first line has no source word;
    its target words are for all sentences.

    Attributes:
        frequent: target words of all sentences.
        best: for each source word its target words, the best first.
    """

    frequent: tuple[str, ...]
    best: Mapping[str, tuple[str, ...]]

    def save(self, path: Path) -> None:
        """Write the file."""
        rows = {"": self.frequent, **self.best}
        lines = (f"{source}\t{' '.join(targets)}\n" for source, targets in rows.items())
        write_text_atomically(path, "".join(lines))

    @classmethod
    def load(cls, path: Path) -> Shortlist:
        """Read a file that ``save`` wrote.

        Raises:
            DataError: it cannot be read, has another format, or has no target words.
        """
        rows: dict[str, tuple[str, ...]] = {}
        for number, line in enumerate(text_of(path).split("\n"), start=1):
            source, tab, targets = line.partition("\t")
            if tab and " " not in source and "\t" not in targets and source not in rows:
                rows[source] = tuple(targets.split(" ")) if targets else ()
            elif line:
                raise DataError(
                    f"{path}: line {number} is not a source word, a tab and target words; give a "
                    "file from `headprune shortlist`"
                )
        frequent = rows.pop("", ())
        if not frequent and not any(rows.values()):
            raise DataError(f"{path}: an empty shortlist; make it with `headprune shortlist`")
        return cls(frequent=frequent, best=rows)

    def require_words(
        self, *, source: Callable[[str], bool], target: Callable[[str], bool], name: object
    ) -> None:
        """Check that a model's dictionaries have all words of the shortlist.

        Args:
            source, target: functions that tell if a dictionary has a word.
            name: of the shortlist, for the message.

        Raises:
            DataError: a word is missing.
        """
        targets = {word for words in (self.frequent, *self.best.values()) for word in words}
        for side, words, known in (
            ("source", self.best.keys(), source),
            ("target", targets, target),
        ):
            missing = [word for word in words if not known(word)]
            if missing:
                raise DataError(
                    f"{name}: a shortlist of other dictionaries: the model's {side} dictionary "
                    f"lacks {len(missing)} of its {len(words)} {side} words, such as "
                    f"{min(missing)!r}"
                )

    def require_beam(self, beam: int, *, name: object) -> None:
        """Check that each sentence has enough words for a beam search, whatever its words are.

        Raises:
            UsageError: there are too few frequent words.
        """
        least = 2 * beam  # fairseq's number of candidates of a step
        if len(self.frequent) < least:
            raise UsageError(
                f"{name}: {len(self.frequent)} words for all sentences are too few for --beam "
                f"{beam}; make the shortlist with --frequent {least} or more"
            )


@dataclass(frozen=True, kw_only=True)
class Coverage:
    """The words of reference translations that are in the shortlists of their sources.

    Attributes:
        split: the name of the split of the data.
        share: the share of reference words in the shortlist of their sentence.
        words: the mean number of words of a sentence's shortlist.
        vocabulary: the number of words in the target dictionary.
    """

    split: str
    share: float
    words: float
    vocabulary: int


@runtime_checkable
class MakesShortlists(Protocol):
    """A backend that makes shortlists from the training data of its translation models."""

    def make_shortlist(
        self, model: Path, *, best: int, frequent: int, data: Path | None
    ) -> tuple[Shortlist, Coverage]:
        """Make a shortlist from the training data.

        Args:
            best: the largest number of target words of a source word.
            frequent: the number of target words of all sentences.
            data: the folder of the data, if the user gave one.
        """
